"""Each declared check, run as Dagster runs it, against stores with one thing wrong."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from laminar_core.orchestration.assets import asset_definitions
from laminar_core.orchestration.checks import CHECKS, check_definitions
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.spec import SchedulePolicy, StreamSpec
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient
from laminar_core.sensors.observer.sensor import build_checkpoint_reporter
from laminar_core.sensors.policy import AlertPolicy
from tests.sensors.observed import write_down
from tests.sensors.streams import STREAM, Job, mark_damaged, stored_job
from tests.store.stores import commit, damage

NAMES = {check.name for check in CHECKS}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.claim()
    return job


class Checks:
    """The checks of one stream, and what the last run of them said."""

    def __init__(self, instance: dg.DagsterInstance, job: Job) -> None:
        self.instance, self.job, self.uri = instance, job, job.store.objects.uri
        self.said: dict[str, dg.AssetCheckEvaluation] = {}

    def definitions(self, **policy: Any) -> dg.Definitions:
        spec = StreamSpec(name=STREAM, program=Path("none.py"), alerts=AlertPolicy(**policy))
        resources = {
            "laminar_checkpoints": CheckpointStoreResource(uri=self.uri),
            "laminar_driver": SparkDriverClient(),
            "laminar_launcher": DetachedDriver(),
        }
        return dg.Definitions.merge(
            asset_definitions(Group((spec,))),
            check_definitions(Group((spec,)), self.job.clock),
            dg.Definitions(resources=resources),
        )

    def run(self, **policy: Any) -> set[str]:
        """Run the job of the checks; returns which ones failed."""
        result = (
            self.definitions(**policy)
            .resolve_job_def("laminar_checks")
            .execute_in_process(instance=self.instance)
        )
        assert result.success
        self.said = {each.check_name: each for each in result.get_asset_check_evaluations()}
        assert set(self.said) == NAMES
        return {name for name, each in self.said.items() if not each.passed}

    def severity(self, name: str) -> str:
        return self.said[name].severity.value


@pytest.fixture
def checks(job: Job) -> Iterator[Checks]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Checks(instance, job)


def healthy(job: Job) -> None:
    write_down(job, "start-fresh", after={"generation": 1})
    write_down(job, "end", after={"generation": 1})
    for _ in range(3):
        commit(job.store, job.complete(), job.generation)
    job.drill()
    job.beat()


def test_nothing_is_wrong_with_a_job_that_is_well(job: Job, checks: Checks) -> None:
    healthy(job)
    assert checks.run(source_keeps="36500 days") == set()  # Its event time is that of 1970.


def test_a_job_that_never_ran_has_only_never_been_drilled(tmp_path: Path, checks: Checks) -> None:
    checks.uri = stored_job(tmp_path / "new").store.objects.uri
    assert checks.run(source_keeps="7 days") == {"restorable", "running"}


@pytest.mark.parametrize(
    ("age_ms", "failed"),
    [
        (29_000, set()),
        (59_000, {"running"}),
        (11 * 60_000, {"running", "freshness"}),
        (2 * 86_400_000 + 60_000, {"running", "freshness", "restorable"}),
    ],
)
def test_time_alone_turns_checks_red(job: Job, checks: Checks, age_ms: int, failed) -> None:
    healthy(job)
    job.clock.wait_ms(age_ms)
    assert checks.run() == failed


@pytest.mark.parametrize(("outcome", "failed"), [("failed", {"freshness"}), ("stopped", set())])
def test_a_job_that_starts_again_and_again_is_not_fresh(job, checks, outcome: str, failed) -> None:
    """Goal: a restart is no checkpoint; to start a job that somebody stopped is a beginning."""
    healthy(job)
    for _ in range(10):
        job.clock.wait_ms(70_000)
        job.store.generations.end(job.generation, outcome, "so it is")
        job.claim(base=3)
    job.beat()
    assert checks.run() == failed


def test_each_thing_that_is_wrong_is_found_by_its_own_check(job: Job, checks: Checks) -> None:
    healthy(job)
    for _ in range(3):
        job.complete(alignment_ms=5_000, inflight_rows=10)
    job.clock.wait_ms(120_000)
    job.beat()
    damage(job.store, job.store.paths.audit_record(1), "missing")
    assert checks.run(inflight_share_max=0.0, source_keeps="1 hour", source_margin="2 hours") == {
        *("alignment_p99", "inflight_share", "sink_transactions", "audit_chain"),
        "source_retention",
    }
    assert checks.severity("audit_chain") == "ERROR"
    assert checks.severity("alignment_p99") == "WARN"
    assert checks.said["sink_transactions"].metadata["uncommitted"].value == 3


@pytest.mark.parametrize(("minutes", "severity"), [(1, None), (11, "WARN"), (15, "ERROR")])
def test_output_that_expires_while_the_driver_is_down(
    job: Job, checks: Checks, minutes: int, severity: str | None
) -> None:
    healthy(job)
    job.claim_by_the_dead(base=3)
    expires_at_ms = job.clock.now_ms() + 15 * 60_000
    job.complete(offered=({"name": "a", "expires_at_ms": expires_at_ms},))
    job.clock.wait_ms(minutes * 60_000)
    assert ("sink_transactions" in checks.run(commit_age_max="1 hour")) == (severity is not None)
    said = checks.said["sink_transactions"]
    assert said.metadata["expires_in_s/sink"].value == (15 - minutes) * 60
    if severity is not None:
        assert said.severity.value == severity
        assert "output of checkpoint 4 in sink sink expire" in (said.description or "")


def test_the_headroom_of_a_source_is_judged_without_a_setting(job: Job, checks: Checks) -> None:
    healthy(job)
    job.beat(payments=SourceNumbers(headroom_checkpoint_id=1, headroom_rows=5, headroom_seconds=60))
    assert checks.run() == {"source_retention"}
    assert checks.severity("source_retention") == "WARN"
    said = checks.said["source_retention"]
    assert said.metadata["headroom_rows/payments"].value == 5
    assert "checkpoint 1, the oldest, can be restored for at least" in (said.description or "")
    assert checks.run(source_margin="1 second", source_keeps="36500 days") == set()


def test_a_short_limit_finds_a_chain(job: Job, checks: Checks, monkeypatch) -> None:
    healthy(job)
    monkeypatch.setattr(
        "laminar_core.sensors.observer.check_events.chain_lengths", lambda _: {"window[0]": 17}
    )
    assert checks.run() == {"chain_length"}


@pytest.mark.parametrize(
    ("then", "severity", "said"),
    [
        ("nothing", "WARN", "Being repaired"),
        ("the next checkpoint", "WARN", "Repaired: checkpoint 4"),
        ("ten minutes", "ERROR", "Not repaired"),
        ("a stop", "ERROR", "a restore goes back to checkpoint 2"),
        ("retention", None, "no completed checkpoint is known to lack a file"),
    ],
)
def test_lost_files_are_severe_only_if_nothing_heals_them(job, checks, then, severity, said):
    healthy(job)
    mark_damaged(job, 3)
    match then:
        case "the next checkpoint":
            commit(job.store, job.complete(), job.generation)
        case "ten minutes":
            job.clock.wait_ms(10 * 60_000 + 1)
        case "a stop":
            job.store.generations.end(job.generation, "stopped", "so it is")
        case "retention":
            job.store.objects.delete(job.store.paths.manifest(CheckpointId(3)))
    failed = checks.run()
    assert said in checks.said["files_present"].description
    if severity is None:
        assert "files_present" not in failed
    else:
        assert "files_present" in failed
        assert checks.severity("files_present") == severity


def test_what_retention_could_not_read_is_not_what_a_restore_needs(job, checks) -> None:
    """The newest one is damaged, so the one before counts.

    The audit log cannot vouch for itself meanwhile: the manifest may have named a deleted record.
    """
    healthy(job)
    job.clock.wait_ms(120_000)
    job.beat()
    newest = job.complete()
    damage(job.store, job.store.paths.manifest(CheckpointId(newest)), "torn")
    assert checks.run() == {"audit_chain"}


def test_a_store_that_cannot_be_asked_fails_every_check_with_the_reason(checks: Checks) -> None:
    checks.uri = "gopher://hole"
    assert checks.run() == NAMES
    assert all("gopher://hole" in each.description for each in checks.said.values())


def test_the_observer_says_what_the_declared_checks_say(job: Job, checks: Checks) -> None:
    healthy(job)
    for _ in range(3):
        job.complete(alignment_ms=5_000, inflight_rows=10)
    sensor = build_checkpoint_reporter({STREAM: AlertPolicy()}, job.clock)
    with dg.build_sensor_context(
        instance=checks.instance,
        sensor_name=sensor.name,
        definitions=dg.Definitions(sensors=[sensor]),
        resources={"laminar_checkpoints": CheckpointStoreResource(uri=job.store.objects.uri)},
    ) as context:
        result = sensor(context)
    told = [each for each in result.asset_events if isinstance(each, dg.AssetCheckEvaluation)]
    assert len(told) == 7
    checks.run()
    for each in told:
        same = checks.said[each.check_name]
        assert (each.passed, each.description) == (same.passed, same.description)
        assert each.severity == same.severity
        assert set(each.metadata) == set(same.metadata)
        assert each.asset_key == same.asset_key


def test_checks_are_of_the_assets_that_they_are_about(checks: Checks) -> None:
    keys = checks.definitions().resolve_asset_graph().asset_check_keys
    assert {(key.asset_key.path[-1], key.name) for key in keys} == {
        ("checkpoint", "manifest_integrity"),
        ("checkpoint", "alignment_p99"),
        ("checkpoint", "inflight_share"),
        ("checkpoint", "chain_length"),
        ("checkpoint", "files_present"),
        ("deployment", "freshness"),
        ("deployment", "running"),
        ("deployment", "attempts"),
        ("drill", "restorable"),
        ("audit", "audit_chain"),
        ("source", "source_retention"),
        ("output", "sink_transactions"),
    }


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("this", None),
        ("new", "the stream never ran"),
        ("gopher://hole", "the store could not be read"),
    ],
)
def test_they_run_on_a_schedule_if_there_is_something_to_judge(checks, tmp_path, store, said):
    if store != "this":
        checks.uri = str(tmp_path / store) if store == "new" else store
    (schedule,) = checks.definitions().schedules
    assert schedule.name == "laminar_checks_schedule"
    context = dg.build_schedule_context(
        instance=checks.instance,
        scheduled_execution_time=datetime(2026, 11, 21, 4, 30, tzinfo=UTC),
        resources={"laminar_checkpoints": CheckpointStoreResource(uri=checks.uri)},
    )
    answer = schedule.evaluate_tick(context)
    if said is None:
        (request,) = answer.run_requests
        assert request.run_key == "2026-11-21T04:30Z"
    else:
        assert said in answer.skip_message


def test_the_job_takes_what_its_schedule_asks_for(checks) -> None:
    definitions = checks.definitions()
    (schedule,) = definitions.schedules
    with dg.build_schedule_context(
        instance=checks.instance,
        scheduled_execution_time=datetime(2026, 11, 21, 4, 30, tzinfo=UTC),
        resources={"laminar_checkpoints": CheckpointStoreResource(uri=checks.uri)},
    ) as context:
        (request,) = schedule.evaluate_tick(context).run_requests
    job = definitions.resolve_job_def("laminar_checks")
    assert {key.name for key in request.asset_check_keys or ()} == NAMES
    part = job.get_subset(asset_check_selection=set(request.asset_check_keys))
    assert part.execute_in_process(instance=checks.instance).success


def test_a_schedule_without_a_time_is_none() -> None:
    spec = StreamSpec(name=STREAM, program=Path("none.py"), schedules=SchedulePolicy(checks=None))
    assert not check_definitions(Group((spec,))).schedules
