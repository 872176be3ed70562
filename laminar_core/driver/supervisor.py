"""The supervisor of a job: it runs one generation after the other until the job has finished."""

import threading
from contextlib import suppress
from dataclasses import replace

from laminar_core._version import __version__
from laminar_core.driver.coordination import GenerationOutcome
from laminar_core.driver.events import (
    ApplicationEnded,
    ApplicationLeft,
    Finished,
    GenerationFailed,
    JobListener,
)
from laminar_core.driver.execution import Cluster, Collected, Execution, execute
from laminar_core.driver.failed_start import (
    Ending,
    failed_start,
    start_error_code,
    start_error_reason,
)
from laminar_core.driver.left_applications import (
    ApplicationEnding,
    LeftApplication,
    left_applications,
)
from laminar_core.driver.listening import isolated
from laminar_core.driver.options import JobOptions, JobResult
from laminar_core.driver.preflight import check_plan
from laminar_core.driver.recovery.start import RESTARTED, RecoveryManager
from laminar_core.driver.standby.stops import LeftStops, TakeOverGivenUp
from laminar_core.driver.user_code import user_code_sha256
from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    FencedError,
    JobFailedError,
    LaminarError,
    StorageUnavailable,
    WorkerTraceback,
    error_for,
    is_refusal,
)
from laminar_core.host.clock import Clock
from laminar_core.objectstore.opening import probe
from laminar_core.plan.plan import Plan
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import Actor
from laminar_core.records.audit import AuditRecord
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.bad_rows import NO_BAD_ROWS, BadRowTotals
from laminar_core.records.commands import SetMode
from laminar_core.records.record import JsonObject
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.claims import Claimant
from laminar_core.store.file_scrub import DamageLog
from laminar_core.store.job_status import JobStatus, read_status
from laminar_core.store.owner import is_gone

_OF_ONE_HOST = (
    ErrorCode.STORE_NOT_SHARED,
    ErrorCode.VERSIONS_DIFFER,
    ErrorCode.LOOPBACK_ADDRESS,
)
"""Causes that depend on the hosts that Spark has chosen."""


class Supervisor:
    """Runs a job. ``run`` blocks; ``stop`` and ``cancel`` may be called from other threads."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        options: JobOptions,
        store: CheckpointStore,
        clock: Clock,
        listener: JobListener,
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._options = options
        self._clock = clock
        self._notify = isolated(listener)
        self._store = store
        self._audit = AuditLog(store.objects, store.paths, clock.now_ms, identify=cluster.identify)
        self._recovery = RecoveryManager(plan, options, store, clock, self._notify, self._audit)
        # Reentrant, because a second Ctrl-C may interrupt the handling of the first.
        self._lock = threading.RLock()
        self._running: Execution | None = None
        self._user_code = user_code_sha256(plan)
        self._stopping = self._cancelled = False
        self._completed = self._generations = 0
        self._has_begun = False
        """The output of some generation is settled, so what the user asked for is done."""
        self._has_run = False
        """All workers of some generation have registered: what is the same for all, was right."""
        self._restored_id: CheckpointId | None = None
        """The checkpoint that the newest generation restores."""
        self._mode: SetMode | None = None
        self._idle_ms = 0.0
        """Time in which no generation ran: before its workers were there, and while they did
        nothing any more. Only a job that ran for a while starts its series of restarts anew."""

    # --- from other threads ---------------------------------------------------------------------

    def stop(self) -> None:
        """Take a last checkpoint, commit it and end; returns at once."""
        with self._lock:
            self._stopping = True
            running = self._running
        if running is not None:
            running.coordinator.request(CheckpointKind.STOP)

    def cancel(self) -> None:
        """End now, without a last checkpoint; the job can be continued from the newest one."""
        with self._lock:
            self._cancelled = True
            running = self._running
        if running is not None:
            running.coordinator.cancel("cancelled")

    def status(self) -> JobStatus:
        """Read the job's status from its store, as ``laminar status`` does.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        return read_status(self._store, self._clock.now_ms())

    # --- the job --------------------------------------------------------------------------------

    def run(self) -> JobResult:
        """Run until the job has finished or was stopped.

        Raises:
            ConfigurationError: it cannot be started as it stands.
            DataError: input that the pipeline cannot use.
            FencedError: another driver took the job over.
            JobFailedError: it failed, and the restart strategy gave up; or it was cancelled.
            TakeOverGivenUp: a standby found that the job is not meant to run.
        """
        self._check()
        failures_ms: list[float] = []
        generation = self._claim(above=self._recovery.look())
        if self._options.standby:
            self._give_way_to_stops(generation)
        self._end_left_applications(generation)
        while True:
            outcome, collected = self._run_generation(generation)
            if outcome.kind in ("finished", "stopped"):
                return self._finish(generation, outcome, collected)
            if outcome.kind == "fenced":
                raise FencedError(ErrorCode.FENCED, outcome.reason)
            generation = self._restart(generation, outcome, failures_ms)

    def _check(self) -> None:
        """Everything that can be refused before the job is claimed."""
        for warned in check_plan(self._plan, self._options, self._clock.now_ms()):
            self._notify(warned)
        for warning in self._cluster.check(self._options.parallelism):
            self._notify(warning)
        if not self._options.expected_generation:  # Who expects a generation expects its store.
            self._store.objects.create()
        probe(self._store.objects)

    def _claim(self, above: Generation | None) -> Generation:
        """Become the owner of the job; the audit log announces it before the claim."""
        options = self._options
        announced: list[AuditRecord] = []

        def announce(generation: Generation) -> AuditRef:
            record = self._audit.append(
                action="take-over" if options.take_over else "claim",
                actor=options.actor,
                before={"generation": generation - 1 or None},
                after=self._claimed(generation),
            )
            announced.append(record)
            return record.reference()

        try:
            return self._store.claims.claim(
                self._claimant(options.actor),
                wait_ms=self._clock.wait_ms,
                take_over=options.take_over,
                announce=announce,
                above=above,
                expected=options.expected_generation,
            )
        except ConfigurationError as error:
            with suppress(StorageUnavailable):  # The refusal itself says more.
                for record in announced:
                    self._audit.conclude(record, "failed", reason=str(error))
            raise

    def _give_way_to_stops(self, generation: Generation) -> None:
        """End the job if whoever owned it before was asked to, and was lost.

        Raises:
            TakeOverGivenUp: it has ended.
        """
        expected = self._options.expected_generation
        assert expected, "a standby follows a generation"
        stops = LeftStops(self._store, generation, expected)
        if (ending := stops.ending()) is None:
            return
        outcome, reason = ending
        self._end(generation, outcome, reason, gave_up=True)
        with suppress(StorageUnavailable):  # The end itself is what counts.
            stops.answer(self._clock.now_ms())
        raise TakeOverGivenUp(
            ErrorCode.CANCELLED, f"job {self._options.job} is not taken over: {reason}"
        )

    def _end(
        self,
        generation: Generation,
        outcome: Ending,
        reason: str,
        bad_rows: BadRowTotals = NO_BAD_ROWS,
        *,
        gave_up: bool,
    ) -> None:
        self._store.claims.check_claim(generation)  # Not into what is in the place of a lost store.
        ended = self._audit.append(
            action="end",
            actor=self._options.actor.because(reason),
            after={"generation": generation, "outcome": outcome, **bad_rows.as_properties()},
        )
        self._store.generations.end(
            generation, outcome, reason, audited=ended.reference(), gave_up=gave_up
        )

    def _claimed(self, generation: Generation) -> JsonObject:
        """Return the audit log's details of a claim, with the version of the user's code."""
        if self._user_code is None:
            return {"generation": generation}
        return {"generation": generation, "user_code_sha256": self._user_code}

    def _claimant(self, actor: Actor) -> Claimant:
        return Claimant(
            owner=self._cluster.identify(),
            actor=actor,
            code_version=f"laminar {__version__}",
            claimed_at_ms=self._clock.now_ms(),
            default_retention=self._options.default_retention,
            spark=self._cluster.application(),
        )

    def _end_left_applications(self, generation: Generation) -> None:
        """Free what the driver before this one holds of the cluster, if it died.

        Nothing of the job depends on it, so whatever goes wrong is a warning.
        """
        with suppress(StorageUnavailable):
            found = left_applications(self._store.generations.summaries_below(generation))
            own = self._cluster.application() if found else None  # It asks the JVM.
            for left in found:
                if left.application != own:
                    self._end_left_application(left)

    def _end_left_application(self, left: LeftApplication) -> None:
        if self._options.take_over and not is_gone(left.owner):
            reason = "the job was taken over, so its driver may be alive; end it if it is not"
            ending = ApplicationEnding("left", reason)
        else:
            ending = self._cluster.end_application(left.application)
        if ending.outcome == "gone":
            return
        generation, now_ms = left.generation, self._clock.now_ms()
        application_id, master = left.application.application_id, left.application.master
        event: ApplicationEnded | ApplicationLeft = ApplicationEnded(
            time_ms=now_ms, generation=generation, application_id=application_id, master=master
        )
        if ending.outcome == "left":
            event = ApplicationLeft(**event.model_dump(exclude={"event"}), reason=ending.reason)
        self._notify(event)

    def _run_generation(self, generation: Generation) -> tuple[GenerationOutcome, Collected]:
        began_ms = self._clock.monotonic_ms()
        try:
            execution = self._start(generation)
            self._begin(execution)
        except Exception as error:
            if (outcome := self._start_failed(generation, error)) is None:
                raise
            self._idle_ms += self._clock.monotonic_ms() - began_ms
            return outcome, {}
        self._generations += 1
        try:
            return execution.watch()
        finally:
            running_since_ms = execution.coordinator.running_since_ms
            self._idle_ms += (running_since_ms or self._clock.monotonic_ms()) - began_ms
            with self._lock:
                self._running = None
            self._mode = execution.coordinator.mode
            self._completed += execution.coordinator.completed_count
            self._has_run = self._has_run or execution.coordinator.has_run

    def _start_failed(self, generation: Generation, error: Exception) -> GenerationOutcome | None:
        """Record how the generation ended; None if the error is to be raised."""
        failed = failed_start(error, asked_for=self._generations == 0)
        code, reason = start_error_code(error), start_error_reason(error)
        match failed.reaction:
            case "give-way":
                return GenerationOutcome("fenced", code, reason)
            case "restart":
                return GenerationOutcome("failed", code, reason)
            case "raise":
                assert failed.ending is not None
                with suppress(Exception):  # The error itself says more.
                    self._end(generation, failed.ending, reason, gave_up=True)
                return None

    def _start(self, generation: Generation) -> Execution:
        """Start a generation, whose workers restore.

        The user's request applies until one generation has begun from it.
        """
        start = self._recovery.recover(generation, first=not self._has_begun)
        self._restored_id = None if start.restored is None else start.restored.checkpoint_id
        return execute(
            self._cluster, start, self._options, self._store, self._notify, mode=self._mode
        )

    def _begin(self, execution: Execution) -> None:
        """Let the workers work, if all of them could restore."""
        self._announce(execution)
        try:
            self._has_begun = execution.begin() or self._has_begun
        except Exception:
            with self._lock:
                self._running = None
            raise

    def _announce(self, execution: Execution) -> None:
        """Make the execution reachable for ``stop`` and ``cancel``; carry out earlier requests."""
        with self._lock:
            self._running = execution
            stopping, cancelled = self._stopping, self._cancelled
        if cancelled:
            execution.coordinator.cancel("cancelled")
        elif stopping:
            execution.coordinator.request(CheckpointKind.STOP)

    def _finish(
        self, generation: Generation, outcome: GenerationOutcome, collected: Collected
    ) -> JobResult:
        assert outcome.kind in ("finished", "stopped")
        ours = "by its own process" if outcome.kind == "stopped" else ""
        counts = outcome.counts
        self._end(generation, outcome.kind, outcome.reason or ours, counts.bad_rows, gave_up=True)
        result = JobResult(
            outcome=outcome.kind,
            rows_in=counts.rows_in,
            rows_out=counts.rows_out,
            rows_late=counts.rows_late,
            bad_rows=counts.bad_rows,
            checkpoints=self._completed,
            generations=self._generations,
            collected=collected,
        )
        self._notify(
            Finished(
                time_ms=self._clock.now_ms(),
                outcome=result.outcome,
                rows_in=result.rows_in,
                rows_out=result.rows_out,
                rows_late=result.rows_late,
                bad_rows=result.bad_rows,
                checkpoints=result.checkpoints,
            )
        )
        return result

    def _restart(
        self, generation: Generation, outcome: GenerationOutcome, failures_ms: list[float]
    ) -> Generation:
        """Wait as the strategy decides, then claim the next generation.

        Raises:
            LaminarError: the strategy gave up, or a restart cannot help.
        """
        self._idle_ms += outcome.idle_ms
        delay_ms: float | None = 0.0  # Nothing has run of a damaged checkpoint: another is chosen.
        if not self._exclude_damaged(generation, outcome):
            failures_ms.append(self._clock.monotonic_ms() - self._idle_ms)
            delay_ms = self._delay_ms(outcome, failures_ms)
        with suppress(StorageUnavailable):  # It only helps others to see that nobody runs it.
            ending, bad_rows = self._ending(outcome), outcome.counts.bad_rows
            self._end(generation, ending, outcome.reason, bad_rows, gave_up=delay_ms is None)
        actor = self._options.actor.because(RESTARTED)
        claimant: Claimant | None = None
        entry = self._audit.entry(
            action="claim",
            actor=actor,
            before={"generation": generation},
            after=self._claimed(Generation(generation + 1)),
        )
        while True:
            self._announce_failure(generation, outcome, delay_ms)
            if delay_ms is None:
                cause = WorkerTraceback(outcome.traceback) if outcome.traceback else None
                raise self._final_error(outcome, len(failures_ms)) from cause
            self._clock.wait_ms(delay_ms)
            # Not before: it opens a lost session again. And once: a claim is tried again as it was.
            claimant = claimant or self._claimant(actor)
            asked_ms = self._clock.monotonic_ms()
            try:
                self._store.claims.check_claim(generation)
                announced = self._audit.write(entry).reference()
                return self._store.claims.succeed(
                    generation, replace(claimant, announced=announced)
                )
            except StorageUnavailable as error:
                if error.code in (ErrorCode.STORE_GONE, ErrorCode.STORE_REPLACED):
                    self._audit.forget()  # A record of another store must not be followed in this.
                self._idle_ms += self._clock.monotonic_ms() - asked_ms
                outcome = GenerationOutcome("failed", error.code, str(error))
                failures_ms.append(self._clock.monotonic_ms() - self._idle_ms)
                delay_ms = self._delay_ms(outcome, failures_ms)

    def _exclude_damaged(self, generation: Generation, outcome: GenerationOutcome) -> bool:
        """Mark the checkpoint if a worker found it damaged.

        Return whether the driver chooses again, and reads all of it then, without a restart of the
        strategy: each checkpoint is chosen once more at most.
        """
        restored_id, file = self._restored_id, outcome.damaged_file
        if restored_id is None or file is None or outcome.code is not ErrorCode.CHECKPOINT_CORRUPT:
            return False
        with suppress(StorageUnavailable, FencedError):  # What a successor deletes is not lost.
            self._store.claims.check_owner(generation)
            log = DamageLog(self._store.objects, self._store.paths)
            log.record(restored_id, generation, (file,), self._clock.now_ms())
        return self._recovery.exclude(restored_id) and not self._cancelled

    def _delay_ms(self, outcome: GenerationOutcome, failures_ms: list[float]) -> float | None:
        """Return the pause before the next generation; None: there will be none."""
        if not self._may_restart(outcome):
            return None
        return self._options.restart.delay_ms(failures_ms)

    def _announce_failure(
        self, generation: Generation, outcome: GenerationOutcome, delay_ms: float | None
    ) -> None:
        self._notify(
            GenerationFailed(
                time_ms=self._clock.now_ms(),
                generation=generation,
                code=_code_of(outcome).value,
                reason=outcome.reason,
                restart_in_ms=delay_ms,
                unreachable=outcome.unreachable,
                unreachable_count=outcome.unreachable_count,
                links=outcome.links,
                damaged_file=outcome.damaged_file,
                traceback=outcome.traceback,
            )
        )

    def _final_error(self, outcome: GenerationOutcome, failures: int) -> LaminarError:
        """Return why the job is not started again after so many failures."""
        code = _code_of(outcome)
        if self._cancelled and code is not ErrorCode.CANCELLED:
            return JobFailedError(
                ErrorCode.CANCELLED,
                f"job {self._options.job} was cancelled while it failed: {outcome.reason}",
            )
        if not self._may_restart(outcome):
            return error_for(code, f"job {self._options.job} failed: {outcome.reason}")
        times = "once" if failures == 1 else f"{failures} times"
        return JobFailedError(
            ErrorCode.RESTARTS_EXHAUSTED,
            f"job {self._options.job} failed {times} and is not restarted again, "
            f"the last failure: {outcome.reason}",
        )

    def _may_restart(self, outcome: GenerationOutcome) -> bool:
        code = _code_of(outcome)
        if code is ErrorCode.SPARK_LOST and not self._cluster.can_be_renewed:
            return False  # Whoever starts the program again also recovers the job.
        # The hosts were right when the job began: this one may get its store back, and Spark may
        # place the next workers elsewhere.
        changed_since = code in _OF_ONE_HOST and self._has_run
        return (outcome.restart_helps or changed_since) and not self._cancelled

    def _ending(self, outcome: GenerationOutcome) -> Ending:
        if self._cancelled or outcome.code is ErrorCode.CANCELLED:
            return "cancelled"
        by_workers = outcome.code is not None and is_refusal(outcome.code)
        return "refused" if by_workers and not self._has_run else "failed"


def _code_of(outcome: GenerationOutcome) -> ErrorCode:
    return outcome.code or ErrorCode.WORKER_FAILED
