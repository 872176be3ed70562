"""The sensor that switches to unaligned checkpoints under pressure, and back.

It reads facts from the store and from Dagster, makes a pure decision, and requests it as a run of
``{stream}_mode``: one run per change. While it is in progress, and for the cooldown after it, no
other is requested.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from dataclasses import replace

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import ACTS_ON_TAG, job_name
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
from laminar_core.sensors.run_records import newest_run


class AlignmentCursor(AlertCursor):
    """The state of the sensor between ticks; losing it only costs time."""

    seen: Remembered = Remembered()


def build_alignment_sensor(
    stream: str,
    policy: AlertPolicy,
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
) -> dg.SensorDefinition:
    """Build the sensor that changes the mode of ``stream``'s checkpoints."""
    tick = _Tick(stream, policy, clock or SystemClock(), reads or BackgroundReads())

    @dg.sensor(
        name=f"{stream}_alignment",
        job_name=job_name(stream, "mode"),
        minimum_interval_seconds=1,  # The daemon looks every five seconds at best.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Lets barriers overtake while checkpoints of {stream} align for longer than "
        f"{policy.alignment_act} (p99), and no longer than that.",
    )
    def watch_alignment(
        context: dg.SensorEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        return tick.run(context, checkpoints)

    return watch_alignment


class _Tick:
    def __init__(
        self, stream: str, policy: AlertPolicy, clock: Clock, reads: BackgroundReads
    ) -> None:
        self._stream, self._policy = stream, policy
        self._clock, self._reads = clock, reads

    def run(
        self, context: dg.SensorEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        cursor = AlignmentCursor.read(context.cursor)
        window = max(self._policy.alignment_window, self._policy.calm_checkpoints)
        try:
            store = checkpoints.open(self._stream)
            facts, seen = self._reads.read(
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
        self, context: dg.SensorEvaluationContext, facts: AlignmentFacts, cursor: AlignmentCursor
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
        mode = job_name(self._stream, "mode")
        command = f"{facts.generation}:{facts.claimed_at_ms}:{facts.mode.number}"
        request = f"{command}:{facts.newest_id}:{change.mode}"
        return dg.RunRequest(
            run_key=f"{self._stream}:mode:{request}",
            job_name=mode,
            run_config={"ops": {mode: {"config": {"mode": change.mode, "reason": change.reason}}}},
            tags={ACTS_ON_TAG: self._stream},
        )
