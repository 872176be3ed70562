"""Splits that are ahead in event time wait for the slowest, and a job ends whoever is killed."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pytest

from laminar_core.connectors.base import SourceBatch
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import Job, rows_of, with_ledgers
from laminar_core.testing.memory_source import MemoryReader, MemorySource
from laminar_core.testing.simulation import Simulation

SECOND = 1_000_000
ROWS, STEP_S, DRIFT_S = 120, 1, 20
COLUMNS = pa.schema([("split", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def table(split: int, step_s: int) -> pa.Table:
    """Rows whose event time advances by ``step_s`` each."""
    times = [n * step_s * SECOND for n in range(ROWS)]
    return pa.table([[split] * ROWS, times], schema=COLUMNS)


@dataclass(frozen=True)
class Watched(MemorySource):
    """Remembers how far apart the event times of its splits have been while they were read."""

    newest_s: dict[int, float] = field(default_factory=lambda: defaultdict[int, float](float))
    spreads_s: list[float] = field(default_factory=list)

    def open(self, splits: pa.Table) -> MemoryReader:
        return WatchedReader(self, splits)


class WatchedReader(MemoryReader):
    def poll(self, rows_max: int) -> SourceBatch | None:
        assert isinstance(self._source, Watched)
        batch = super().poll(rows_max)
        if batch is not None and batch.split_id is not None:
            newest = self._source.newest_s
            newest[batch.split_id] = batch.rows.column("ts")[-1].value / SECOND
            ends = [float(t.column("ts")[-1].value) / SECOND for t in self._source.splits]
            unread = [newest[n] for n, end in enumerate(ends) if newest[n] < end]
            self._source.spreads_s.append(
                newest[batch.split_id] - min(unread, default=newest[batch.split_id])
            )
        return batch


def job_of(max_drift: str | None, steps: list[int], **options: object) -> tuple[Job, Watched]:
    tables = [table(split, step_s) for split, step_s in enumerate(steps)]
    source = Watched(tables, abreast=True, **options)
    p = Pipeline("drift")
    read = p.source("in", source, idle_timeout="10 minutes", max_drift=max_drift)
    rows = read.watermark("ts", max_delay="1 second").rebalance()
    return with_ledgers(p, {"out": (rows, rows_of(tables))}), source


def test_without_a_limit_splits_drift_apart_and_with_it_they_stay_together() -> None:
    for max_drift, is_bounded in ((f"{DRIFT_S} seconds", True), (None, False)):
        job, source = job_of(max_drift, [1, 5, 2])
        Simulation(job.plan, parallelism=1).run()
        job.check()
        batch_s = 4 * 5  # A batch may pass the limit; the next one of its split is held.
        assert (max(source.spreads_s) <= DRIFT_S + batch_s) is is_bounded


def test_a_worker_waits_for_the_slowest_split_of_another_one() -> None:
    spreads = {}
    for max_drift in (f"{DRIFT_S} seconds", None):
        job, source = job_of(max_drift, [1, 40])
        Simulation(job.plan, parallelism=2).run()
        job.check()
        spreads[max_drift] = max(source.spreads_s[: len(source.spreads_s) // 2])
    assert spreads[f"{DRIFT_S} seconds"] < spreads[None]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_each_row_comes_once_and_checkpoints_complete_whoever_dies(seed: int) -> None:
    job, _ = job_of("3 seconds", [1, 7, 2, 30], gap_every=3 if seed % 2 else 0)
    simulation = Simulation(job.plan, parallelism=1 + seed % 3, seed=seed)
    simulation.when(CheckpointCompleted, partial(simulation.kill_worker, 0), 2)
    simulation.when(CheckpointCompleted, simulation.kill_driver, 4)
    assert simulation.run_to_end().outcome == "finished"
    job.check()
    assert sum(isinstance(e, CheckpointCompleted) for e in simulation.events) > 4


def test_a_split_that_was_read_to_its_end_on_another_worker_is_not_waited_for() -> None:
    """Its reader never looks at it again: what it reported last must not count."""
    short = table(0, 1).slice(0, 3)
    tables = [short, table(1, 60)]
    p = Pipeline("drift")
    read = p.source("in", MemorySource(tables, abreast=True), max_drift="1 second")
    rows = read.watermark("ts", max_delay="1 second").rebalance()
    job = with_ledgers(p, {"out": (rows, rows_of(tables))})
    assert Simulation(job.plan, parallelism=2).run().outcome == "finished"
    job.check()
