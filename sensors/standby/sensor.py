"""The sensor that keeps a standby of each stream that wants one."""

# Dagster's decorators and metadata are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.launcher import DriverLauncher
from laminar_core.resources.names import GROUP, asset_key, sensor_name
from laminar_core.sensors.alerting.alerts import raise_new_alerts
from laminar_core.sensors.background import BackgroundReads, Unanswered
from laminar_core.sensors.cursor import AlertCursor
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.rounds import Policies, StreamTick, described, make_round
from laminar_core.sensors.standby.decision import Deaths, standby_incidents
from laminar_core.sensors.standby.keeper import JobFacts, WantedStandby, keep_standby, read_job

STANDBY = "standby"
"""Metadata of an observation of the deployment: the stream's standby in one line."""

Wanted = Callable[[str], WantedStandby]
"""The standby of a stream, for the URI of a store."""


class StandbyCursor(AlertCursor):
    """The state of the sensor between ticks; losing it only costs time."""

    job: JobFacts = JobFacts()
    deaths: Deaths = Deaths()
    line: str = ""
    """The reported line."""


def build_standby_sensor(
    policies: Policies,
    wanted: Mapping[str, Wanted],
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
    *,
    group: str = GROUP,
) -> dg.SensorDefinition:
    """Build the sensor; streams that are not in ``wanted`` get no standby, and lose theirs."""
    timer = clock or SystemClock()

    def part(stream: str, own: BackgroundReads) -> _Tick:
        return _Tick(stream, policies[stream], wanted.get(stream), group, timer, own)

    streams = make_round("standby", policies, part, clock, reads)

    @dg.sensor(
        name=sensor_name("standby", group),
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Keeps a standby of {described(list(policies))}, if the stream wants one.",
    )
    def keep_standbys(
        context: dg.SensorEvaluationContext,
        laminar_checkpoints: CheckpointStoreResource,
        laminar_launcher: DriverLauncher,
    ) -> dg.SensorResult:
        return streams.run(
            context, lambda tick, part: tick.run(part, laminar_checkpoints, laminar_launcher)
        )

    return keep_standbys


@dataclass(frozen=True, slots=True)
class _Tick:
    stream: str
    policy: AlertPolicy
    wanted: Wanted | None
    group: str
    clock: Clock
    reads: BackgroundReads

    def run(
        self, context: StreamTick, checkpoints: CheckpointStoreResource, launcher: DriverLauncher
    ) -> dg.SensorResult:
        folder = launcher.standbys(self.stream)
        if folder is None and self.wanted is not None:
            raise dg.Failure(
                f"{type(launcher).__name__} keeps no standbys, because what it starts is started "
                f"again elsewhere: remove standby from the stream {self.stream}",
                allow_retries=False,
            )
        if folder is None or (self.wanted is None and not folder.living()):
            return dg.SensorResult(skip_reason="no standby is wanted", cursor="{}")
        before, now_ms = StandbyCursor.read(context.cursor), self.clock.now_ms()
        job, wanted = JobFacts(), None
        if self.wanted is not None:
            wanted = self.wanted(checkpoints.uri)
        try:  # Also for one that is to end: it may be the driver.
            store = checkpoints.open(self.stream)
            job = self.reads.read("job", partial(read_job, store, before.job))
        except Unanswered as error:
            return dg.SensorResult(skip_reason=f"no facts: {error}", cursor=context.cursor)
        kept = keep_standby(folder, wanted, job, before.deaths, now_ms, group=self.group)
        incidents = standby_incidents(kept.deaths, kept.log)
        told = raise_new_alerts(
            self.stream, incidents, before.told, self.policy, context.log, now_ms
        )
        after = StandbyCursor(told=told, job=job, deaths=kept.deaths, line=kept.line)
        return dg.SensorResult(
            skip_reason=kept.line,
            asset_events=self._events(before.line, kept.line),
            cursor=after.model_dump_json(),
        )

    def _events(self, before: str, line: str) -> Sequence[dg.AssetObservation]:
        if line == before:
            return []
        key = asset_key(self.stream, "deployment")
        return [dg.AssetObservation(key, metadata={STANDBY: line})]
