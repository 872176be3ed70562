"""Loops in a simulated cluster: exact whatever dies, ended when nothing is left in them.

Every job's answer is computed row by row, in plain Python; see ``loop_jobs``.
"""

import os
from dataclasses import dataclass
from functools import partial
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.errors import ErrorCode, JobFailedError, StorageUnavailable
from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.stateless import StatelessSubtask
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.protocol.alignment_state import Recording
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, DeclineCause
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.worker_process import WorkerProcess
from laminar_core.worker import wiring
from laminar_core.worker.loops import HeadTask
from laminar_core.worker.spill import SpillQueue
from laminar_core.worker.task import Task
from tests.simulated.loop_jobs import LOOP_JOBS, job, later_job, once, rows, source
from tests.simulated.simulated_jobs import Job

SEEDS = int(os.environ.get("LAMINAR_SEEDS", "105"))
"""Runs per kind of disaster; more of them for a soak test."""

NAMES = list(LOOP_JOBS)
TURNS = 700

ALIGNED, TIMED, UNALIGNED = None, 2, 0
"""Alignment timeouts."""


def checkpoints(dice: Random) -> CoordinatorConfig:
    timeout_ms = dice.choice((ALIGNED, TIMED, UNALIGNED))
    return CoordinatorConfig(
        interval_ms=dice.choice((5, 10, 30)),
        tolerable_failures=None,
        alignment_timeout_ms=timeout_ms,
    )


def simulate(seed: int) -> tuple[Job, Simulation, Random]:
    dice = Random(seed)
    built = LOOP_JOBS[NAMES[seed % len(NAMES)]]()
    parallelism = 1 + (seed // len(NAMES)) % 3
    simulation = Simulation(
        built.plan, parallelism=parallelism, seed=seed, checkpoint=checkpoints(dice)
    )
    return built, simulation, dice


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3 * len(NAMES)))
def test_an_undisturbed_loop_is_exact_and_ends(seed: int) -> None:
    built, simulation, _ = simulate(seed)
    result = simulation.run()
    assert (result.outcome, result.generations) == ("finished", 1)
    built.check()


@pytest.mark.parametrize("dies", [None, Simulation.kill_driver], ids=["lives", "dies"])
@pytest.mark.parametrize("seed", range(3))
def test_a_loop_goes_on_as_long_as_a_timer_is_set(seed: int, dies) -> None:
    built = later_job()
    checkpoint = CoordinatorConfig(interval_ms=200)
    simulation = Simulation(built.plan, parallelism=2, seed=seed, checkpoint=checkpoint)
    if dies is not None:
        simulation.when(CheckpointCompleted, partial(dies, simulation), 4)
    assert simulation.run_to_end().outcome == "finished"
    built.check()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_workers_and_drivers_may_be_killed_at_any_turn(seed: int) -> None:
    built, simulation, dice = simulate(seed)
    for _ in range(dice.randint(1, 4)):
        kill = dice.choice(
            (simulation.kill_driver, partial(simulation.kill_worker, dice.randrange(3)))
        )
        simulation.world.at_turn(dice.randrange(1, TURNS), kill)
    assert simulation.run_to_end().outcome == "finished"
    built.check()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(SEEDS // 3))
def test_a_worker_may_be_killed_right_after_a_checkpoint_with_a_log(seed: int) -> None:
    """The log of the way back is replayed before anything else."""
    built, simulation, dice = simulate(seed)
    for number in (1, 2, 4, 7):
        simulation.when(
            CheckpointCompleted, partial(simulation.kill_worker, dice.randrange(3)), number
        )
    assert simulation.run_to_end().outcome == "finished"
    built.check()


def run_with_failing_store(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many checkpoints were aborted while rows on their way back were being logged."""
    aborted = hits = 0

    def abort(task: HeadTask, checkpoint_id: CheckpointId) -> None:
        nonlocal aborted
        aborted += isinstance(task._aligner.state, Recording)
        Task.abort(task, checkpoint_id)

    monkeypatch.setattr(HeadTask, "abort", abort, raising=False)
    built, simulation, dice = simulate(seed)

    def fail(call: StoreCall) -> None:
        nonlocal hits
        if "worker" in call.process and hits < 10 and dice.random() < 0.1:
            hits += 1
            raise StorageUnavailable(ErrorCode.STORE_IO, f"it did not answer: {call}")

    simulation.observers.append(fail)
    for turn in range(30, 1_000, 4):
        simulation.world.at_turn(turn, partial(decline_what_is_logged, simulation, dice))
    assert simulation.run().outcome == "finished"
    built.check()
    return aborted


def decline_what_is_logged(simulation: Simulation, dice: Random) -> None:
    for process in simulation.drivers[-1].stages[-1].workers if simulation.drivers else ():
        for task in process.worker.wiring.tasks:
            state = task._aligner.state
            if isinstance(task, HeadTask) and isinstance(state, Recording) and dice.random() < 0.5:
                checkpoint_id = state.barrier.checkpoint_id
                process.worker.on_decline(checkpoint_id, DeclineCause.SUBSUMED, "told to")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(SEEDS // 3))
def test_a_checkpoint_may_fail_while_a_loop_is_logged(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is given up, its log is dropped, and rows go on round the loop."""
    run_with_failing_store(seed, monkeypatch)


@pytest.mark.large
def test_checkpoints_are_aborted_while_a_loop_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the test above."""
    assert sum(run_with_failing_store(seed, monkeypatch) for seed in range(20)) > 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4 * len(NAMES)))
def test_what_waits_on_disk_comes_back_as_well(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spilled: list[SpillQueue] = []

    def tiny(schema: pa.Schema) -> SpillQueue:
        spilled.append(SpillQueue(schema, memory_bytes=0, run_bytes=1, file_bytes=1_000))
        return spilled[-1]

    monkeypatch.setattr(wiring, "SpillQueue", tiny)
    monkeypatch.setattr(WorkerProcess, "kill", kill_and_close)
    built, simulation, dice = simulate(seed)
    simulation.when(CheckpointCompleted, simulation.kill_driver, dice.randrange(1, 4))
    assert simulation.run_to_end().outcome == "finished"
    built.check()
    came_back = NAMES[seed % len(NAMES)] not in {"nothing-comes-back", "no-rows"}
    assert (sum(queue.spilled_bytes for queue in spilled) > 0) == came_back


def kill_and_close(process: WorkerProcess, kill=WorkerProcess.kill) -> None:
    """The system closes the files of a process that is killed."""
    for channel in process.worker.wiring.outputs.values():
        channel.close()
    kill(process)


# --- checkpoints of a loop ------------------------------------------------------------------------


def endless(*, bounded: bool) -> Job:
    """Rows never leave their loop; most of the time it is full of them."""
    p, tables = Pipeline("endless"), rows(3, 40)

    def looped(entering: Stream) -> tuple[Stream, Stream]:
        done = entering.rebalance().map(once, name="once")
        return done.rebalance(), done.filter(pc.field("left") > 10**9, name="never")

    stream = source(p, tables, batch_rows=1, bounded=bounded)
    return job(p, stream.rebalance().iterate(looped, name="loop"), [])


@pytest.mark.large
@pytest.mark.sampled(3)
@pytest.mark.parametrize("timeout_ms", [ALIGNED, TIMED, UNALIGNED])
@pytest.mark.parametrize("ends", [True, False])
def test_checkpoints_complete_while_a_loop_is_full(timeout_ms: int | None, ends) -> None:
    """Rows that come back go first, and yet no barrier waits for ever behind them."""
    built = endless(bounded=ends)
    config = CoordinatorConfig(interval_ms=20, alignment_timeout_ms=timeout_ms)
    simulation = Simulation(built.plan, parallelism=2, seed=3, checkpoint=config)
    simulation.when(CheckpointCompleted, partial(simulation.kill_worker, 1), number=4)
    simulation.when(CheckpointCompleted, simulation.stop, number=9)
    assert simulation.run().outcome == "stopped"
    logs = [feedback_rows(simulation, n) for n in simulation.store.manifests.ids()]
    assert logs[-1] == 120, "every row is in the log of the way back"


def feedback_rows(simulation: Simulation, checkpoint_id: CheckpointId) -> int:
    manifest = simulation.store.manifests.read(checkpoint_id)
    return sum(e.row_count for e in manifest.inflight_data if e.edge.feedback)


def test_an_aligned_checkpoint_has_the_log_of_the_loop_and_nothing_else_in_flight() -> None:
    built = LOOP_JOBS["shuffled"]()
    config = CoordinatorConfig(interval_ms=10, alignment_timeout_ms=None)
    simulation = Simulation(built.plan, parallelism=2, seed=5, checkpoint=config)
    simulation.run()
    manifests = [simulation.store.manifests.read(n) for n in simulation.store.manifests.ids()]
    logged = [entry for manifest in manifests for entry in manifest.inflight_data]
    assert logged
    assert all(entry.edge.feedback and entry.direction == "input" for entry in logged)
    assert {manifest.mode for manifest in manifests} == {"aligned"}


def test_outside_of_the_loop_barriers_do_overtake() -> None:
    overtaken = set()
    for seed in range(6):
        built = LOOP_JOBS["outside-input"]()
        config = CoordinatorConfig(interval_ms=10, alignment_timeout_ms=UNALIGNED)
        simulation = Simulation(built.plan, parallelism=2, seed=seed, checkpoint=config)
        simulation.run()
        for checkpoint_id in simulation.store.manifests.ids():
            for entry in simulation.store.manifests.read(checkpoint_id).inflight_data:
                edge = entry.edge
                overtaken.add((edge.upstream, edge.downstream, edge.feedback))
    assert ("in", "loop", False) in overtaken
    assert {(up, down) for up, down, feedback in overtaken if not feedback} <= {
        ("in", "loop"),
        ("late", "union-1"),
    }


@pytest.mark.parametrize("seed", range(len(NAMES)))
def test_a_loop_may_be_stopped_and_continued(seed: int) -> None:
    built, simulation, dice = simulate(seed)
    simulation.when(CheckpointCompleted, simulation.stop, dice.randrange(1, 4))
    assert simulation.run().outcome in {"stopped", "finished"}
    assert simulation.run().outcome == "finished"
    built.check()


# --- the end --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hoard:
    """Keeps every row until its input has ended."""

    operator_id: str = "hoard"

    def describe(self) -> dict[str, str]:
        return {"kind": "hoard"}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        return input_schema

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "Hoarder":
        del context, input_schema
        return Hoarder()


class Hoarder(StatelessSubtask):
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def process(self, batch: pa.RecordBatch):
        self.batches.append(batch)
        return iter(())

    def on_watermark(self, watermark_us: int) -> list[pa.RecordBatch]:
        return self.batches if watermark_us == WATERMARK_END_US else []


def test_rows_that_come_back_after_the_end_are_refused_and_not_lost() -> None:
    p = Pipeline("hoard")

    def looped(entering: Stream) -> tuple[Stream, Stream]:
        kept = entering.map(once, name="once").then(Hoard())
        return kept, kept

    built = job(p, source(p, rows(1)).iterate(looped, name="loop"), [])
    with pytest.raises(JobFailedError, match="rows came back to loop loop after its end") as caught:
        Simulation(built.plan).run()
    assert "\n" not in str(caught.value)


def test_a_restarted_job_asks_anew_whether_its_loop_is_over() -> None:
    """A worker dies between the first wave and the second one, again and again."""
    built = LOOP_JOBS["shuffled"]()
    simulation = Simulation(built.plan, parallelism=2, seed=1)
    killed = 0

    def kill_after_first_wave() -> None:
        nonlocal killed
        for process in simulation.drivers[-1].coordinators[-1:]:
            known = process.coordinator._loops._state.consumed_before
            if known and killed < 3:
                killed += 1
                simulation.kill_worker(killed % 2)

    for turn in range(1, 6_000):
        simulation.world.at_turn(turn, kill_after_first_wave)
    result = simulation.run()
    assert (result.outcome, killed) == ("finished", 3)
    built.check()
