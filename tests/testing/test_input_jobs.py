"""Two inputs of one operator: answers by hand, rows in flight on both, and faults that show."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.recovery.stored_columns import column_mismatches
from laminar_core.operators.base import PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import ChannelId, CheckpointId, Generation
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.testing.input_jobs import INPUT_JOBS, PairRows, RowPairer, pairs_job
from laminar_core.testing.jobs import Job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.worker_process import WorkerProcess
from laminar_core.testing.world import ProcessKilledError
from laminar_core.worker.task import Task

UNALIGNED = CoordinatorConfig(interval_ms=5, alignment_timeout_ms=0)
SEEDS = range(4)


def opened(subtask: int = 0, parallelism: int = 1) -> RowPairer:
    context = SubtaskContext("pair", subtask, parallelism, 128, Generation(1))
    return PairRows("pair").open(context)


def payment(row_id: int, key: str, second: int) -> pa.RecordBatch:
    at = datetime.fromtimestamp(second, UTC)
    return pa.RecordBatch.from_pylist([{"id": row_id, "key": key, "ts": at}])


def refund(row_id: int, key: str, second: int) -> pa.RecordBatch:
    at = datetime.fromtimestamp(second, UTC)
    return pa.RecordBatch.from_pylist([{"refund": row_id, "shop": key, "at": at}])


def pairs(batches) -> list[tuple[int, int]]:
    return [(row["id"], row["value"]) for batch in batches for row in batch.to_pylist()]


def test_a_pair_is_emitted_when_its_second_row_comes_on_whatever_input() -> None:
    pairer = opened()
    assert pairs(pairer.process_input(0, payment(1, "a", 3))) == []
    assert pairs(pairer.process_input(1, refund(9, "b", 3))) == []
    assert pairs(pairer.process_input(1, refund(8, "a", 4))) == [(1, 8)]
    assert pairs(pairer.process_input(0, payment(2, "a", 5))) == [(2, 8)]
    assert pairs(pairer.process_input(0, payment(3, "a", 11))) == []


def test_rows_of_a_window_that_is_over_are_forgotten_and_late() -> None:
    pairer = opened()
    list(pairer.process_input(0, payment(1, "a", 3)))
    assert list(pairer.on_watermark(10_000_000)) == []
    assert pairs(pairer.process_input(1, refund(8, "a", 4))) == []
    assert pairer.late_row_count == 1
    assert list(pairer.snapshot(CheckpointId(1))().tables) == []


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)])
def test_rows_of_both_inputs_are_restored_at_the_owner_of_their_key(before, after) -> None:
    keys = [f"k{n}" for n in range(20)]
    old = [opened(n, before) for n in range(before)]
    for pairer in old:  # Each takes what it owns, as of a broadcast input.
        for n, key in enumerate(keys):
            list(pairer.process_input(0, payment(n, key, 1)))
    snapshots = [pairer.snapshot(CheckpointId(1))() for pairer in old]
    found: list[tuple[int, int]] = []
    for subtask in range(after):
        pairer = opened(subtask, after)
        groups = [range(*s.properties["key_groups"]) for s in snapshots]
        pairer.restore(
            [s for s, of in zip(snapshots, groups, strict=True) if set(of) & set(pairer._owned)]
        )
        for n, key in enumerate(keys):
            found += pairs(pairer.process_input(1, refund(100 + n, key, 2)))
    assert sorted(found) == [(n, 100 + n) for n in range(20)]


@pytest.mark.parametrize("name", INPUT_JOBS)
def test_an_undisturbed_run_is_exact(name: str) -> None:
    job = INPUT_JOBS[name](2)
    result = Simulation(job.plan, parallelism=2).run()
    job.check(result.rows_late)
    assert result.rows_late == 0


def killed(seed: int) -> tuple[Job, Simulation]:
    """A job whose driver dies after its first checkpoint, which has rows in flight."""
    job = pairs_job(3)
    simulation = Simulation(job.plan, parallelism=3, seed=seed, checkpoint=UNALIGNED)
    job.burden.row_ms, job.burden.spend = 2.0, simulation.world.spend
    simulation.when(CheckpointCompleted, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return job, simulation


def test_a_simulation_that_is_closed_has_no_workers_with_open_files() -> None:
    _, simulation = killed(0)
    assert [one for one in simulation.world.processes if isinstance(one, WorkerProcess)]
    simulation.close()
    assert not [one for one in simulation.world.processes if isinstance(one, WorkerProcess)]


def newest(simulation: Simulation) -> CheckpointManifest:
    return simulation.store.manifests.read(simulation.store.manifests.ids()[-1])


class PlainPairer(RowPairer):
    """Says nothing of its key groups besides their column, as an operator of a user may."""

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        pending = super().snapshot(checkpoint_id)
        return lambda: Snapshot(pending().tables)


class PlainPairs(PairRows):
    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> RowPairer:
        del inputs
        return PlainPairer(context)


def test_files_of_keyed_state_are_known_by_the_operators_word_alone() -> None:
    job = pairs_job(2)
    (vertex,) = (v for v in job.plan.vertices if PairRows in map(type, v.operators))
    (spec,) = vertex.operators
    plain = replace(vertex, operators=(PlainPairs(spec.operator_id),))
    plan = replace(job.plan, vertices=tuple(plain if v is vertex else v for v in job.plan.vertices))
    simulation = Simulation(plan, parallelism=2, checkpoint=CoordinatorConfig(interval_ms=5))
    job.burden.row_ms, job.burden.spend = 2.0, simulation.world.spend
    simulation.run()
    manifests = simulation.store.manifests
    subtasks = [s for at in manifests.ids() for s in manifests.read(at).subtasks]
    files = [
        (s.subtask_index, segment.key_groups)
        for s in subtasks
        if s.operator_id == spec.operator_id
        for segment in s.segments
    ]
    assert files
    for subtask, groups in files:
        assert groups is not None
        assert 64 * subtask <= groups[0] < groups[1] <= 64 * (subtask + 1)


def test_rows_in_flight_on_both_inputs_come_back_to_their_input() -> None:
    """By a kill after unaligned checkpoints, and with 2 workers after 3."""
    inputs: Counter[int] = Counter()
    for seed in SEEDS:
        job, simulation = killed(seed)
        for entry in newest(simulation).inflight_data:
            if entry.edge.downstream == "pair":
                inputs[entry.edge.input_index] += entry.row_count
        simulation.options = replace(simulation.options, parallelism=2 + seed % 2)
        result = simulation.run(take_over=True)
        job.check(result.rows_late)
        assert result.rows_late == 0
    assert inputs[0]
    assert inputs[1], inputs


class TimeOfOneInput(WatermarkGate):
    """A planted fault: the time of the first channel alone."""

    def advance(self, channel: ChannelId, watermark_us: int) -> int | None:
        risen = super().advance(channel, watermark_us)
        if channel or (self._combined or 0) >= watermark_us:
            return risen
        self._combined = watermark_us
        return watermark_us


def test_event_time_of_one_input_alone_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laminar_core.worker.restored_edges.WatermarkGate", TimeOfOneInput)
    job = pairs_job(2)
    result = Simulation(job.plan, parallelism=2).run()
    assert result.rows_late
    assert any("rows lost" in problem for problem in job.problems(result.rows_late))


def test_rows_taken_for_those_of_the_other_input_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Task._process
    monkeypatch.setattr(Task, "_process", lambda task, batch, *_: process(task, batch))
    job = INPUT_JOBS["named-inputs"](2)
    Simulation(job.plan, parallelism=2).run()
    assert list(job.problems())


def test_columns_of_its_state_and_of_both_inputs_are_compared_before_a_start() -> None:
    job, simulation = killed(1)
    assert list(column_mismatches(newest(simulation), job.plan, simulation.store)) == []
