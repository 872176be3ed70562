"""Windowed aggregation against a naive model: undisturbed, cut anywhere, on any backend."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.codec.arrow import decode_table, encode_table
from laminar_core.codec.key_groups import partition
from laminar_core.operators import agg
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import Snapshot, SubtaskContext, one_table
from laminar_core.operators.windows import CumulativeWindow, SlidingWindow, TumblingWindow, Window
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation
from laminar_core.state import panes, window_state
from laminar_core.state.chunks import MemoryBackend, StateBackend
from laminar_core.state.rocks_chunks import RocksBackend
from laminar_core.state.window_state import window_starts_of
from tests.sampling import drawn

KEYS = ("merchant", "country")
AGGREGATES = (
    agg.count(), agg.count("v"), agg.sum("v"), agg.min("v"), agg.max("v"), agg.avg("v"),
    agg.sum("v / 2"), agg.max("merchant", name="merchant again"),
)  # fmt: skip
MAX_PARALLELISM = 8
SEGMENTS_MAX = 3
ID = CheckpointId(1)
Row = tuple[str | None, int, int, int | None]  # Merchant, country, event time, v.


@pytest.fixture(scope="module", autouse=True)
def small_panes() -> Iterator[None]:
    """Let a handful of rows cross every threshold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panes, "PENDING_ROWS_MIN", 2)
        patch.setattr(panes, "PENDING_TABLES_MAX", 1)
        patch.setattr(panes, "BUCKET_ROWS_MAX", 2)
        patch.setattr(panes, "GATHERED_ROWS_MAX", 3)
        patch.setattr(panes, "TIDIED_ROWS_MAX", 4)
        patch.setattr(panes, "TABLE_BYTES_MAX", 200)
        patch.setattr(window_state, "TABLE_BYTES_MAX", 400)
        patch.setattr(window_state, "FIRED_ROWS_MIN", 5)
        patch.setattr(window_state, "_SCANS_MAX", 2)
        yield


class Model:
    """Does the work of the two operators one row and one window at a time."""

    def __init__(self, window: Window, lateness_us: int) -> None:
        self.window, self.lateness_us = window, lateness_us
        self.watermark_us: int | None = None
        self.late_row_count = 0
        self.open: dict[tuple[int, int], list[Row]] = {}

    def windows_of(self, time_us: int) -> list[tuple[int, int]]:
        """End and start of each window."""
        size, offset = self.window.size_us, self.window.offset_us
        if isinstance(self.window, CumulativeWindow):
            start = (time_us - offset) // size * size + offset
            ends = range(start + self.window.step_us, start + size + 1, self.window.step_us)
            return [(end, start) for end in ends if time_us < end]
        slide = self.window.slide_us
        last = (time_us - offset) // slide * slide + offset
        return [(start + size, start) for start in range(last, last - size, -slide)]

    def has_fired(self, window: tuple[int, int]) -> bool:
        end_us = window[0] + self.lateness_us
        return self.watermark_us is not None and end_us <= self.watermark_us

    def add(self, rows: list[Row]) -> None:
        for row in rows:
            waiting = [s for s in self.windows_of(row[2]) if not self.has_fired(s)]
            self.late_row_count += not waiting
            for window in waiting:
                self.open.setdefault(window, []).append(row)

    def advance(self, watermark_us: int) -> list[tuple]:
        if self.watermark_us is None or watermark_us > self.watermark_us:
            self.watermark_us = watermark_us
        ripe = sorted(filter(self.has_fired, self.open))
        return [result for window in ripe for result in self.fire(window)]

    def fire(self, window: tuple[int, int]) -> list[tuple]:
        groups: dict[tuple, list[int | None]] = {}
        for merchant, country, _, value in self.open.pop(window):
            groups.setdefault((merchant, country), []).append(value)
        end_us, start_us = window
        return [(*key, start_us, end_us, *outcome(key, vs)) for key, vs in groups.items()]


def outcome(key: tuple, values: list[int | None]) -> tuple:
    known = [value for value in values if value is not None]
    if not known:
        return len(values), 0, None, None, None, None, None, key[0]
    total = sum(known)
    extremes = min(known), max(known)
    return len(values), len(known), total, *extremes, total / len(known), total / 2, key[0]


Backend = Literal["memory", "rocksdb"]


@dataclass(frozen=True)
class Cut:
    """A checkpoint; ``parallelism`` and ``backend`` of the job that continues it, if one does."""

    mode: Literal["full", "changes"]
    parallelism: int | None
    backend: Backend


class Job:
    """Both operators at some parallelism, with the exchange between them, and their chains."""

    def __init__(
        self,
        window: Window,
        lateness_us: int,
        parallelism: int,
        keys_are: str,
        backend: Backend = "memory",
    ) -> None:
        self.keys_are = keys_are
        self.partial = PartialAggregate("partial", KEYS, "ts", window, AGGREGATES)
        self.merging = WindowAggregate("window", KEYS, window, AGGREGATES, lateness_us)
        self.folder = Path(mkdtemp(prefix="laminar-model-"))
        self.numbers = count()
        self.backends: list[StateBackend] = []
        self.start(parallelism, backend)

    def start(self, parallelism: int, backend: Backend) -> None:
        self.close_backends()
        input_schema = self.batch([]).schema
        exchanged = self.partial.output_schema(input_schema)
        self.backends = [self.opened(backend) for _ in range(parallelism)]
        contexts = [
            SubtaskContext("any", i, parallelism, MAX_PARALLELISM, Generation(1), self.backends[i])
            for i in range(parallelism)
        ]
        self.combiner = self.partial.open(contexts[0], input_schema)
        self.subtasks = [self.merging.open(context, exchanged) for context in contexts]
        self.chains: list[list[pa.Table]] = [[] for _ in contexts]
        self.output_schema = self.merging.output_schema(exchanged)

    def opened(self, backend: Backend) -> StateBackend:
        if backend == "memory":
            return MemoryBackend()
        folder = self.folder / str(next(self.numbers))
        return RocksBackend(folder, 2_000, in_memory_files=True)  # Rows are put away soon.

    def close_backends(self) -> None:
        for backend in self.backends:
            backend.close()

    def close(self) -> None:
        self.close_backends()
        shutil.rmtree(self.folder, ignore_errors=True)

    def batch(self, rows: list[Row]) -> pa.RecordBatch:
        merchant, country, ts, v = zip(*rows, strict=True) if rows else ((), (), (), ())
        keys = {
            "country": pa.array(country, pa.int16()),
            "merchant": pa.array(merchant, pa.string()),
        }
        if self.keys_are == "encoded":
            keys = {name: column.dictionary_encode() for name, column in keys.items()}
        return pa.record_batch(
            {
                "v": pa.array(v, pa.int64()),
                "v / 2": pa.array([x if x is None else x / 2 for x in v], pa.float64()),
                "ts": pa.array(ts, pa.timestamp("us")),
                **keys,
            }
        )

    def add(self, rows: list[Row]) -> None:
        for partial in self.combiner.process(self.batch(rows)):
            for i, part in partition(partial, KEYS, MAX_PARALLELISM, len(self.subtasks)):
                assert list(self.subtasks[i].process(part)) == []

    def advance(self, watermark_us: int) -> list[tuple]:
        fired = []
        for subtask in self.subtasks:
            results = list(subtask.on_watermark(watermark_us))
            assert all(result.schema == self.output_schema for result in results)
            rows = [row for result in results for row in as_tuples(result)]
            assert [row[3] for row in rows] == sorted(row[3] for row in rows), "in window order"
            fired += rows
        return fired

    def cut(self, cut: Cut) -> None:
        """Take a checkpoint; lose everything and continue it, if somebody does."""
        full = cut.mode == "full"
        pending = [s.snapshot(ID) if full else s.snapshot_changes(ID) for s in self.subtasks]
        if cut.parallelism is not None:
            self.disturb()
        snapshots = [stored(finish()) for finish in pending]
        if not full:
            snapshots = [self.extended(i, snapshot) for i, snapshot in enumerate(snapshots)]
        if cut.parallelism is not None:
            self.restart(snapshots, cut.parallelism, cut.backend)

    def extended(self, index: int, changes: Snapshot) -> Snapshot:
        """The subtask's chain with these changes; what is void or too long is dealt with."""
        finished_us = changes.expired_us.get("")
        chain = [t for t in self.chains[index] if not is_void(t, finished_us)]
        chain += changes.rows()
        if len(chain) > SEGMENTS_MAX:
            merged = self.subtasks[index].merge_tables("", iter(chain[1:]), finished_us)
            chain = [chain[0], *merged]
        self.chains[index] = chain
        return stored(Snapshot.of(chain, changes.properties))

    def restart(self, snapshots: list[Snapshot], parallelism: int, backend: Backend) -> None:
        """Lose everything, restore with other workers, or with as many and go on with chains."""
        as_before = parallelism == len(self.subtasks)
        self.start(parallelism, backend)
        for index, subtask in enumerate(self.subtasks):
            owned = subtask._key_groups
            subtask.restore(
                [again(s) for s in snapshots if meets(s.properties["key_groups"], owned)]
            )
            if as_before:
                subtask.snapshot_changes(ID)
                self.chains[index] = list(snapshots[index].rows())

    def disturb(self) -> None:
        """Change the state between the cut and its completion; the snapshot must not see it."""
        self.add([("a", 1, 0, 1_000), (None, 2, 50, 1_000)])
        self.advance(10**6)

    @property
    def late_row_count(self) -> int:
        return sum(subtask.late_row_count for subtask in self.subtasks)


def meets(stored_range: list[int], owned: range) -> bool:
    return stored_range[0] < owned.stop and owned.start < stored_range[1]


def is_void(table: pa.Table, finished_us: int | None) -> bool:
    return finished_us is not None and int(window_starts_of(table).max()) <= finished_us


def stored(snapshot: Snapshot) -> Snapshot:
    """The snapshot as it comes back from a store."""
    tables = [decode_table(bytes(encode_table(table))) for table in snapshot.rows()]
    properties = json.loads(json.dumps(snapshot.properties))
    return Snapshot(tuple(one_table(tables)), properties, expired_us=snapshot.expired_us)


def again(snapshot: Snapshot) -> Snapshot:
    """Tables are iterated once, as those of the runtime are."""
    return Snapshot(iter(list(snapshot.tables)), snapshot.properties)


def as_tuples(batch: pa.RecordBatch) -> list[tuple]:
    as_integers = batch.set_column(2, "start", batch.column(2).cast(pa.int64()))
    as_integers = as_integers.set_column(3, "end", batch.column(3).cast(pa.int64()))
    return list(zip(*(column.to_pylist() for column in as_integers.columns), strict=True))


TIMES = st.integers(-60, 120)
ROWS = st.tuples(
    st.sampled_from(["a", "b", "", None]),
    st.sampled_from([1, 2]),
    TIMES,
    st.none() | st.integers(-1_000, 1_000),
)
STEPS = st.lists(st.lists(ROWS, max_size=8) | TIMES, max_size=12)
WINDOWS = st.sampled_from(
    [
        TumblingWindow(20),
        TumblingWindow(20, 7),
        SlidingWindow(30, 10),
        SlidingWindow(40, 20, 5),
        CumulativeWindow(30, 10),
        CumulativeWindow(40, 20, 5),
        CumulativeWindow(20, 20),
    ]
)


CUTS = st.builds(
    Cut,
    mode=st.sampled_from(["full", "changes", "changes"]),
    parallelism=st.none() | st.integers(1, 4),
    backend=st.sampled_from(["memory", "rocksdb"]),
)


@settings(max_examples=drawn(150), deadline=None)
@given(
    steps=STEPS,
    window=WINDOWS,
    lateness_us=st.sampled_from([0, 15]),
    cuts=st.dictionaries(st.integers(0, 12), CUTS, max_size=5),
    keys_are=st.sampled_from(["plain", "encoded"]),
    backend=st.sampled_from(["memory", "rocksdb"]),
)
def test_the_output_is_the_models_wherever_the_job_is_cut(
    steps: list, window: Window, lateness_us: int, cuts: dict, keys_are: str, backend: Backend
) -> None:
    """Goal: I1 to I3 of ``window_state``, and a restored job does what an undisturbed one does.

    Method: batches and watermarks in any order; before some steps a checkpoint is taken, of
    everything or of what changed, and the job may go on from it with 1 to 4 workers and with
    another backend. After each step, output and late rows are the model's.
    """
    model = Model(window, lateness_us)
    job = Job(window, lateness_us, 2, keys_are, backend)
    try:
        for number, step in enumerate([*steps, WATERMARK_END_US]):
            if number in cuts:
                job.cut(cuts[number])
            if isinstance(step, list):
                model.add(step)
                job.add(step)
            else:
                assert Counter(job.advance(step)) == Counter(model.advance(step))
            assert job.late_row_count == model.late_row_count
        assert model.open == {}
    finally:
        job.close()
