"""The integration tests that document 000 names: real workers and coordinator, simulated cluster.

One operator is slow, so rows pile up in the queues in front of it, and barriers wait behind rows
or overtake them. Its slowness is simulated time, so the tests are fast and repeat exactly.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from statistics import median

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import Batch
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.testing.jobs import (
    DELAY,
    Job,
    Row,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

WORKERS = 3
ALIGNED, UNALIGNED_MS, SWITCH_MS = None, 0, 30
BUDGET_MS = 300
"""More than a checkpoint takes if nothing is in its way."""
MODES = "aligned", "switched"
SLOW_MS = 20.0
"""Per row; one queue of rows is seconds of work."""


class Slow:
    """A map that changes nothing and needs ``row_ms`` of simulated time a row."""

    def __init__(self, row_ms: float) -> None:
        self.row_ms = row_ms
        self.spend: Callable[[float], None] = lambda _: None

    def carry(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.spend(self.row_ms * batch.num_rows)
        return batch


class Backpressured:
    """A job with a slow operator, and one simulation of it."""

    def __init__(
        self,
        timeout_ms: int | None,
        seed: int = 0,
        row_ms: float = SLOW_MS,
        tables: Sequence[pa.Table] | None = None,
        pace: float | None = None,
    ) -> None:
        self.pace = pace
        """Rows per second that the sources send; None: as fast as they can."""
        self.tables = payments(WORKERS, 240) if tables is None else tables
        self.slow = Slow(row_ms)
        self.job = self.build()
        config = CoordinatorConfig(
            interval_ms=50, alignment_timeout_ms=timeout_ms, tolerable_failures=None
        )
        self.simulation = Simulation(
            self.job.plan, parallelism=WORKERS, seed=seed, checkpoint=config
        )
        self.slow.spend = self.simulation.world.spend

    def build(self) -> Job:
        """Rows as they are, dealt out to slow operators."""
        p = Pipeline("dealt")
        rows = p.source("in", MemorySource(self.tables, batch_rows=10), rows_per_second=self.pace)
        rows = rows.rebalance()
        return self.output(p, rows.map(self.slow.carry, name="slow"), rows_of(self.tables))

    def output(self, pipeline: Pipeline, stream: Stream, expected: list[Row]) -> Job:
        return with_ledgers(pipeline, {"out": (stream, expected)})

    def kill_after(self, checkpoints: int, worker: int = 2) -> None:
        kill = self.simulation.kill_worker
        self.simulation.when(CheckpointCompleted, lambda: kill(worker), checkpoints)

    def run_to_end(self) -> None:
        assert self.simulation.run_to_end().outcome == "finished"
        self.job.check()

    def completed(self) -> list[CheckpointCompleted]:
        """Checkpoints of sources that were still running: they had a barrier to send."""
        events = [e for e in self.simulation.events if isinstance(e, CheckpointCompleted)]
        ended = {m.checkpoint_id for m in self.manifests() if any(a.finished for a in m.alignment)}
        return [e for e in events if e.kind == "periodic" and e.checkpoint_id not in ended]

    def manifests(self) -> list[CheckpointManifest]:
        store = self.simulation.store
        return [store.manifests.read(checkpoint_id) for checkpoint_id in store.manifests.ids()]

    def restored(self) -> list[CheckpointManifest]:
        """Manifests of the checkpoints that later generations started from."""
        started = [e for e in self.simulation.events if isinstance(e, GenerationStarted)]
        ids = [e.restored_checkpoint_id for e in started if e.restored_checkpoint_id is not None]
        return [self.simulation.store.manifests.read(checkpoint_id) for checkpoint_id in ids]

    # --- the cut of a checkpoint, as rows ---------------------------------------------------------

    def inflight(self, manifest: CheckpointManifest) -> Counter[int]:
        """Rows in its files of in-flight data."""
        found: Counter[int] = Counter()
        files = self.simulation.store.parts.inflight(manifest.inflight_files)
        for entry in manifest.inflight_data:
            elements = files.read(entry)
            batches = [element.data for element in elements if isinstance(element, Batch)]
            assert (len(elements), sum(b.num_rows for b in batches)) == (
                entry.event_count,
                entry.row_count,
            )
            found += ids(batches)
        return found

    def sent(self, manifest: CheckpointManifest) -> Counter[int]:
        """Rows before its offsets: no source sends them again."""
        store = self.simulation.store
        states = [s for e in manifest.subtasks if e.operator_id == "in" for s in e.segments]
        splits = [row for state in states for row in store.parts.read_state(state).to_pylist()]
        read = [self.tables[s["split_id"]].slice(0, s["rows_read"]) for s in splits]
        return ids(batch for table in read for batch in table.to_batches())

    def written(self, manifest: CheckpointManifest) -> Counter[int]:
        """Rows that were output before it."""
        ledger, last = self.job.ledgers["out"], manifest.checkpoint_id
        parts = [name for c, names in ledger.commits.items() if c <= last for name in names]
        return ids(batch for part in parts for batch in ledger.visible[part])


def ids(batches: Iterable[pa.RecordBatch]) -> Counter[int]:
    return Counter(value for batch in batches for value in batch.column("id").to_pylist())


def test_unaligned_checkpoint_with_backpressure() -> None:
    """Goal: an aligned checkpoint takes as long as the queue, others take what they always do.

    Method: the same seed, while the operator becomes 10 and 100 times slower.
    """
    medians_ms: dict[tuple[int | None, float], float] = {}
    modes: dict[int | None, Counter[str]] = {}
    for timeout_ms in (ALIGNED, UNALIGNED_MS, SWITCH_MS):
        for row_ms in (SLOW_MS / 100, SLOW_MS / 10, SLOW_MS):
            run = Backpressured(timeout_ms, 1, row_ms, payments(WORKERS, 400))
            run.simulation.world.store_slowness = 0.5  # It is about queues, not about the store.
            run.run_to_end()
            events = run.completed()
            medians_ms[timeout_ms, row_ms] = median(e.duration_ms for e in events)
            modes[timeout_ms] = Counter(e.mode for e in events)
    assert medians_ms[ALIGNED, SLOW_MS] > 8 * medians_ms[ALIGNED, SLOW_MS / 100]
    for timeout_ms in (UNALIGNED_MS, SWITCH_MS):
        assert medians_ms[timeout_ms, SLOW_MS] < 4 * medians_ms[timeout_ms, SLOW_MS / 100]
        assert medians_ms[timeout_ms, SLOW_MS] < medians_ms[ALIGNED, SLOW_MS] / 5
    assert set(modes[ALIGNED]) == {"aligned"}
    assert set(modes[UNALIGNED_MS]) == {"unaligned"}
    assert modes[SWITCH_MS].most_common(1)[0][0] == "switched"


@pytest.mark.parametrize("timeout_ms", [UNALIGNED_MS, SWITCH_MS], ids=["unaligned", "switched"])
@pytest.mark.parametrize("seed", range(2))
def test_unaligned_checkpoint_save_and_load(seed: int, timeout_ms: int) -> None:
    """Goal: what is stored is one consistent cut, row by row.

    Method: for every checkpoint, the rows that sources do not send again are either output or in a
    file of in-flight data, and none is both. All files are read back through the store.
    """
    run = Backpressured(timeout_ms, seed)
    run.run_to_end()
    overtaken, directions = 0, set()
    for manifest in run.manifests():
        inflight = run.inflight(manifest)
        assert run.written(manifest) + inflight == run.sent(manifest)
        assert manifest.is_unaligned or not inflight
        overtaken += inflight.total()
        directions |= {entry.direction for entry in manifest.inflight_data if entry.row_count}
    assert overtaken > 1000
    assert directions == {"input", "output"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("checkpoints", [3, 5, 9])
@pytest.mark.parametrize("seed", range(2))
def test_unaligned_recovery_replays_inflight(seed: int, checkpoints: int) -> None:
    """Goal: rows that only the checkpoint has are processed once, besides what the sources send.

    Method: a worker dies after some unaligned checkpoint. Its in-flight rows are in no source's
    future, and yet they are in the output.
    """
    run = Backpressured(UNALIGNED_MS, seed)
    run.kill_after(checkpoints)
    run.run_to_end()
    (restored,) = run.restored()
    assert restored.mode == "unaligned"
    inflight, sent = run.inflight(restored), run.sent(restored)
    assert inflight.total() > 0
    assert inflight <= sent


def test_a_checkpoint_during_the_replay_has_what_is_not_replayed_yet() -> None:
    """PROTOCOL section 6: two crashes in a row, the second before the replay is over."""
    run = Backpressured(UNALIGNED_MS)
    run.kill_after(6)
    run.kill_after(7)
    run.run_to_end()
    first, second = run.restored()
    replayed = run.inflight(first) & run.inflight(second)
    assert replayed.total() > 0, "some rows were in flight at both cuts"
    assert run.written(second) + run.inflight(second) == run.sent(second)


def test_unaligned_then_aligned_sequence() -> None:
    """Goal: a checkpoint of either mode follows one of the other, and each can be restored.

    Method: the operator is slow by turns, the sources are paced; a worker dies after a checkpoint
    of the mode that is to be restored.
    """
    following: set[tuple[str, str]] = set()
    restored: set[str] = set()
    for seed in range(6):
        run = Backpressured(BUDGET_MS, seed, pace=600)
        for n in range(1, 60):
            row_ms = SLOW_MS if n % 6 < 2 else 0.0
            run.simulation.when(CheckpointCompleted, become(run.slow, row_ms), n)
            run.simulation.when(CheckpointCompleted, kill_once_after(run, MODES[seed % 2]), n)
        run.run_to_end()
        following |= set(pairwise(e.mode for e in run.completed()))
        restored |= {manifest.mode for manifest in run.restored()}
    assert {("aligned", "switched"), ("switched", "aligned")} <= following
    assert restored == {*MODES}


def become(slow: Slow, row_ms: float) -> Callable[[], None]:
    return lambda: setattr(slow, "row_ms", row_ms)


def kill_once_after(run: Backpressured, mode: str) -> Callable[[], None]:
    """When a checkpoint completes: kill a worker if it is of this mode, and none has died yet."""

    def look() -> None:
        newest = [e for e in run.simulation.events if isinstance(e, CheckpointCompleted)][-1]
        if newest.mode == mode and newest.checkpoint_id > 1 and not run.restored():
            run.simulation.kill_worker(0)

    return look


def test_a_stop_aligns_although_everything_else_overtakes() -> None:
    run = Backpressured(UNALIGNED_MS)
    run.simulation.when(CheckpointCompleted, run.simulation.stop, 2)
    assert run.simulation.run().outcome == "stopped"
    last = run.manifests()[-1]
    assert (last.kind, last.mode, last.inflight_data) == ("stop", "aligned", ())
    run.run_to_end()


class TwoInputs(Backpressured):
    """A join of two exchanges, with a slow operator and keyed windows behind it."""

    def build(self) -> Job:
        few, many = payments(WORKERS, 100), self.tables
        p = Pipeline("two-inputs")
        a = p.source("few", MemorySource(few)).watermark("ts", max_delay=DELAY)
        b = p.source("in", MemorySource(many, batch_rows=10)).watermark("ts", max_delay=DELAY)
        pairs = a.join(b, on="key", within=("-4 seconds", "4 seconds"), name="both")
        expected = [
            one
            for one in rows_of(few)
            for other in rows_of(many)
            if one["key"] == other["key"] and abs(one["ts"] - other["ts"]) <= timedelta(seconds=4)
        ]
        return self.output(p, windowed(pairs.map(self.slow.carry, name="slow")), totals(expected))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("timeout_ms", [UNALIGNED_MS, SWITCH_MS], ids=["unaligned", "switched"])
@pytest.mark.parametrize("seed", range(2))
def test_unaligned_with_join_operator(seed: int, timeout_ms: int) -> None:
    """Goal: a join under backpressure is cut consistently.

    Method: a worker dies after an unaligned checkpoint with rows of both inputs in flight.
    """
    run = TwoInputs(timeout_ms, seed, tables=payments(WORKERS, 200, seed=2))
    run.kill_after(3)
    run.run_to_end()
    overtaken = {
        entry.edge.input_index
        for manifest in run.restored()
        for entry in manifest.inflight_data
        if entry.edge.downstream == "both" and entry.row_count
    }
    assert overtaken == {0, 1}
