"""The stream's own jobs accept the requests of the sensors."""

import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.configuration import RecoveryOptions
from laminar_core.host.clock import ManualClock
from laminar_core.orchestration.factory import laminar_definitions
from laminar_core.orchestration.spec import CheckpointPolicy, StreamSpec
from laminar_core.resources import DetachedDriver, SparkDriverClient
from laminar_core.resources.names import GroupSensor, sensor_name
from laminar_core.sensors.policy import AlertPolicy
from tests.sensors.streams import STREAM, Checkpoints, Job, Ticks, stored_job

SPEC = StreamSpec(
    name=STREAM,
    program=Path(__file__),
    alerts=AlertPolicy(source_keeps="1 hour", source_margin="30 minutes"),
    laminar=(sys.executable, "-c", "raise SystemExit"),
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return stored_job(tmp_path)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def ticks_of(
    instance: dg.DagsterInstance, job: Job, name: GroupSensor, spec: StreamSpec = SPEC
) -> Ticks:
    """One of the sensors of the stream, among all of its definitions."""
    definitions = dg.Definitions.merge(
        laminar_definitions(spec),
        dg.Definitions(
            resources={
                "laminar_checkpoints": Checkpoints(uri=job.store.objects.uri),
                "laminar_driver": SparkDriverClient(),
                "laminar_launcher": DetachedDriver(),
            }
        ),
    )
    sensor = definitions.resolve_sensor_def(sensor_name(name))
    return Ticks(instance, sensor, job.store.objects.uri, definitions)


def request_of(instance: dg.DagsterInstance, job: Job, name: GroupSensor) -> dg.RunRequest:
    """Return the request of one tick of a sensor; its config fits the job."""
    ticks = ticks_of(instance, job, name)
    (request,) = list(ticks.evaluate().run_requests or ())
    assert request.job_name is not None
    wanted = ticks.definitions.resolve_job_def(request.job_name)
    assert dg.validate_run_config(wanted, request.run_config)
    assert ticks.sensor.default_status == dg.DefaultSensorStatus.RUNNING
    return request


def test_a_death_is_answered_by_the_recovery_job(instance: dg.DagsterInstance, job: Job) -> None:
    job.claim_by_the_dead()
    job.complete()
    request = request_of(instance, job, "recovery")
    assert request.job_name == "laminar_recover"
    assert request.run_config["ops"]["laminar_recover"]["config"]["restore"] == {
        "checkpoint": {"number": 1}
    }


def test_a_death_without_checkpoints_by_a_start(instance: dg.DagsterInstance, job: Job) -> None:
    job.claim_by_the_dead()
    assert request_of(instance, job, "recovery").job_name == "laminar_start"


def test_slow_barriers_by_the_mode_job(instance: dg.DagsterInstance, job: Job) -> None:
    job.claim()
    job.beat()
    job.complete(alignment_ms=40_000)
    assert request_of(instance, job, "alignment").job_name == "laminar_mode"


def test_a_stream_that_is_never_to_be_unaligned_is_not_flipped(
    instance: dg.DagsterInstance, job: Job
) -> None:
    job.claim()
    job.beat()
    job.complete(alignment_ms=40_000)
    never = SPEC.model_copy(update={"checkpoints": CheckpointPolicy(alignment="aligned")})
    assert (
        ticks_of(instance, job, "alignment", never).tick().endswith("flip is off for this stream")
    )


def test_a_source_that_forgets_by_the_checkpoint_job(
    instance: dg.DagsterInstance, job: Job
) -> None:
    job.claim()
    job.clock = ManualClock(job.clock.now_ms() - 2 * 3_600_000)
    job.complete()
    assert request_of(instance, job, "source_retention").job_name == "laminar_checkpoint"


@pytest.mark.parametrize(("start_timeout", "minutes"), [("10 minutes", 20), ("1 hour", 120)])
def test_what_starts_the_driver_may_take_as_long_as_the_stream_says(
    instance: dg.DagsterInstance,
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    start_timeout: str,
    minutes: int,
) -> None:
    monkeypatch.setattr("laminar_core.sensors.recovery.sensor.SystemClock", lambda: job.clock)
    job.claim_by_the_dead()
    job.complete()
    patient = SPEC.model_copy(update={"recovery": RecoveryOptions(start_timeout=start_timeout)})
    ticks = ticks_of(instance, job, "recovery", patient)
    ticks.tick(dg.DagsterRunStatus.STARTED)
    job.clock.wait_ms((minutes - 1) * 60_000)
    assert ticks.tick().endswith("is under way")
    job.clock.wait_ms(2 * 60_000)
    assert ticks.tick().startswith("it is dead, and a run hangs: ")


@pytest.mark.parametrize("then", ["it never ran", "it runs", "it was stopped", "it died"])
def test_every_tick_says_why_or_asks_for_a_run(instance, job: Job, then: str) -> None:
    """Goal: no line of a tick list is empty."""
    if then != "it never ran":
        job.claim_by_the_dead() if then == "it died" else job.claim()
        job.complete()
        job.beat()
    if then == "it was stopped":
        job.store.generations.end(job.generation, "stopped", "")
    definitions = ticks_of(instance, job, "recovery").definitions
    sensors = {sensor.name: sensor for sensor in definitions.sensors or ()}
    del sensors["laminar_run_failures"]  # It is about one run each time.
    for name, sensor in sensors.items():
        assert isinstance(sensor, dg.SensorDefinition)
        result = Ticks(instance, sensor, job.store.objects.uri, definitions).evaluate()
        said = result.skip_reason
        assert result.run_requests or (said is not None and said.skip_message), name
