"""Sessions in whole jobs, however state is written, and read where the operator is not at hand."""

from dataclasses import replace
from itertools import pairwise

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.operators.sessions import SESSIONS
from laminar_core.plan.state_options import SnapshotMode, StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store import compare_operator, read_operator, table_names
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import Job
from laminar_core.testing.session_jobs import EARLY_SESSION_JOBS, SESSION_JOBS, sessions_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.driver.drill.test_drill import drill

JOBS = SESSION_JOBS | EARLY_SESSION_JOBS


def simulated(job: Job, snapshots: SnapshotMode, **options) -> Simulation:
    checkpoint = CoordinatorConfig(interval_ms=4, alignment_timeout_ms=0, tolerable_failures=None)
    simulation = Simulation(job.plan, checkpoint=checkpoint, objects=SimulatedDisk(), **options)
    job.burden.row_ms, job.burden.spend = 1.0, simulation.world.spend
    state = StateOptions(snapshots, segments_max=2, changelog_interval_ms=3)
    simulation.options = replace(simulation.options, state=state)
    return simulation


def manifests(simulation: Simulation) -> list[CheckpointManifest]:
    return [simulation.store.manifests.read(n) for n in simulation.store.manifests.ids()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("snapshots", ["full", "incremental", "changelog"])
def test_from_one_to_three_to_two_workers_the_result_is_exact(
    name: str, snapshots: SnapshotMode
) -> None:
    job = JOBS[name](1)
    simulation = simulated(job, snapshots)
    for parallelism in (1, 3, 3):
        simulation.options = replace(simulation.options, parallelism=parallelism)
        completed = sum(isinstance(e, CheckpointCompleted) for e in simulation.events)
        simulation.when(CheckpointCompleted, simulation.kill_driver, completed + 2)
        with pytest.raises(ProcessKilledError):
            simulation.run(take_over=True)
    simulation.options = replace(simulation.options, parallelism=2)
    result = simulation.run(take_over=True)
    assert result.outcome == "finished"
    job.check(result.rows_late)


def interrupted(snapshots: SnapshotMode, checkpoints: int) -> Simulation:
    simulation = simulated(sessions_job(2, pace=80), snapshots, parallelism=2)
    simulation.when(CheckpointCompleted, simulation.kill_driver, checkpoints)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return simulation


@pytest.mark.parametrize("snapshots", ["full", "incremental"])
def test_a_drill_proves_the_sessions(snapshots: SnapshotMode) -> None:
    record, _ = drill(interrupted(snapshots, 6))
    assert (record.outcome, record.problems) == ("passed", ())
    (sessions,) = [o for o in record.operators if o.operator_id == "sessions"]
    assert sessions.is_equal
    assert sessions.rows_restored > 0


def test_a_reader_sees_each_open_session_once() -> None:
    """No two rows of a key touch, and none of them has been emitted."""
    simulation = interrupted("incremental", 9)
    store, made = simulation.store, manifests(simulation)
    assert max(len(entry.segments) for m in made for entry in m.subtasks) > 1, "chains are read"
    for manifest in made:
        assert table_names("sessions", manifest) in ((), (SESSIONS,))
        rows = read_operator(store.parts, manifest, "sessions", SESSIONS)
        found = [] if rows is None else rows.to_pylist()
        for row in found:
            assert row["window_start"] <= row["_expires"]
            others = [o for o in found if o["key"] == row["key"] and o is not row]
            assert not any(
                o["window_start"] <= row["_expires"] and row["window_start"] <= o["_expires"]
                for o in others
            )
    differences = [
        compare_operator(store.parts, older, newer, "sessions", SESSIONS)
        for older, newer in pairwise(made)
    ]
    assert {difference.notes for difference in differences} == {()}
    changes = [d.count(kind) for d in differences for kind in ("added", "removed", "changed")]
    assert any(changes), "sessions began, grew or ended"
