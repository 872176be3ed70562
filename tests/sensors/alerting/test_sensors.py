"""Failed runs and failed checks reach the hook: those of the stream, once each."""

from collections.abc import Iterator

import dagster as dg
import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.resources.names import ACT_TAG, ACTS_ON_TAG, STREAM_TAG, checkpoint_key
from laminar_core.sensors.alerting.alerts import Alert
from laminar_core.sensors.alerting.sensors import (
    build_check_failure_sensor,
    build_run_failure_sensor,
    stream_of_run,
)
from laminar_core.sensors.policy import AlertPolicy
from tests.sensors.streams import STREAM, Ticks

HEARD: list[Alert] = []
POLICY = AlertPolicy(hook=f"{__name__}:hear")
KEY = checkpoint_key(STREAM)
DRILL = {ACT_TAG: "drill", ACTS_ON_TAG: STREAM}


def hear(alert: Alert) -> None:
    HEARD.append(alert)


@pytest.fixture(autouse=True)
def _nothing_heard() -> Iterator[None]:
    HEARD.clear()
    yield
    HEARD.clear()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@dg.op
def breaks() -> None:
    raise dg.Failure("the store is full")


def judges(*, passed: bool) -> dg.OpDefinition:
    @dg.op
    def judge(context: dg.OpExecutionContext) -> None:
        verdict = dg.AssetCheckEvaluation(KEY, "restorable", passed=passed, metadata={})
        context.log_event(verdict)  # pyright: ignore[reportArgumentType]
        raise dg.Failure("the drill failed")

    return judge


def failing_job(name: str, tags: dict[str, str], op: dg.OpDefinition = breaks) -> dg.JobDefinition:
    @dg.job(name=name, tags=tags)
    def job() -> None:
        op()

    return job


def tell_of(instance: dg.DagsterInstance, job: dg.JobDefinition) -> dg.DagsterRun:
    """Execute a job that fails, and call the sensor as the daemon does."""
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    event = result.get_run_failure_event()
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    sensor = build_run_failure_sensor({STREAM: POLICY}, ManualClock())
    context = dg.build_run_status_sensor_context(
        sensor_name=sensor.name, dagster_event=event, dagster_instance=instance, dagster_run=run
    ).for_run_failure()
    sensor(context)
    return run


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("laminar_rollback", {}),
        ("a_job_of_their_own", {ACTS_ON_TAG: STREAM}),
        ("a_job_of_their_own", {STREAM_TAG: STREAM}),
    ],
)
def test_a_failed_run_of_the_stream_is_reported(
    instance: dg.DagsterInstance, name: str, tags: dict[str, str]
) -> None:
    run = tell_of(instance, failing_job(name, tags))
    (alert,) = HEARD
    assert alert.title == f"{STREAM}: {name} failed"
    assert alert.run_id == run.run_id
    assert alert.runbook.endswith("#run-failed")


@pytest.mark.parametrize("name", ["laminar_rollback", f"{STREAM}_archive"])
def test_a_failed_run_of_another_is_not(instance: dg.DagsterInstance, name: str) -> None:
    tell_of(instance, failing_job(name, {ACTS_ON_TAG: "slippage"}))
    assert HEARD == []


def test_a_run_that_failed_by_its_check_is_alerted_as_the_check(
    instance: dg.DagsterInstance,
) -> None:
    """Goal: a drill that does not pass is one alert; one that breaks down is its own."""
    tell_of(instance, failing_job("laminar_drill", DRILL, judges(passed=False)))
    assert HEARD == []
    tell_of(instance, failing_job("laminar_drill", DRILL))
    tell_of(instance, failing_job("laminar_drill", DRILL, judges(passed=True)))
    assert [alert.title for alert in HEARD] == [f"{STREAM}: laminar_drill failed"] * 2


def test_a_recovery_of_something_damaged_is_reported(instance: dg.DagsterInstance) -> None:
    tell_of(instance, failing_job("laminar_recover", {ACT_TAG: "recover"}, judges(passed=False)))
    assert len(HEARD) == 1


def test_a_materialisation_by_hand_is_of_the_stream() -> None:
    run = dg.DagsterRun(job_name="__ASSET_JOB", asset_selection={dg.AssetKey([STREAM, "output"])})
    assert stream_of_run(run, ["orders", STREAM]) == STREAM
    assert stream_of_run(run, ["slippage"]) is None


# --- checks ---------------------------------------------------------------------------------------


def checked(passed: dict[str, bool]) -> dg.Definitions:
    """Two checks of the checkpoints, of which one is severe; and one of another stream."""
    severities = {"severe": dg.AssetCheckSeverity.ERROR, "mild": dg.AssetCheckSeverity.WARN}

    def check(key: dg.AssetKey, name: str) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=key, name=name)
        def judge() -> dg.AssetCheckResult:
            severity = severities[name]
            return dg.AssetCheckResult(
                passed=passed[name], severity=severity, description="two parts are damaged"
            )

        return judge

    other = dg.AssetKey(["slippage", "checkpoint"])
    return dg.Definitions(
        assets=[dg.AssetSpec(KEY), dg.AssetSpec(other)],
        asset_checks=[check(KEY, "severe"), check(KEY, "mild"), check(other, "severe")],
        jobs=[dg.define_asset_job("checks", dg.AssetSelection.all_asset_checks())],
    )


def evaluated(passed: bool, partition: str | None) -> dg.AssetCheckEvaluation:  # noqa: FBT001
    return dg.AssetCheckEvaluation(
        asset_key=KEY,
        check_name="severe",
        passed=passed,
        metadata={},
        severity=dg.AssetCheckSeverity.ERROR,
        partition=partition,
    )


class Checks:
    """Evaluates the checks, and the sensor that hears of them."""

    def __init__(self, instance: dg.DagsterInstance, policy: AlertPolicy = POLICY) -> None:
        self.passed = {"severe": True, "mild": True}
        self.definitions = checked(self.passed)
        sensor = build_check_failure_sensor({STREAM: policy}, ManualClock())
        self.ticks = Ticks(instance, sensor, "nowhere", self.definitions)

    def run(self, **passed: bool) -> None:
        self.passed |= passed
        job = self.definitions.resolve_job_def("checks")
        job.execute_in_process(instance=self.ticks.instance, raise_on_error=False)

    def report(self, *, passed: bool, partition: str | None = None) -> None:
        """As a sensor or somebody by hand does, without a run."""
        self.ticks.instance.report_runless_asset_event(evaluated(passed, partition))

    def verify(self, partition: str, *, passed: bool) -> None:
        """A run that evaluates the check of one partition."""

        @dg.op
        def verify(context: dg.OpExecutionContext) -> None:
            evaluation = evaluated(passed, partition)
            context.log_event(evaluation)  # pyright: ignore[reportArgumentType]

        @dg.job
        def verify_job() -> None:
            verify()

        verify_job.execute_in_process(instance=self.ticks.instance)


def test_a_severe_failure_is_reported_once(instance: dg.DagsterInstance) -> None:
    checks = Checks(instance)
    assert checks.ticks.tick() == "2 checks, since the last look: none failed severely"
    checks.run(severe=False, mild=False)
    assert checks.ticks.tick() == "2 checks, since the last look: check severe failed"
    checks.ticks.tick()
    (alert,) = HEARD
    assert alert.text == f"severe of {STREAM}/checkpoint: two parts are damaged"
    assert alert.severity == "error"


def test_it_is_reported_again_when_it_has_passed_in_between(instance: dg.DagsterInstance) -> None:
    checks = Checks(instance)
    checks.ticks.tick()
    for severe in (False, False, True, False):
        checks.run(severe=severe)
        if not severe:  # It passes between two ticks: no tick sees that.
            checks.ticks.tick()
    assert len(HEARD) == 2


def test_evaluations_of_a_failure_that_lasts_are_one_alert(instance: dg.DagsterInstance) -> None:
    """Goal: a job that is late all night raises one alert, though its check runs each half hour."""
    checks = Checks(instance)
    checks.ticks.tick()
    for _ in range(25):  # More than a tick looks at.
        checks.report(passed=False)
        checks.run(severe=False)
        checks.ticks.tick()
    assert len(HEARD) == 1
    checks.ticks.cursor = "lost"
    checks.ticks.tick()
    checks.run(severe=False)
    checks.ticks.tick()
    assert len(HEARD) == 1


def test_each_partition_fails_and_passes_on_its_own(instance: dg.DagsterInstance) -> None:
    checks = Checks(instance)
    checks.ticks.tick()
    for passed, partition in ((False, "41"), (False, "42"), (True, "41"), (False, "42")):
        checks.verify(partition, passed=passed)
        checks.ticks.tick()
    assert [alert.title.split()[4] for alert in HEARD] == ["41", "42"]
    checks.verify("41", passed=False)
    checks.ticks.tick()
    assert len(HEARD) == 3


def test_a_hook_that_cannot_be_imported_is_said_at_once(instance: dg.DagsterInstance) -> None:
    checks = Checks(instance, AlertPolicy(hook="my_team.alerts:notify"))
    assert checks.ticks.tick() == (
        "2 checks, since the last look: none failed severely; hook my_team.alerts:notify cannot be "
        "imported: ModuleNotFoundError: No module named 'my_team'"
    )


def test_what_failed_before_the_first_look_is_not_reported(instance: dg.DagsterInstance) -> None:
    checks = Checks(instance)
    checks.run(severe=False)
    checks.ticks.tick()
    assert HEARD == []


def test_a_failure_that_a_sensor_reported_raises_an_alert_too(instance: dg.DagsterInstance) -> None:
    checks = Checks(instance)
    checks.ticks.tick()
    checks.report(passed=False, partition="0000000042")
    assert checks.ticks.tick().endswith("check severe of 42 failed")
