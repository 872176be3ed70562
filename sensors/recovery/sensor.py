"""The sensor that restarts a job when its driver is dead: one run per death.

The run key names the dead generation and the attempt, and Dagster's records of runs are read first,
so a repeated tick requests nothing again. Neither separates two writers: the generation in the
store does, and the run starts its driver only if the dead one is still the newest.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import dagster as dg
from dagster._core.definitions.target import ExecutableDefinition

from laminar_core.errors import CorruptCheckpointError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.protocol.recovery import Rejected, RestoreFrom, StartFresh
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import (
    asset_key,
    checkpoint_partitions,
    job_name,
    partition_of,
)
from laminar_core.sensors.alerting.alerts import Incident, raise_new_alerts
from laminar_core.sensors.background import BackgroundReads, StillReadingError, Unanswered
from laminar_core.sensors.cursor import AlertCursor
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

    watched: Watched = Watched()
    unanswered_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RecoveryJobs:
    """The runs that the sensor requests: a recovery from a checkpoint, or a start without one.

    ``start_timeout_ms`` is how long the driver may take until its workers run.
    """

    recovery: ExecutableDefinition
    start: ExecutableDefinition
    start_timeout_ms: int = 0

    @property
    def run_ms_max(self) -> int:
        """Longest time of such a run: it reads a checkpoint whole, and the start reads it again."""
        return max(HANGS_MS, 2 * self.start_timeout_ms)


def build_recovery_sensor(
    stream: str,
    policy: AlertPolicy,
    jobs: RecoveryJobs,
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
) -> dg.SensorDefinition:
    """Build the sensor that keeps ``stream`` running."""
    tick = _Tick(stream, policy, jobs, clock or SystemClock(), reads or BackgroundReads())

    @dg.sensor(
        name=f"{stream}_recovery",
        jobs=[jobs.recovery, jobs.start],
        minimum_interval_seconds=1,  # The daemon looks every five seconds at best.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts {stream} again from its newest intact checkpoint when its driver is "
        f"dead, silent for {policy.heartbeat_max}, or stuck for {policy.checkpoint_age_max}.",
    )
    def watch_driver(
        context: dg.SensorEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        return tick.run(context, checkpoints)

    return watch_driver


class _Tick:
    def __init__(
        self,
        stream: str,
        policy: AlertPolicy,
        jobs: RecoveryJobs,
        clock: Clock,
        reads: BackgroundReads,
    ) -> None:
        self._stream, self._policy, self._jobs = stream, policy, jobs
        self._clock, self._reads = clock, reads
        self._age_max_ms = duration_ms(policy.checkpoint_age_max)

    def run(
        self, context: dg.SensorEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        cursor = RecoveryCursor.read(context.cursor)
        watched, now_ms = cursor.watched, self._clock.now_ms()
        try:
            store = checkpoints.open(self._stream)
            facts, watched = self._reads.read(
                "facts",
                lambda: read_recovery_facts(store, cursor.watched, now_ms, self._age_max_ms),
            )
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
        after = RecoveryCursor(watched=watched, told=self._alert(context, incidents, cursor))
        match act:
            case Leave(reason):
                return _skip(reason, after)
            case Alarm(incident):
                return _skip(f"{incident.title}: {incident.text}", after)
            case request:
                context.log.info("%s: %s", request.job_name, decision)
                return self._result(request, after)

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
            choice = self._reads.read(key, lambda: choose_by_sizes(store, on_record))
        except StillReadingError:
            return Leave(f"{decision.reason}; the checkpoint to start from is still being chosen")
        return self._request(facts, decision, choice)

    def _unanswered(
        self,
        context: dg.SensorEvaluationContext,
        problem: str,
        cursor: RecoveryCursor,
        watched: Watched,
    ) -> dg.SensorResult:
        now_ms = self._clock.now_ms()
        since_ms = now_ms if cursor.unanswered_since_ms is None else cursor.unanswered_since_ms
        incidents = store_down(problem, now_ms - since_ms, self._policy)
        alerted = self._alert(context, incidents, cursor) if incidents else cursor.told
        watched = watched.model_copy(update={"unanswered": True})
        after = RecoveryCursor(watched=watched, told=alerted, unanswered_since_ms=since_ms)
        return _skip(f"no facts: {problem}", after)

    def _alert(
        self,
        context: dg.SensorEvaluationContext,
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
            start_timeout_ms=self._jobs.start_timeout_ms,
            supervising_run=supervising_run(instance, stream),
            terminated_run=facts.claimed_by_run if terminated else None,
            acting_run=None if acting is None else self._patient(acting),
            attempts=tuple(map(self._patient, attempts)),
            recent=tuple(run for run in last_hour if run.status != "created"),
        )

    def _patient(self, run: KnownRun) -> KnownRun:
        return replace(run, patience_ms=self._jobs.run_ms_max)

    def _request(
        self, facts: RecoveryFacts, decision: Recover, choice: Choice
    ) -> dg.RunRequest | Alarm:
        match choice.decision:
            case RestoreFrom(checkpoint_id, rejected):
                damaged = [r for r in rejected if r.cause == "damaged"]
                besides = f"; {_passed_over(damaged)}" if damaged else ""
                config: dict[str, object] = {
                    "expected_generation": facts.generation,
                    "running_driver": decision.running_driver,
                    "reason": f"{decision.reason}{besides}",
                }
                return self._run(facts, decision, "recovery", config, partition_of(checkpoint_id))
            case StartFresh() if decision.running_driver == "refuse":
                config = {
                    "start_from": "fresh",
                    "expected_generation": facts.generation,
                    "reason": f"{decision.reason}; nothing has ever completed",
                }
                return self._run(facts, decision, "deployment", config)
            case StartFresh():
                why = f"{decision.reason}, and nothing has ever completed: end that driver by hand"
                return nothing_restorable(facts, why)
            case refusal:
                return nothing_restorable(facts, refusal.reason)

    def _run(
        self,
        facts: RecoveryFacts,
        decision: Recover,
        asset: Literal["recovery", "deployment"],
        config: dict[str, object],
        partition: str | None = None,
    ) -> dg.RunRequest:
        op = "__".join(asset_key(self._stream, asset).path)
        death = f"{self._stream}:recover:{facts.generation}"
        return dg.RunRequest(
            run_key=f"{death}:{decision.attempt}:{facts.claimed_at_ms}",
            job_name=job_name(self._stream, "recovery" if asset == "recovery" else "start"),
            partition_key=partition,
            run_config={"ops": {op: {"config": config}}},
            tags=self._death(facts).tags,
        )

    def _death(self, facts: RecoveryFacts) -> Death:
        return Death(self._stream, facts.generation, facts.claimed_at_ms)

    def _result(self, request: dg.RunRequest, after: RecoveryCursor) -> dg.SensorResult:
        # The reporter may not have seen the checkpoint yet, and adding it twice does no harm.
        key = request.partition_key
        partitions = checkpoint_partitions(self._stream)
        return dg.SensorResult(
            run_requests=[request],
            dynamic_partitions_requests=[partitions.build_add_request([key])] if key else [],
            cursor=after.model_dump_json(),
        )


def _passed_over(damaged: Sequence[Rejected]) -> str:
    numbers = ", ".join(str(each.checkpoint_id) for each in damaged)
    return f"damaged: checkpoint {numbers} ({damaged[0].reason})"


def _skip(reason: str, after: RecoveryCursor) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=reason, cursor=after.model_dump_json())
