"""A drill restores for real, touches nothing of the job, and would notice wrong state."""

from dataclasses import replace

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.driver.drill.drill import Drill, DrillOptions
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.aggregation import WindowAggregate
from laminar_core.operators.base import one_table
from laminar_core.pipeline import Pipeline
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.records.drill import DrillRecord
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.state.splits import rows_read
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_copy import copy_checkpoint
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.drills import newest_number, read_drills
from laminar_core.store.pins import Pins
from laminar_core.store.source_positions import positions_of
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.driver_process import SimulatedDriver
from laminar_core.testing.jobs import Job
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.simulation import JOB, Simulation
from laminar_core.testing.world import ProcessKilledError
from laminar_core.worker.deployment import RestoredState
from tests.simulated.changing_sources import Changing, positions
from tests.store.stores import damage

WEEKLY = Actor("weekly", ActorKind.SCHEDULE, "the weekly drill", "run-7")
BATCH_ROWS = 4
"""How many rows a ``MemorySource`` returns at a time."""
UNALIGNED = CoordinatorConfig(interval_ms=10, alignment_timeout_ms=0)


def interrupted(name: str = "mesh", checkpoints: int = 3) -> tuple[Job, Simulation]:
    """A job whose driver was killed; its last checkpoint has rows in flight."""
    job = SCENARIOS[name](2)
    simulation = Simulation(job.plan, checkpoint=UNALIGNED, objects=SimulatedDisk(), seed=3)
    job.burden.row_ms, job.burden.spend = 20.0, simulation.world.spend
    simulation.when(CheckpointCompleted, simulation.kill_driver, checkpoints)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return job, simulation


def drill(
    simulation: Simulation, seed: int | None = None, batches_max: int = 2, **changes: object
) -> tuple[DrillRecord, CheckpointStore]:
    """Drill in a world of its own, where the job's store is only a store."""
    scratch = CheckpointStore(SimulatedDisk(), JOB)
    world = Simulation(simulation.plan, objects=scratch.objects)
    driver = SimulatedDriver(world.world, world.network, 90, world._open_store)
    options = DrillOptions(replace(simulation.options, **changes), seed, batches_max)
    clock = world.world.clock
    ran = Drill(driver, simulation.plan, options, simulation.store, scratch, clock)
    return ran.run(), scratch


def read_of(source: str, store: CheckpointStore, manifest: CheckpointManifest) -> int:
    """Return how many rows of a source were read up to the checkpoint."""
    splits = positions_of(source, store, manifest)
    assert splits is not None
    return rows_read(splits)


def objects(simulation: Simulation) -> dict[str, bytes | None]:
    """All but what a drill is allowed to leave behind."""
    kept = simulation.objects
    mine = (f"{JOB}/drills/", f"{JOB}/audit/")
    return {key: kept.get(key) for key in kept.list("") if not key.startswith(mine)}


@pytest.mark.large
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", ["mesh", "two-windows", "copies", "fan-out", "loop", "pairs", "process"]
)
def test_it_proves_what_was_restored_and_completes_a_checkpoint(name: str) -> None:
    job, simulation = interrupted(name, checkpoints=2)
    before, rows = objects(simulation), {n: ledger.rows() for n, ledger in job.ledgers.items()}
    newest = simulation.store.manifests.ids()[-1]
    record, scratch = drill(simulation)
    assert (record.outcome, record.problems, record.exit_code) == ("passed", (), 0)
    assert (record.checkpoint_id, record.workers_before) == (newest, 2)
    first, *_, last = scratch.manifests.ids()[1:] * 2
    assert scratch.manifests.read(first).parent_checkpoint_id == newest
    assert record.completed_checkpoint_id == last
    assert all(operator.is_equal for operator in record.operators)
    kept = {
        entry.operator_id
        for entry in simulation.store.manifests.read(newest).subtasks
        if entry.segments and entry.operator_id not in {n.operator_id for n in job.plan.sources()}
    }
    assert {o.operator_id for o in record.operators if o.rows_restored} == kept
    assert objects(simulation) == before
    assert {name: ledger.rows() for name, ledger in job.ledgers.items()} == rows
    assert Pins(simulation.store).list() == []
    simulation.run_to_end()
    job.check()


def test_a_sink_without_a_committer_is_not_opened_either(monkeypatch: pytest.MonkeyPatch) -> None:
    p = Pipeline(JOB)
    tables = [pa.table({"n": range(10 * i, 10 * i + 10)}) for i in range(4)]
    p.source("in", MemorySource(tables, batch_rows=1)).sink("out", CollectSink())
    simulation = Simulation(p.plan(), checkpoint=UNALIGNED, objects=SimulatedDisk())
    simulation.when(CheckpointCompleted, simulation.kill_driver, 1)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    monkeypatch.setattr(CollectSink, "open", lambda *_: pytest.fail("the real sink was opened"))
    record, _ = drill(simulation)
    assert (record.outcome, record.problems) == ("passed", ())


def test_new_rows_are_read_and_only_a_few() -> None:
    _, simulation = interrupted(checkpoints=1)
    record, _ = drill(simulation, batches_max=2)
    assert 0 < record.rows_read <= 2 * 2 * 4
    none, _ = drill(simulation, batches_max=0)
    assert (none.outcome, none.rows_read) == ("passed", 0)


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_with_another_number_of_workers(workers: int) -> None:
    _, simulation = interrupted("two-windows", checkpoints=2)
    record, _ = drill(simulation, parallelism=workers)
    assert (record.outcome, record.problems) == ("passed", ())
    assert (record.workers_before, record.workers) == (2, workers)
    assert sum(o.rows_restored for o in record.operators) > 0


@pytest.mark.parametrize("snapshots", ["full", "incremental", "changelog"])
def test_however_state_is_written(snapshots: str) -> None:
    job = SCENARIOS["windows"](2)
    simulation = Simulation(job.plan, checkpoint=UNALIGNED, objects=SimulatedDisk())
    simulation.options = replace(simulation.options, state=StateOptions(snapshots=snapshots))
    simulation.when(CheckpointCompleted, simulation.kill_driver, 2)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    record, _ = drill(simulation)
    assert (record.outcome, record.problems) == ("passed", ())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "c")])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_positions_of_a_removed_source_are_carried_or_read(
    names: tuple[str, ...], workers: int
) -> None:
    job = Changing()
    with_b = job.run_and_stop("a", "b")
    newest = job.run_and_stop("a")
    before = objects(job.simulation)
    job.start(*names, workers=workers)
    record, scratch = drill(job.simulation, batches_max=1)
    assert (record.outcome, record.problems) == ("passed", ())
    assert (record.checkpoint_id, record.workers_before) == (newest.checkpoint_id, 2)
    assert 0 < record.rows_read <= workers * len(names) * BATCH_ROWS
    assert record.completed_checkpoint_id is not None
    after = scratch.manifests.read(CheckpointId(record.completed_checkpoint_id))
    assert scratch.verify(CheckpointId(after.checkpoint_id)).problem is None
    if "b" in names:
        then = read_of("b", job.simulation.store, with_b)
        assert then < read_of("b", scratch, after) <= then + workers * BATCH_ROWS
    else:
        assert positions(after, "b") == positions(with_b, "b")
    assert objects(job.simulation) == before
    job.finish("a", "b")
    job.check("a", "b")


def test_one_is_drawn_and_the_same_seed_draws_the_same() -> None:
    _, simulation = interrupted()
    drawn = [drill(simulation, seed)[0].checkpoint_id for seed in (1, 2, 3, 4, 5, 1)]
    assert drawn[0] == drawn[-1]
    assert set(drawn) > {drawn[0]}


def test_what_is_drawn_is_older_than_the_newest_unless_there_is_no_other() -> None:
    _, simulation = interrupted(checkpoints=3)
    drawn = {drill(simulation, seed)[0].checkpoint_id for seed in range(6)}
    assert drawn == {1, 2}
    _, simulation = interrupted(checkpoints=1)
    assert drill(simulation, 1)[0].checkpoint_id == 1


def test_each_drill_is_written_down_and_audited() -> None:
    _, simulation = interrupted()
    first, _ = drill(simulation, actor=WEEKLY)
    second, _ = drill(simulation)
    assert read_drills(simulation.store, []) == [first, second]
    audited = AuditLog(simulation.objects, simulation.store.paths, lambda: 0).records()
    assert [(r.actor, r.run_id) for r in audited if r.action == "drill"] == [
        ("weekly", "run-7"),
        ("laminar", None),
    ]
    assert (first.reason, second.number, newest_number(simulation.store)) == (
        "the weekly drill",
        2,
        2,
    )


class TestWhatFails:
    def test_restored_state_that_is_not_the_checkpoints(self, monkeypatch) -> None:
        """An operator that loses a row on the way, for one."""
        _, simulation = interrupted("windows", checkpoints=1)
        restore = WindowAggregate.open

        def careless(self, context, schema):
            subtask = restore(self, context, schema)
            inner = subtask.restore

            def restore_less(snapshots):
                inner(
                    [replace(s, tables=one_table(t.slice(1) for t in s.rows())) for s in snapshots]
                )

            subtask.restore = restore_less
            return subtask

        monkeypatch.setattr(WindowAggregate, "open", careless)
        record, _ = drill(simulation)
        assert (record.outcome, record.error_code) == ("failed", ErrorCode.DRILL_FAILED.value)
        assert "totals restored" in record.problems[0]
        assert record.exit_code == 1

    def test_state_that_nobody_restored(self, monkeypatch) -> None:
        """An operator that is not given its snapshots has nothing to tell, which is no proof."""
        _, simulation = interrupted("windows", checkpoints=1)
        snapshots = RestoredState.snapshots

        def forgetful(self, operator_id, *how):
            return () if operator_id == "totals" else snapshots(self, operator_id, *how)

        monkeypatch.setattr(RestoredState, "snapshots", forgetful)
        record, _ = drill(simulation)
        assert (record.outcome, record.error_code) == ("failed", ErrorCode.DRILL_FAILED.value)
        assert "totals restored 0 rows" in record.problems[0]

    def test_a_damaged_checkpoint_that_was_asked_for(self) -> None:
        _, simulation = interrupted()
        store = simulation.store
        newest = store.manifests.ids()[-1]
        damage(store, f"{JOB}/{store.manifests.read(newest).files()[0].path}", "rotten")
        record, _ = drill(simulation, restore_id=newest)
        assert (record.outcome, record.exit_code) == ("failed", 5)
        assert drill(simulation)[0].checkpoint_id == newest - 1  # Else the newest that verifies.

    def test_a_job_without_a_checkpoint(self) -> None:
        job = SCENARIOS["windows"](2)
        simulation = Simulation(job.plan, objects=SimulatedDisk())
        with pytest.raises(ConfigurationError, match="no completed checkpoint to drill") as error:
            drill(simulation)
        assert error.value.code is ErrorCode.NO_SUCH_CHECKPOINT
        with pytest.raises(ConfigurationError, match="no completed checkpoint to drill"):
            drill(simulation, restore_id=9)
        assert simulation.objects.list("") == []  # There may be no such job.

    def test_a_job_of_another_store_whose_output_is_there(self) -> None:
        _, simulation = interrupted()
        simulation.store = CheckpointStore(SimulatedDisk(), JOB)
        with pytest.raises(ConfigurationError, match="no completed checkpoint to drill"):
            drill(simulation)
        assert simulation.store.objects.list("") == []

    def test_a_checkpoint_that_never_was(self) -> None:
        _, simulation = interrupted(checkpoints=1)
        before = objects(simulation)
        with pytest.raises(ConfigurationError, match="checkpoint 99 cannot be restored"):
            drill(simulation, restore_id=99)
        assert objects(simulation) == before
        assert read_drills(simulation.store, []) == []

    def test_a_pipeline_that_does_not_fit(self) -> None:
        _, simulation = interrupted()
        simulation.plan = replace(simulation.plan, max_parallelism=64)
        record, _ = drill(simulation)
        assert (record.exit_code, record.checkpoint_id) == (2, None)
        assert "key groups" in record.problems[0]


def test_a_copy_is_the_checkpoint_byte_by_byte() -> None:
    _, simulation = interrupted()
    store, scratch = simulation.store, CheckpointStore(SimulatedDisk(), JOB)
    newest = store.manifests.ids()[-1]
    manifest = store.manifests.read(newest)
    owner = SimulatedDriver(simulation.world, simulation.network, 91, None).identify()
    size_bytes = copy_checkpoint(store, scratch, manifest, owner)
    assert size_bytes == manifest.size_bytes
    assert manifest.audited is not None  # Of the log of the job, which stays where it is.
    copied = manifest.model_copy(update={"audited": None})
    assert scratch.manifests.read(newest) == copied
    assert scratch.verify(newest).problem is None
    assert scratch.choose_checkpoint().manifest == copied
