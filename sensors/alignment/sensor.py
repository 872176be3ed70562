"""The sensor that switches to unaligned checkpoints under pressure, and back.

It reads facts from the store and from Dagster, makes a pure decision, and requests it as a run of
``laminar_mode``: one run per change. While it is in progress, and for the cooldown after it, no
other is requested.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from dataclasses import replace

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import (
    ACTS_ON_TAG,
    GROUP,
    STREAM_FIELD,
    job_name,
    sensor_name,
)
from laminar_core.sensors.alerting.alerts import raise_new_alerts
from laminar_core.sensors.alignment.decision import (
    AlignmentFacts,
    Change,
    ModeRun,
    decide_alignment,
    find_emergency,
)
from laminar_core.sensors.alignment.facts import Remembered, read_alignment_facts
from laminar_core.sensors.background import BackgroundReads, Unanswered
from laminar_core.sensors.cursor import AlertCursor
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.rounds import Policies, StreamTick, described, make_round
from laminar_core.sensors.run_records import newest_run


class AlignmentCursor(AlertCursor):
    """The state of the sensor between ticks; losing it only costs time."""

    seen: Remembered = Remembered()


def build_alignment_sensor(
    policies: Policies,
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
    *,
    group: str = GROUP,
) -> dg.SensorDefinition:
    """Build the sensor that changes the mode of these streams' checkpoints."""
    timer, job = clock or SystemClock(), job_name("mode", group)
    streams = make_round(
        "alignment",
        policies,
        lambda stream, own: _Tick(stream, policies[stream], timer, own, job),
        clock,
        reads,
    )

    @dg.sensor(
        name=sensor_name("alignment", group),
        job_name=job,
        minimum_interval_seconds=1,  # The daemon looks every five seconds at best.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Lets barriers overtake while checkpoints of {described(list(policies))} "
        "align for longer than alignment_act (p99), and no longer than that.",
    )
    def watch_alignment(
        context: dg.SensorEvaluationContext, laminar_checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        return streams.run(context, lambda tick, part: tick.run(part, laminar_checkpoints))

    return watch_alignment


class _Tick:
    def __init__(
        self, stream: str, policy: AlertPolicy, clock: Clock, reads: BackgroundReads, job: str
    ) -> None:
        self._stream, self._policy = stream, policy
        self._clock, self.reads, self._job = clock, reads, job

    def run(self, context: StreamTick, checkpoints: CheckpointStoreResource) -> dg.SensorResult:
        cursor = AlignmentCursor.read(context.cursor)
        window = max(self._policy.alignment_window, self._policy.calm_checkpoints)
        try:
            store = checkpoints.open(self._stream)
            facts, seen = self.reads.read(
                "facts", lambda: read_alignment_facts(store, cursor.seen, window)
            )
        except Unanswered as error:
            return dg.SensorResult(skip_reason=f"no facts: {error}", cursor=context.cursor)
        facts = replace(facts, request=self._newest_request(context.instance))
        alerted = self._alert(context, facts, cursor)
        after = AlignmentCursor(seen=seen, told=alerted).model_dump_json()
        decision = decide_alignment(facts, self._policy)
        if isinstance(decision, Change):
            context.log.info("%s: %s", decision.mode, decision.reason)
            return dg.SensorResult(run_requests=[self._request(facts, decision)], cursor=after)
        return dg.SensorResult(skip_reason=decision.reason, cursor=after)

    def _alert(
        self, context: StreamTick, facts: AlignmentFacts, cursor: AlignmentCursor
    ) -> tuple[str, ...]:
        found, now_ms = find_emergency(facts, self._policy), self._clock.now_ms()
        return raise_new_alerts(self._stream, found, cursor.told, self._policy, context.log, now_ms)

    def _newest_request(self, instance: dg.DagsterInstance) -> ModeRun | None:
        run = newest_run(instance, self._stream, "mode", self._clock.now_ms())
        if run is None:
            return None
        # One that was created and not submitted is Dagster's to resume; or it never comes to be.
        in_progress = run.status == "in progress" and not run.hangs
        return ModeRun(run.run_id, in_progress, max(run.created_ms_ago, 0))

    def _request(self, facts: AlignmentFacts, change: Change) -> dg.RunRequest:
        mode: dict[str, object] = {change.mode: {}}
        form = {STREAM_FIELD: self._stream, "mode": mode, "reason": change.reason}
        command = f"{facts.generation}:{facts.claimed_at_ms}:{facts.mode.number}"
        request = f"{command}:{facts.newest_id}:{change.mode}"
        return dg.RunRequest(
            run_key=f"{self._stream}:mode:{request}",
            job_name=self._job,
            run_config={"ops": {self._job: {"config": form}}},
            tags={ACTS_ON_TAG: self._stream},
        )
