"""A join in which one key has all rows: cuts between parts of a batch, and crashes after them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import Batch
from laminar_core.testing.jobs import Job, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

WORKERS = 2
ROWS = 40
BATCH_ROWS = 10
PIECE_ROWS = 8
PART_PAIRS = 60
PIECE_MS = 6.0
"""Simulated time that an operator behind the join needs for a piece."""
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("laminar_core.state.arrangement.CANDIDATES_MAX", PART_PAIRS),
        ("laminar_core.state.runs.BLOCK_ROWS_MAX", PIECE_ROWS),
        ("laminar_core.operators.joins.output.OUTPUT_ROWS_MAX", PIECE_ROWS),
    ):
        monkeypatch.setattr(name, value)


def side(number: str) -> list[pa.Table]:
    """Return rows of one key, a second apart, in a table for each worker."""
    rows = [{number: n, "key": "hot", "at": START + timedelta(seconds=n)} for n in range(ROWS)]
    return [pa.Table.from_pylist(rows[worker::WORKERS]) for worker in range(WORKERS)]


class Hot:
    """A job that pairs all rows of one key, and a simulation of it."""

    def __init__(self, timeout_ms: int | None, seed: int) -> None:
        self.spend: Callable[[float], None] = lambda _: None
        self.job = self._build()
        config = CoordinatorConfig(
            interval_ms=5, alignment_timeout_ms=timeout_ms, tolerable_failures=None
        )
        self.simulation = Simulation(
            self.job.plan, parallelism=WORKERS, seed=seed, checkpoint=config
        )
        self.spend = self.simulation.world.spend

    def _build(self) -> Job:
        p = Pipeline("hot-key")
        left, right = (
            p.source(name, MemorySource(side(name), batch_rows=BATCH_ROWS)).watermark("at")
            for name in ("left", "right")
        )
        pairs = left.join(right, on="key", within=("-1 hour", "1 hour"), name="join")
        rows = pairs.map(self._carry, name="slow")
        mine, theirs = (
            sorted((row for t in side(name) for row in t.to_pylist()), key=lambda r: r["at"])
            for name in ("left", "right")
        )
        expected = [
            one | {"right": two["right"], "at_right": two["at"]} for one in mine for two in theirs
        ]
        return with_ledgers(p, {"out": (rows, expected)})

    def _carry(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.spend(PIECE_MS)
        return batch

    def parts_in_flight(self) -> list[int]:
        """Return the rows of what was left of a batch at some cut."""
        store = self.simulation.store
        return [
            element.data.num_rows
            for checkpoint_id in store.manifests.ids()
            for manifest in [store.manifests.read(checkpoint_id)]
            for entry in manifest.inflight_data
            if entry.operator_id == "join" and entry.direction == "input"
            for element in store.parts.inflight(manifest.inflight_files).read(entry)
            if isinstance(element, Batch) and element.data.num_rows < BATCH_ROWS
        ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("timeout_ms", [None, 0, 30])
def test_every_pair_comes_once_whatever_is_cut_in_two(timeout_ms: int | None) -> None:
    """Goal: a barrier passes between two parts of a batch, and a crash after it changes nothing."""
    hot = Hot(timeout_ms, seed=1)
    simulation = hot.simulation
    for worker in range(WORKERS):
        kill = partial(simulation.kill_worker, worker)
        simulation.when(CheckpointCompleted, kill, 1 + worker)
    result = simulation.run_to_end()
    assert (result.outcome, result.generations) == ("finished", 1 + WORKERS)
    hot.job.check()
    was_in_two = bool(hot.parts_in_flight())
    assert was_in_two == (timeout_ms is not None), "nothing is in flight at an aligned cut"
