"""A report names everything that is in the way; looking changes nothing."""

import json
from dataclasses import replace

import pytest

from laminar_core.driver.events import CheckpointCompleted, ignore
from laminar_core.driver.recovery.report import RecoveryReport, SourceReport, rows_to_replay
from laminar_core.driver.recovery.start import RecoveryManager
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
)
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.audit_log import AuditLog
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import Job, payments
from laminar_core.testing.ledger import Ledger
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.scenarios import fan_out_job, windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.simulated.simulated_jobs import never_ending_job

OFTEN = CoordinatorConfig(interval_ms=10)


def interrupted(job: Job | None = None, checkpoints: int = 3) -> tuple[Job, Simulation]:
    """A job whose driver was killed after so many checkpoints."""
    job = job or windows_job(2, pace=300)
    simulation = Simulation(job.plan, checkpoint=OFTEN, objects=SimulatedDisk())
    simulation.when(CheckpointCompleted, simulation.kill_driver, checkpoints)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return job, simulation


def examine(simulation: Simulation, plan: Plan | None = None, **options: object) -> RecoveryReport:
    """Return what a start would do; the store stays as it is."""
    store = simulation.store
    before = {key: store.objects.get(key) for key in store.objects.list("")}
    manager = RecoveryManager(
        plan or simulation.plan,
        replace(simulation.options, **options),
        store,
        simulation.world.clock,
        ignore,
        AuditLog(store.objects, store.paths, simulation.world.clock.now_ms),
    )
    report = manager.examine().report
    assert {key: store.objects.get(key) for key in store.objects.list("")} == before
    return report


def codes(report: RecoveryReport) -> list[ErrorCode]:
    return [problem.code for problem in report.problems]


class TestWhatFits:
    def test_a_restore_names_the_checkpoint_and_what_goes_on(self):
        _, simulation = interrupted()
        newest = simulation.store.manifests.ids()[-1]
        report = examine(simulation)
        manifest = simulation.store.manifests.read(newest)
        assert (report.verdict, report.exit_code, report.problems) == ("restore", 0, ())
        assert report.checkpoint.checkpoint_id == newest
        assert report.checkpoint.size_bytes == manifest.size_bytes
        assert report.checkpoint.workers == report.workers == 2
        assert report.checkpoint.age_ms >= 0
        assert [o.operator_id for o in report.operators] == list(simulation.plan.descriptions())
        assert {o.status for o in report.operators} <= {"restored", "empty"}
        (source,) = report.sources
        assert source.splits == 3
        assert source.rows_read > 0
        assert source.rows_read + source.rows_left == 120

    def test_a_job_that_never_had_a_checkpoint_starts_fresh(self):
        job = windows_job(2)
        report = examine(Simulation(job.plan))
        assert (report.verdict, report.exit_code, report.checkpoint) == ("fresh", 0, None)
        assert report.sources == (SourceReport("in", 3, 0, 120),)

    def test_output_that_would_be_committed_and_withdrawn_is_reported(self):
        job, simulation = interrupted()
        simulation.run()
        assert examine(simulation).sinks[0].is_withdrawn is False
        report = examine(simulation, restore_id=1)
        assert report.sinks[0].is_withdrawn
        assert report.sinks[0].visible_id in report.committed_beyond_ids
        last = simulation.store.manifests.ids()[-1]
        simulation.objects.delete(simulation.store.paths.commit(last))
        assert examine(simulation).redriven_ids == (last,)
        job.check()

    def test_it_is_plain_json(self):
        _, simulation = interrupted()
        plan = replace(simulation.plan, max_parallelism=64)
        said = json.loads(json.dumps(examine(simulation, plan).as_dict()))
        assert said["verdict"] == "refuse"
        assert said["exit_code"] == said["problems"][0]["exit_code"] == 2
        assert said["checkpoint"]["checkpoint_id"] > 0


class TestWhatDoesNot:
    def test_each_rejected_one_has_its_reason(self):
        _, simulation = interrupted()
        newest = simulation.store.manifests.ids()[-1]
        simulation.objects.put(simulation.store.paths.manifest(newest), b"rot")
        report = examine(simulation)
        assert report.checkpoint.checkpoint_id == newest - 1
        assert [(r.checkpoint_id, "no JSON" in r.reason) for r in report.rejected] == [
            (newest, True)
        ]

    def test_everything_that_is_in_the_way_is_named_at_once(self):
        """Another window, a source that lost rows, and parts that are gone."""
        job, simulation = interrupted(fan_out_job(2), checkpoints=2)
        store = simulation.store
        store.objects.delete(store.paths.commit(2))
        for ledger in job.ledgers.values():
            ledger.load(Ledger())
        other = fan_out_job(2)
        shorter = MemorySource(payments(rows=1))
        windows = other.plan.vertices
        changed = tuple(
            replace(v, source=replace(v.source, source=shorter)) if v.source else v for v in windows
        )
        report = examine(simulation, replace(other.plan, vertices=changed))
        assert report.verdict == "refuse"
        assert codes(report) == [
            ErrorCode.OPERATORS_CHANGED,
            ErrorCode.SOURCE_CHANGED,
            ErrorCode.TRANSACTION_LOST,
            ErrorCode.TRANSACTION_LOST,
            ErrorCode.TRANSACTION_LOST,
        ]
        assert [o.operator_id for o in report.operators if o.status == "unmapped"] == ["in"]
        assert "rows are lost" in report.sources[0].problem
        assert {gap.why for gap in report.sources[0].gaps} == {"truncated"}
        with pytest.raises(IncompatibleStateError, match=r"and 4 more: `laminar recover"):
            report.raise_problem()

    def test_state_of_an_operator_that_is_gone_does_not_map(self):
        _, simulation = interrupted()
        report = examine(simulation, windows_job(2, "sums").plan)
        assert {o.operator_id: o.status for o in report.operators} == {
            "in": "restored",
            "watermark-1": "restored",
            "sums-combine": "new",
            "sums": "new",
            "out": "restored",
            "totals-combine": "empty",
            "totals": "unmapped",
        }
        assert ErrorCode.OPERATORS_CHANGED in codes(report)

    def test_output_of_another_run_is_in_the_way_of_a_fresh_start(self):
        job, simulation = interrupted()
        simulation.run()
        other = Simulation(job.plan)
        assert codes(examine(other)) == [ErrorCode.INVALID_OPTION]
        assert examine(other, allow_fresh=True).verdict == "fresh"

    @pytest.mark.parametrize(
        ("options", "error", "code"),
        [
            ({"restore_id": 77}, ConfigurationError, ErrorCode.NO_SUCH_CHECKPOINT),
            ({"restore_before_ms": 1}, CorruptCheckpointError, ErrorCode.NO_RESTORABLE_CHECKPOINT),
            ({"restore_id": 2}, CorruptCheckpointError, ErrorCode.NO_RESTORABLE_CHECKPOINT),
        ],
    )
    def test_what_was_asked_for_and_cannot_be_had(self, options, error, code):
        _, simulation = interrupted()
        simulation.objects.put(simulation.store.paths.manifest(2), b"rot")
        report = examine(simulation, **options)
        assert codes(report) == [code]
        with pytest.raises(error):
            report.raise_problem()

    def test_that_nothing_is_old_enough_is_said_with_the_time(self):
        _, simulation = interrupted()
        report = examine(simulation, restore_before_ms=1_000)
        assert codes(report) == [ErrorCode.NO_SUCH_CHECKPOINT]
        assert "1970-01-01T00:00:01.000+00:00" in str(report.problems[0])


@pytest.mark.parametrize(
    ("progress", "rows"), [({}, None), ({"rows_in": 70}, 20), ({"rows_in": 30}, 0)]
)
def test_rows_to_replay_are_those_read_since(progress, rows):
    assert rows_to_replay(progress, (SourceReport("a", 1, 40), SourceReport("b", 1, 10))) == rows


def test_the_heartbeat_says_how_far_the_last_run_was() -> None:
    job = never_ending_job()
    simulation = Simulation(job.plan, checkpoint=CoordinatorConfig(interval_ms=1_000))
    simulation.world.later(20_000, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    assert examine(simulation).rows_to_replay == 0
    assert simulation.store.generations.read_heartbeat(1).progress["rows_in"] == 120
    report = examine(simulation, restore_id=1)
    read = sum(source.rows_read for source in report.sources)
    assert report.rows_to_replay == 120 - read
