"""Inputs that end, early or late, idle or in the midst of a checkpoint."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from laminar_core.connectors.base import SourceBatch
from laminar_core.driver.events import CheckpointCompleted, DataFlowing
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator import CoordinatorConfig
from laminar_core.testing.jobs import DELAY, SECOND_US, Job, payments, rows_of, totals, windowed
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

OFTEN = CoordinatorConfig(interval_ms=5, max_concurrent=2, tolerable_failures=None)


def later(tables: list[pa.Table], seconds: int) -> list[pa.Table]:
    """Return the rows, later in event time."""
    moved = []
    for table in tables:
        times = pa.array([t.value + seconds * SECOND_US for t in table.column("ts")])
        column = times.cast(table.schema.field("ts").type)
        moved.append(table.set_column(table.schema.get_field_index("ts"), "ts", column))
    return moved


def two_inputs(first: MemorySource, second: MemorySource, **options) -> Job:
    p, ledger = Pipeline("two"), Ledger()
    a = p.source("a", first).watermark("ts", max_delay=DELAY)
    b = p.source("b", second, **options).watermark("ts", max_delay=DELAY)
    windowed(a.union(b)).sink("out", LedgerSink(ledger))
    rows = rows_of([*first.splits, *second.splits])
    return Job(p.plan(), {"out": totals(rows)}, {"out": ledger})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_checkpoints_go_on_while_one_input_has_ended_and_the_other_has_not(seed):
    short = MemorySource(payments(1, 10))
    long = MemorySource(payments(3, 40, seed=2), gap_every=2, gap_polls=6)
    job = two_inputs(short, long)
    simulation = Simulation(job.plan, seed=seed, checkpoint=OFTEN)
    ended = []

    def look() -> None:
        workers = simulation.drivers[-1].stages[-1].workers
        ended.append(all(w.worker.wiring.tasks[0].finished for w in workers))

    for number in range(1, 30):
        simulation.when(CheckpointCompleted, look, number)
    result = simulation.run()
    assert (result.outcome, result.rows_late) == ("finished", 0)
    assert ended.count(True) > 2
    job.check()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_the_end_of_one_input_is_not_the_end_of_time_for_one_that_is_idle(seed):
    """Rows of the idle input come after the other has ended; none of them is late."""
    early = MemorySource(payments(2, 12), gap_every=1, gap_polls=12)
    idle = MemorySource(later(payments(2, 20, seed=2), 60), gap_every=1, gap_polls=40)
    job = two_inputs(early, idle, idle_timeout="20 milliseconds")
    # Of several workers, those with rows would not wait for one whose inputs are idle.
    simulation = Simulation(job.plan, parallelism=1, seed=seed, checkpoint=OFTEN)
    simulation.when(CheckpointCompleted, simulation.kill_driver, number=3 + seed)
    result = simulation.run_to_end()
    assert (result.outcome, result.rows_late) == ("finished", 0)
    job.check()


@pytest.mark.parametrize("with_union", [False, True])
def test_a_worker_without_rows_holds_back_no_window_behind_a_fork_or_a_union(with_union):
    """Goal: windows are emitted although one of two workers has nothing to read, and never ends."""
    p, ledgers = Pipeline("fork"), [Ledger(), Ledger()]
    endless = MemorySource(payments(1, 40), bounded=False)
    rows = p.source("in", endless, idle_timeout="20 milliseconds").watermark("ts", max_delay=DELAY)
    if with_union:
        rows = rows.union(p.source("ends", MemorySource(payments(1, 1))).watermark("ts"))
    for name, ledger in zip(("one", "other"), ledgers, strict=True):
        windowed(rows, name).sink(f"{name}-out", LedgerSink(ledger))
    simulation = Simulation(p.plan(), checkpoint=OFTEN)
    simulation.when(CheckpointCompleted, simulation.stop, number=60)
    assert simulation.run().outcome == "stopped"
    assert all(len(ledger.rows()) > 10 for ledger in ledgers)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_more_workers_than_splits(seed):
    """Some workers have nothing to read from the start."""
    job = two_inputs(MemorySource(payments(1, 20)), MemorySource(payments(1, 20, seed=2)))
    simulation = Simulation(job.plan, parallelism=3, seed=seed, checkpoint=OFTEN)
    simulation.when(DataFlowing, lambda: simulation.kill_worker(2))
    assert simulation.run().outcome == "finished"
    job.check()


def test_an_input_without_rows_ends_at_once():
    empty = payments(1, 1)[0].slice(0, 0)
    job = two_inputs(MemorySource([empty]), MemorySource([empty]))
    result = Simulation(job.plan).run()
    assert (result.outcome, result.rows_in, result.rows_out) == ("finished", 0, 0)
    job.check()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_a_job_may_be_stopped_while_its_inputs_end(seed):
    job = two_inputs(MemorySource(payments(1, 10)), MemorySource(payments(3, 30, seed=2)))
    simulation = Simulation(job.plan, seed=seed, checkpoint=OFTEN)
    simulation.when(CheckpointCompleted, simulation.stop, number=1 + seed % 3)
    assert simulation.run().outcome in {"stopped", "finished"}
    assert simulation.run().outcome == "finished"
    job.check()


def test_a_finished_job_that_is_run_again_finishes_again_and_changes_nothing():
    job = two_inputs(MemorySource(payments(1, 10)), MemorySource(payments(1, 30, seed=2)))
    simulation = Simulation(job.plan)
    first = simulation.run()
    commits = dict(job.ledgers["out"].commits)
    again = simulation.run()
    assert (again.outcome, again.rows_in) == ("finished", first.rows_in)
    assert job.ledgers["out"].commits == commits
    job.check()


class CountedReader:
    """Counts what is asked of the reader inside."""

    def __init__(self, inner, polls: list[int]) -> None:
        self._inner = inner
        self._polls = polls

    def poll(self, rows_max: int) -> SourceBatch | None:
        self._polls.append(1)
        return self._inner.poll(rows_max)

    def __getattr__(self, name: str):
        return getattr(self._inner, name)


@dataclass(frozen=True)
class CountedSource(MemorySource):
    """Remembers every poll of its readers."""

    polls: list[int] = field(default_factory=list)

    def open(self, splits: pa.Table):
        return CountedReader(super().open(splits), self.polls)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("timeout_ms", [None, 0])
@pytest.mark.parametrize("seed", range(4))
def test_a_source_that_had_ended_at_the_checkpoint_is_skipped_after_a_restore(seed, timeout_ms):
    short = CountedSource(payments(1, 10))
    long = MemorySource(payments(3, 240, seed=2), gap_every=2, gap_polls=2)
    job = two_inputs(short, long)
    often = CoordinatorConfig(
        interval_ms=5, tolerable_failures=None, alignment_timeout_ms=timeout_ms
    )
    simulation = Simulation(job.plan, seed=seed, checkpoint=often)
    polled_before: list[int] = []

    def kill() -> None:
        newest = simulation.store.manifests.find(simulation.store.manifests.ids()[-1])
        ended = [e.finished for e in newest.alignment if e.vertex_id == "a"]
        if all(ended) and not polled_before:
            polled_before.append(len(short.polls))
            simulation.kill_worker(0)

    for number in range(1, 200):
        simulation.when(CheckpointCompleted, kill, number)
    result = simulation.run()
    assert (result.outcome, result.generations) == ("finished", 2)
    assert polled_before == [len(short.polls)], "nothing was asked of it after the restore"
    job.check()
