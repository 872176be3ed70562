"""The sensor that restarts a job when its driver is dead: one run per death.

The run key names the dead generation and the attempt, and Dagster's records of runs are read first,
so a repeated tick requests nothing again. Neither separates two writers: the generation in the
store does, and the run starts its driver only if the dead one is still the newest.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Literal, Self

import dagster as dg
from dagster._core.definitions.metadata import RawMetadataMapping, normalize_metadata
from dagster._core.definitions.target import AutomationTarget, ExecutableDefinition

from laminar_core.errors import CorruptCheckpointError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.objectstore.opening import address
from laminar_core.protocol.recovery import Rejected, RestoreFrom, StartFresh
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import GROUP, STREAM_FIELD, job_name, sensor_name
from laminar_core.sensors.alerting.alerts import Incident, raise_new_alerts
from laminar_core.sensors.background import BackgroundReads, StillReadingError, Unanswered
from laminar_core.sensors.cursor import AlertCursor, ClockMs
from laminar_core.sensors.facts.integrity_records import damage_on_record
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.recovery.candidates import choose_by_sizes
from laminar_core.sensors.recovery.decision import (
    HOUR_MS,
    Alarm,
    Leave,
    Recover,
    RecoveryFacts,
    decide_recovery,
    incidents_of,
    nothing_restorable,
    store_down,
    unreadable,
)
from laminar_core.sensors.recovery.facts import Watched, read_recovery_facts
from laminar_core.sensors.rounds import Policies, StreamTick, described, make_round
from laminar_core.sensors.run_records import (
    HANGS_MS,
    Death,
    KnownRun,
    acting_run,
    recoveries_of,
    recoveries_since,
    supervising_run,
    was_terminated,
)
from laminar_core.store.checkpoint_store import CheckpointStore, Choice
from laminar_core.units import duration_ms


class RecoveryCursor(AlertCursor):
    """The state of the sensor between ticks; losing it only costs time."""

    store: str = ""
    """The place of the store that was read, without parameters; empty: none, or not recorded."""
    watched: Watched = Watched()
    unanswered_since_ms: ClockMs | None = None

    def of_store(self, place: str) -> "RecoveryCursor":
        """Return what is known of the job in this store: nothing, if another one was read."""
        known = self if self.store in ("", place) else RecoveryCursor()
        return known.model_copy(update={"store": place})


def build_recovery_sensor(
    policies: Policies,
    start_timeouts_ms: Mapping[str, int],
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
    *,
    group: str = GROUP,
) -> dg.SensorDefinition:
    """Build the sensor that keeps these streams running.

    ``start_timeouts_ms`` is how long the driver of each may take until its workers run.
    """
    timer = clock or SystemClock()

    def part(stream: str, own: BackgroundReads) -> _Tick:
        return _Tick(stream, policies[stream], start_timeouts_ms[stream], group, timer, own)

    streams = make_round("recovery", policies, part, clock, reads)

    def watch_driver(
        context: dg.SensorEvaluationContext, laminar_checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        return streams.run(context, lambda tick, part: tick.run(part, laminar_checkpoints))

    return _RecoverySensor(
        name=sensor_name("recovery", group),
        evaluation_fn=watch_driver,
        job_name=job_name("recover", group),
        minimum_interval_seconds=1,  # The daemon looks every five seconds at best.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts {described(list(policies))} again from the newest intact checkpoint "
        "when the driver is dead, silent for heartbeat_max, or stuck for checkpoint_age_max.",
    ).targeting([job_name("recover", group), job_name("start", group)])


class _RecoverySensor(dg.SensorDefinition):
    """A sensor that requests several jobs, which it knows by name.

    Dagster's own knows several jobs only as objects. They would be copied with their resources, and
    the sensor with them, which warns of a parameter that nobody has given.
    """

    def targeting(self, jobs: Iterable[str]) -> Self:
        """Return this sensor; it may request these jobs."""
        self._targets = [AutomationTarget(job) for job in jobs]
        return self

    def with_attributes(
        self,
        *,
        jobs: Sequence[ExecutableDefinition] | None = None,
        metadata: RawMetadataMapping | None = None,
    ) -> dg.SensorDefinition:
        """Return a copy with other metadata, as a component makes it; the jobs are the same."""
        assert jobs is None, "it has none, only names"
        changed = copy(self)
        changed._metadata = normalize_metadata(metadata or {})  # noqa: SLF001 - a copy of this one
        return changed


class _Tick:
    def __init__(
        self,
        stream: str,
        policy: AlertPolicy,
        start_timeout_ms: int,
        group: str,
        clock: Clock,
        reads: BackgroundReads,
    ) -> None:
        self._stream, self._policy, self._group = stream, policy, group
        self._start_timeout_ms = start_timeout_ms
        self._clock, self.reads = clock, reads
        self._age_max_ms = duration_ms(policy.checkpoint_age_max)

    def run(self, context: StreamTick, checkpoints: CheckpointStoreResource) -> dg.SensorResult:
        cursor = RecoveryCursor.read(context.cursor)
        watched, now_ms = cursor.watched, self._clock.now_ms()
        try:
            store = checkpoints.open(self._stream)
            cursor = cursor.of_store(address(store.objects, "").rstrip("/"))
            before = watched = cursor.watched
            facts, watched = self.reads.read(
                "facts",
                lambda: read_recovery_facts(store, before, now_ms, self._age_max_ms),
            )
            if facts.generation == 0 and before.generation:  # Perhaps it is not mounted.
                gone = f"{cursor.store} has nothing of job {self._stream}, which ran there"
                return self._unanswered(context, gone, cursor, before)
            facts = replace(facts, start_timeout_ms=self._start_timeout_ms)
            decision = decide_recovery(facts, self._policy)
            if not isinstance(decision, Leave):  # Runs matter only where something is wrong.
                facts = self._with_runs(context.instance, facts)
                decision = decide_recovery(facts, self._policy)
            act = (
                self._choose(facts, decision, store, context.instance)
                if isinstance(decision, Recover)
                else decision
            )
        except CorruptCheckpointError as error:
            facts = RecoveryFacts()
            decision = act = unreadable(str(error))
        except Unanswered as error:
            return self._unanswered(context, str(error), cursor, watched)
        incidents = incidents_of(facts, act if isinstance(act, Alarm) else decision)
        told = self._alert(context, incidents, cursor)
        after = RecoveryCursor(store=cursor.store, watched=watched, told=told)
        match act:
            case Leave(reason):
                return _skip(reason, after)
            case Alarm(incident):
                return _skip(f"{incident.title}: {incident.text}", after)
            case request:
                context.log.info("%s: %s", request.job_name, decision)
                return dg.SensorResult(run_requests=[request], cursor=after.model_dump_json())

    def _choose(
        self,
        facts: RecoveryFacts,
        decision: Recover,
        store: CheckpointStore,
        instance: dg.DagsterInstance,
    ) -> dg.RunRequest | Alarm | Leave:
        """Find what to start from; that may take several ticks, if something is damaged."""
        key = ("choice", facts.generation, facts.claimed_at_ms, decision.attempt)
        on_record = damage_on_record(instance, self._stream)
        try:
            choice = self.reads.read(key, lambda: choose_by_sizes(store, on_record, self._group))
        except StillReadingError:
            return Leave(f"{decision.reason}; the checkpoint to start from is still being chosen")
        return self._request(facts, decision, choice)

    def _unanswered(
        self,
        context: StreamTick,
        problem: str,
        cursor: RecoveryCursor,
        watched: Watched,
    ) -> dg.SensorResult:
        now_ms = self._clock.now_ms()
        before_ms = cursor.unanswered_since_ms
        since_ms = now_ms if before_ms is None else min(before_ms, now_ms)
        incidents = store_down(problem, now_ms - since_ms, self._policy)
        alerted = self._alert(context, incidents, cursor) if incidents else cursor.told
        watched = watched.model_copy(update={"unanswered": True})
        after = RecoveryCursor(
            store=cursor.store, watched=watched, told=alerted, unanswered_since_ms=since_ms
        )
        return _skip(f"no facts: {problem}", after)

    def _alert(
        self,
        context: StreamTick,
        incidents: list[Incident],
        cursor: RecoveryCursor,
    ) -> tuple[str, ...]:
        now_ms = self._clock.now_ms()
        return raise_new_alerts(
            self._stream, incidents, cursor.told, self._policy, context.log, now_ms
        )

    def _with_runs(self, instance: dg.DagsterInstance, facts: RecoveryFacts) -> RecoveryFacts:
        now_ms, stream = self._clock.now_ms(), self._stream
        terminated = was_terminated(instance, stream, facts.claimed_by_run)
        last_hour = recoveries_since(instance, stream, HOUR_MS, now_ms)
        acting = acting_run(instance, stream, now_ms)
        attempts = recoveries_of(instance, self._death(facts), now_ms)
        return replace(
            facts,
            supervising_run=supervising_run(instance, stream),
            terminated_run=facts.claimed_by_run if terminated else None,
            acting_run=None if acting is None else self._patient(acting),
            attempts=tuple(map(self._patient, attempts)),
            recent=tuple(run for run in last_hour if run.status != "created"),
        )

    def _patient(self, run: KnownRun) -> KnownRun:
        """It reads a checkpoint whole, and the start reads it again."""
        return replace(run, patience_ms=max(HANGS_MS, 2 * self._start_timeout_ms))

    def _request(
        self, facts: RecoveryFacts, decision: Recover, choice: Choice
    ) -> dg.RunRequest | Alarm:
        match choice.decision:
            case RestoreFrom(checkpoint_id, rejected):
                damaged = [r for r in rejected if r.cause == "damaged"]
                besides = f"; {_passed_over(damaged)}" if damaged else ""
                config: dict[str, object] = {
                    "restore": {"checkpoint": {"number": int(checkpoint_id)}},
                    "expected_generation": facts.generation,
                    "running_driver": decision.running_driver,
                    "reason": f"{decision.reason}{besides}",
                }
                return self._run(facts, decision, "recover", config)
            case StartFresh() if decision.running_driver == "refuse":
                config = {
                    "start_from": "fresh",
                    "expected_generation": facts.generation,
                    "reason": f"{decision.reason}; nothing has ever completed",
                }
                return self._run(facts, decision, "start", config)
            case StartFresh():
                why = f"{decision.reason}, and nothing has ever completed: end that driver by hand"
                return nothing_restorable(facts, why)
            case refusal:
                return nothing_restorable(facts, refusal.reason)

    def _run(
        self,
        facts: RecoveryFacts,
        decision: Recover,
        act: Literal["recover", "start"],
        config: dict[str, object],
    ) -> dg.RunRequest:
        job, death = job_name(act, self._group), f"{self._stream}:recover:{facts.generation}"
        return dg.RunRequest(
            run_key=f"{death}:{decision.attempt}:{facts.claimed_at_ms}",
            job_name=job,
            run_config={"ops": {job: {"config": {STREAM_FIELD: self._stream, **config}}}},
            tags=self._death(facts).tags,
        )

    def _death(self, facts: RecoveryFacts) -> Death:
        return Death(self._stream, facts.generation, facts.claimed_at_ms)


def _passed_over(damaged: Sequence[Rejected]) -> str:
    numbers = ", ".join(str(each.checkpoint_id) for each in damaged)
    return f"damaged: checkpoint {numbers} ({damaged[0].reason})"


def _skip(reason: str, after: RecoveryCursor) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=reason, cursor=after.model_dump_json())
