"""Exactly once from a source that delivers at least once: copies are told apart by their state.

The source repeats rows in every way there is: a batch again a moment later, everything since an
older position after a restart, the same rows from another split, and a generation that is over
although the next one has begun.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.connectors.base import SourceBatch
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.errors import DataError, ErrorCode
from laminar_core.pipeline import Pipeline, Retention
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.state.splits import at_rows, row_offsets
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemoryReader, MemorySource
from laminar_core.testing.simulation import Simulation
from tests.simulated.simulated_jobs import Job, normal, rows_of

PRODUCERS, ROWS = 5, 40


def produced() -> list[pa.Table]:
    """One split a producer, which starts anew after half of its rows."""
    half = ROWS // 2
    return [
        pa.table(
            {
                "who": [f"p{producer}"] * ROWS,
                "boot": [1] * half + [2] * half,
                "n": [*range(half)] * 2,
                "value": [1000 * producer + n for n in range(ROWS)],
            }
        )
        for producer in range(PRODUCERS)
    ]


def redelivered(tables: list[pa.Table]) -> pa.Table:
    """Half of all rows once more, in no order."""
    rows = pa.concat_tables(tables)
    chosen = Random(7).sample(range(rows.num_rows), rows.num_rows // 2)
    return rows.take(chosen)


@dataclass(frozen=True)
class AtLeastOnceSource(MemorySource):
    """Sends some batches twice, and remembers a position that lies behind what it has sent."""

    lag_rows: int = 9

    def open(self, splits: pa.Table) -> "AtLeastOnceReader":
        return AtLeastOnceReader(self, splits)


class AtLeastOnceReader(MemoryReader):
    def __init__(self, source: AtLeastOnceSource, splits: pa.Table) -> None:
        super().__init__(source, splits)
        self._lag_rows = source.lag_rows
        self._again: list[SourceBatch] = []
        self._random = Random(str(splits.to_pylist()))

    def poll(self, rows_max: int) -> SourceBatch | None:
        if self._again and self._random.random() < 0.3:
            return self._again.pop(self._random.randrange(len(self._again)))
        batch = super().poll(rows_max)
        if batch is None:
            return self._again.pop() if self._again else None
        if self._random.random() < 0.4:
            self._again.append(batch)
        return batch

    @property
    def finished(self) -> bool:
        return super().finished and not self._again

    def position(self) -> pa.Table:
        """A finished split is read again from its last rows on, too."""
        splits = super().position()
        return at_rows(splits, np.maximum(row_offsets(splits) - self._lag_rows, 0))


def job(*, deduplicated: bool = True, retention: Retention | None = None) -> Job:
    tables = produced()
    ledger = Ledger()
    p = Pipeline("copies")
    rows = p.source("in", AtLeastOnceSource([*tables, redelivered(tables)]))
    if deduplicated:
        rows = rows.deduplicate(
            producer="who", generation="boot", sequence="n", retention=retention
        )
    rows.sink("out", LedgerSink(ledger, "out"))
    return Job(p.plan(), {"out": rows_of(tables)}, {"out": ledger})


def simulation(of: Job, seed: int, **settings: int | None) -> Simulation:
    config = CoordinatorConfig(interval_ms=20, tolerable_failures=None, **settings)
    return Simulation(of.plan, parallelism=1 + seed % 3, seed=seed, checkpoint=config)


DISASTERS: dict[str, Callable[[Simulation, Random], None]] = {
    "worker": lambda s, dice: s.world.at_turn(
        dice.randrange(60, 400), lambda: s.kill_worker(dice.randrange(2))
    ),
    "driver": lambda s, dice: s.world.at_turn(dice.randrange(60, 400), s.kill_driver),
    "after-checkpoint": lambda s, dice: s.when(
        CheckpointCompleted, lambda: s.kill_worker(0), dice.randrange(1, 6)
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("timeout_ms", [None, 0, 5], ids=["aligned", "unaligned", "switched"])
@pytest.mark.parametrize("disaster", DISASTERS)
@pytest.mark.parametrize("seed", range(4))
def test_each_row_is_output_once_however_often_it_is_sent(
    seed: int, disaster: str, timeout_ms: int | None
) -> None:
    copies, dice = job(), Random(seed)
    running = simulation(copies, seed, alignment_timeout_ms=timeout_ms)
    for _ in range(2):
        DISASTERS[disaster](running, dice)
    assert running.run_to_end().outcome == "finished"
    copies.check()


def test_without_it_the_copies_are_output() -> None:
    """Guards the tests above: the source does repeat rows."""
    copies = job(deduplicated=False)
    simulation(copies, 1).run_to_end()
    output = normal(copies.ledgers["out"].rows())
    assert set(output) == set(normal(copies.expected["out"]))
    assert len(output) > 1.5 * PRODUCERS * ROWS


def test_a_retention_that_is_too_small_ends_the_job_and_says_so() -> None:
    copies = job(retention=Retention(gaps_max=0))
    running = simulation(copies, 2)
    with pytest.raises(DataError, match="gaps, the first one at") as caught:
        running.run_to_end()
    assert caught.value.code is ErrorCode.SEQUENCE_GAPS
