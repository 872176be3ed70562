"""Run a generation from a prepared start to the end of its workers; ``Cluster`` hides Spark."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from laminar_core.driver.checkpointing import CoordinatorParts
from laminar_core.driver.coordination import Coordinator, GenerationOutcome
from laminar_core.driver.events import JobEvent
from laminar_core.driver.left_applications import ApplicationEnding
from laminar_core.driver.listening import IsolatedListener
from laminar_core.driver.options import JobOptions
from laminar_core.driver.recovery.column_names import names_of
from laminar_core.driver.recovery.renaming import columns_of
from laminar_core.driver.recovery.start import Start
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.link.transport import CoordinatorAddress
from laminar_core.protocol.types import NO_CHECKPOINT
from laminar_core.records.commands import SetMode
from laminar_core.records.manifest import Owner
from laminar_core.records.spark_application import SparkApplication
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.worker.deployment import COORDINATOR_SILENCE_MS, Deployment
from laminar_core.worker.restored_part import RestoredPart

WORKERS_EXIT_MAX_MS = 5_000
"""How long workers of a failed generation may take to exit before they are killed."""

HAND_OVER_MAX_MS = 60_000
"""How long workers of a finished job may take to send the rows that their sinks collected."""

REASON_WAIT_MAX_MS = 50
"""How long to wait, after a lost stage, for the worker's own report of the reason."""

Collected = dict[str, pa.Table]
"""Rows gathered by sinks without a committer, by operator id."""


class Stage(Protocol):
    """The workers of one generation."""

    @property
    def ended(self) -> "Future[Collected]":
        """Completes when all workers have exited; fails with a one-line reason when one is lost."""
        ...

    def interrupt(self) -> None:
        """Kill what is left of them; ``ended`` is set soon after."""
        ...


class CoordinatorProcess(Protocol):
    """A coordinator that gets its turns."""

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator."""
        ...

    @property
    def address(self) -> CoordinatorAddress:
        """The address for workers."""
        ...

    def close(self, reason: str) -> None:
        """Abort pending work and end the thread."""
        ...


class Cluster(Protocol):
    """The environment that runs a job: Spark, or a simulation."""

    def identify(self) -> Owner:
        """Return the identity of this driver, unique for one claim."""
        ...

    @property
    def can_be_renewed(self) -> bool:
        """Whether this process can replace the workers' environment if it is lost."""
        ...

    def application(self) -> SparkApplication | None:
        """Return the application to end if this driver dies; None: it ends with the driver."""
        ...

    def end_application(self, application: SparkApplication) -> ApplicationEnding:
        """Make the cluster manager end an application of an earlier driver; never raises."""
        ...

    def check(self, parallelism: int) -> Sequence[JobEvent]:
        """Verify that so many workers can run here; return warnings.

        Raises:
            ConfigurationError: they cannot run, or not as securely as required.
        """
        ...

    @property
    def slots(self) -> int | None:
        """The number of workers that can run at once now; None: unknown."""
        ...

    @property
    def slot_holders(self) -> str:
        """Who holds the slots of the whole cluster, in one line; empty: unknown."""
        ...

    def start_coordinator(
        self, parts: CoordinatorParts, listener: IsolatedListener
    ) -> CoordinatorProcess:
        """Start a coordinator in this driver."""
        ...

    def submit(self, deployment: Deployment) -> Stage:
        """Start one worker per subtask; returns at once."""
        ...

    def wait(self, futures: "Collection[Future[Any]]", timeout_ms: float | None = None) -> None:
        """Wait until one of the futures is done, or the time is over."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """One running generation."""

    cluster: Cluster
    process: CoordinatorProcess
    stage: Stage
    collects: bool
    """Rows of a sink come back through the stage, so it must end well."""
    settle_output: Callable[[], None] | None
    """Makes visible exactly the output up to the restored checkpoint; None: it is done."""

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator."""
        return self.process.coordinator

    def begin(self) -> bool:
        """Settle the output and let the workers begin, once all have verified what they restored.

        In this order: a worker that finds the checkpoint damaged makes the next generation restore
        an older one, and no output may have been committed, withdrawn or discarded for this one.
        Return False if the generation ended before that; ``watch`` then says why.

        Raises:
            LaminarError: the output cannot be settled; the workers are gone.
        """
        if self.settle_output is None:
            return True
        ready, outcome = self.coordinator.ready, self.coordinator.outcome
        self.cluster.wait((ready, outcome, self.stage.ended))
        if not ready.done() or outcome.done() or self.stage.ended.done():
            return False
        try:
            self.settle_output()
        except Exception as error:
            self.coordinator.cancel(str(error))
            self._end_workers(str(error), WORKERS_EXIT_MAX_MS)
            raise
        self.coordinator.begin()
        return True

    def watch(self) -> tuple[GenerationOutcome, Collected]:
        """Wait until the coordinator or the stage ends, then end the other one."""
        outcome = self._with_slots(self._first_sign())
        ended_well = outcome.kind in ("finished", "stopped")
        if not ended_well:
            self.coordinator.cancel(outcome.reason)
        exit_max_ms = HAND_OVER_MAX_MS if ended_well and self.collects else WORKERS_EXIT_MAX_MS
        self._end_workers(outcome.reason or outcome.kind, exit_max_ms)
        if not (ended_well and self.collects):
            return outcome, {}
        self.cluster.wait((self.stage.ended,))
        if (error := self.stage.ended.exception()) is None:
            return outcome, self.stage.ended.result()
        reason = f"collected rows were not handed over: {error}"
        return GenerationOutcome("failed", _code_of(error), reason), {}

    def _end_workers(self, reason: str, exit_max_ms: int) -> None:
        self.cluster.wait((self.stage.ended,), exit_max_ms)
        if not self.stage.ended.done():
            self.stage.interrupt()
        self.process.close(reason)

    def _with_slots(self, outcome: GenerationOutcome) -> GenerationOutcome:
        """Add the number of slots to the reason, if there may be too few."""
        if outcome.code is not ErrorCode.NOT_ENOUGH_SLOTS:
            return outcome
        slots, holders = self.cluster.slots, self.cluster.slot_holders
        known = "" if slots is None else f". Task slots of Spark now: {slots}"
        return replace(outcome, reason=outcome.reason + known + (holders and f"; {holders}"))

    def _first_sign(self) -> GenerationOutcome:
        outcome, ended = self.coordinator.outcome, self.stage.ended
        self.cluster.wait((outcome, ended))
        if not outcome.done():  # The worker's own words say more than the cluster's.
            self.cluster.wait((outcome,), REASON_WAIT_MAX_MS)
        if not outcome.done():
            error, left_early = ended.exception(), "the workers left before the job was over"
            self.coordinator.fail(
                _code_of(error),
                str(error or left_early),
                restart_helps=not isinstance(error, ConfigurationError),
            )
        return outcome.result()


def _code_of(error: BaseException | None) -> ErrorCode:
    """Return why a stage ended; without a code of its own, it lost its workers."""
    return error.code if isinstance(error, LaminarError) else ErrorCode.WORKER_LOST


def execute(
    cluster: Cluster,
    start: Start,
    options: JobOptions,
    store: CheckpointStore,
    listener: IsolatedListener,
    mode: SetMode | None = None,
) -> Execution:
    """Start the coordinator, then the workers; ``mode`` is what was set while the job ran.

    The workers restore; ``Execution.begin`` lets them begin.
    """
    parts = CoordinatorParts(
        identity=start.identity,
        store=store,
        committers=start.committers,
        config=options.checkpoint,
        highest_id=store.attempts.highest_id() or NO_CHECKPOINT,
        parent_id=None if start.restored is None else start.restored.checkpoint_id,
        rows_total=start.rows_total,
        restored=start.restored,
        scrub_bytes_per_second=options.scrub_bytes_per_second,
        claim_sha256=store.claims.own_sha256(start.identity.generation),
        deadlines=options.deadlines,
        mode=mode,
        savepoints_under=options.savepoints_under,
        discovering=start.discovering,
        output_is_settled=start.settle_output is None,
    )
    process = cluster.start_coordinator(parts, listener)
    deployment = Deployment(
        job=start.identity.job,
        generation=start.identity.generation,
        parallelism=start.identity.parallelism,
        plan=start.identity.plan,
        store_uri=store.objects.uri,
        address=process.address,
        restored=None if start.restored is None else RestoredPart.whole(start.restored),
        claim_sha256=parts.claim_sha256,
        splits=start.splits,
        growing=frozenset(o for o, d in start.discovering.items() if not d.found.complete),
        limits=options.limits,
        inflight_compression=options.inflight_compression,
        receive_bytes=options.receive_bytes,
        state=options.state,
        skip_bad=options.skip_bad,
        column_names=names_of(columns_of(options.renames)),
        link_down_max_ms=options.deadlines.link_ms,
        coordinator_silence_max_ms=max(COORDINATOR_SILENCE_MS, options.deadlines.silence_ms),
    )
    collects = len(start.committers) < len(start.identity.plan.sinks())
    return Execution(cluster, process, cluster.submit(deployment), collects, start.settle_output)
