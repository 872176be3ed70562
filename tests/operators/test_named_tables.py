"""State in several tables of different columns: whatever is done with it, the rows are the same.

One job goes on undisturbed. Another one gets the same rows and watermarks, and is cut: fully or by
changes, whose segments are merged and dropped as they expire; from some cuts it is restored with
other workers, on another backend.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.codec.key_groups import key_group_range, partition
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import IncrementalSubtask, Snapshot, StateTable, SubtaskContext
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation
from laminar_core.records.manifest import fingerprint_of
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.segment import SegmentRef
from laminar_core.state.chunks import MemoryBackend, StateBackend
from laminar_core.state.expiry import unexpired
from laminar_core.state.rescaling import Rescaling
from laminar_core.state.rocks_chunks import RocksBackend
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.state_reading import read_rows, table_names
from laminar_core.worker.segments import SegmentWriter
from tests.operators.outer_join import (
    INPUT,
    LAYOUTS,
    SECOND_US,
    OuterJoin,
    OuterJoiner,
    expected,
)
from tests.records.manifests import manifest
from tests.sampling import drawn

KEY_GROUPS = 16
SPEC = OuterJoin("join")
Backend = Literal["memory", "rocksdb"]
Row = tuple[str, int, str, int]
"""Key, seconds, side, value."""


class AtOnce:
    """An executor that merges before the checkpoint goes on."""

    def submit(self, run, *arguments) -> None:
        run(*arguments)


@dataclass(frozen=True)
class Cut:
    """A checkpoint; ``parallelism`` and ``backend`` of the job that continues it, if one does."""

    mode: Literal["full", "changes"]
    parallelism: int | None
    backend: Backend


class Job:
    """All subtasks of the operator, and what a store holds of their state."""

    def __init__(self, parallelism: int, backend: Backend, folder: Path) -> None:
        self.emitted: Counter[tuple] = Counter()
        self.segments_max_seen = 0
        self.tables_seen: set[str] = set()
        self._folder = folder
        self._numbers = count()
        self._generations = count(1)
        self._store = CheckpointStore(MemoryObjectStore(), "job")
        self._checkpoints = count(1)
        self.backends: list[StateBackend] = []
        self._start(parallelism, backend)

    def _start(self, parallelism: int, backend: Backend) -> None:
        self.close()
        generation = Generation(next(self._generations))
        self.backends = [self._opened(backend) for _ in range(parallelism)]
        self.subtasks = [
            SPEC.open(SubtaskContext("join", n, parallelism, KEY_GROUPS, generation, b), INPUT)
            for n, b in enumerate(self.backends)
        ]
        options = StateOptions(segments_max=2)
        self._writers = [
            SegmentWriter(self._store, generation, n, options, AtOnce(), {"join"})
            for n in range(parallelism)
        ]

    def _opened(self, backend: Backend) -> StateBackend:
        if backend == "memory":
            return MemoryBackend()
        folder = self._folder / str(next(self._numbers))
        return RocksBackend(folder, 2_000, in_memory_files=True)

    def close(self) -> None:
        for backend in self.backends:
            backend.close()

    def feed(self, rows: Iterable[Row]) -> None:
        batch = batch_of(rows)
        for owner, part in partition(batch, ["key"], KEY_GROUPS, len(self.subtasks)):
            self._take(self.subtasks[owner].process(part))

    def advance(self, watermark_us: int, *subtasks: int) -> None:
        for n in subtasks or range(len(self.subtasks)):
            self._take(self.subtasks[n].on_watermark(watermark_us))

    def _take(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self.emitted.update(tuple(row.values()) for row in batch.to_pylist())

    @property
    def late(self) -> int:
        return sum(subtask.late_row_count for subtask in self.subtasks)

    def cut(self, cut: Cut) -> None:
        checkpoint_id = CheckpointId(next(self._checkpoints))
        entries = [
            self._entry(checkpoint_id, n, subtask, cut.mode)
            for n, subtask in enumerate(self.subtasks)
        ]
        self._read_back(entries)
        if cut.parallelism is not None:
            self._restart(entries, cut)

    def _entry(
        self, checkpoint_id: CheckpointId, index: int, subtask: OuterJoiner, mode: str
    ) -> SubtaskEntry:
        writer = self._writers[index]
        if mode == "full":
            snapshot = subtask.snapshot(checkpoint_id)()
            segments = writer.write_all(checkpoint_id, "join", snapshot.tables)
        else:
            snapshot = subtask.snapshot_changes(checkpoint_id)()
            writer.add_changes("join", snapshot)
            segments = writer.write_changes("join", snapshot.expired_us, subtask.merge_tables)
            self.segments_max_seen = max(self.segments_max_seen, len(segments))
        self.tables_seen |= {segment.table for segment in segments}
        return SubtaskEntry(
            operator_id="join",
            subtask_index=index,
            segments=segments,
            expired_us=dict(snapshot.expired_us),
            properties=json.loads(json.dumps(snapshot.properties)),
            sync_ms=0.0,
            async_ms=0.0,
        )

    def _read_back(self, entries: list[SubtaskEntry]) -> None:
        """A reader without the operator finds what the operator has."""
        text = {"join": SPEC.describe()}
        of = manifest(
            parallelism={"join": len(entries)},
            operators_description=text,
            fingerprint={"join": fingerprint_of(text["join"])},
            subtasks=tuple(entries),
            alignment=(),
        )
        for entry, subtask in zip(entries, self.subtasks, strict=True):
            for name, rows in subtask.state().items():
                found = read_rows(self._store.parts, of, entry, name)
                assert sorted_rows(found) == sorted_rows(rows), name
        assert set(table_names("join", of)) <= LAYOUTS.keys()

    def _restart(self, entries: list[SubtaskEntry], cut: Cut) -> None:
        before = len(self.subtasks)
        assert cut.parallelism is not None
        self._start(cut.parallelism, cut.backend)
        rescaling = Rescaling(before, cut.parallelism, KEY_GROUPS)
        for n, subtask in enumerate(self.subtasks):
            mine = key_group_range(n, KEY_GROUPS, cut.parallelism)
            origins = rescaling.origins("keyed", n)
            subtask.restore([self._snapshot(entries[origin], mine) for origin in origins])
            if before == cut.parallelism:
                subtask.snapshot_changes(CheckpointId(1))
                self._writers[n].adopt("join", entries[n].segments)

    def _snapshot(self, entry: SubtaskEntry, mine: range) -> Snapshot:
        """As a worker restores it: table by table, without what has expired or is of others."""

        def tables() -> Iterator[StateTable]:
            for segment in entry.segments:
                if concerns(segment, mine):
                    rows = self._store.parts.read_state(segment)
                    expired_us = entry.expired_us.get(segment.table)
                    yield StateTable(segment.table, unexpired(segment.table, rows, expired_us))

        return Snapshot(tables(), entry.properties, (), entry.expired_us)


def concerns(segment: SegmentRef, mine: range) -> bool:
    assert segment.key_groups is not None
    start, stop = segment.key_groups
    return start < mine.stop and mine.start < stop


def sorted_rows(table: pa.Table | None) -> list[str]:
    return [] if table is None else sorted(str(list(row.items())) for row in table.to_pylist())


def batch_of(rows: Iterable[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"key": k, "ts": s * SECOND_US, "side": side, "value": v} for k, s, side, v in rows],
        schema=INPUT,
    )


@contextmanager
def jobs(parallelism: int, backend: Backend = "memory") -> Iterator[tuple[Job, Job]]:
    """Yield one that stays as it is, and one to be cut."""
    folder = Path(mkdtemp(prefix="laminar-tables-"))
    stays, moves = Job(parallelism, "memory", folder), Job(parallelism, backend, folder)
    try:
        yield stays, moves
    finally:
        moves.close()
        stays.close()
        shutil.rmtree(folder, ignore_errors=True)


KEYS = [f"k{n}" for n in range(7)]
ROWS = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.integers(0, 60),
        st.sampled_from(["left", "right"]),
        st.integers(0, 3),
    ),
    max_size=6,
)
AHEAD = st.tuples(st.integers(0, 2), st.integers(5, 50))
"""A subtask, before any restore, and how far it alone has come in event time, in seconds."""
STEPS = st.lists(ROWS | st.integers(0, 70), min_size=1, max_size=12)
CUTS = st.builds(
    Cut,
    mode=st.sampled_from(["full", "changes", "changes"]),
    parallelism=st.none() | st.integers(1, 4),
    backend=st.sampled_from(["memory", "rocksdb"]),
)


@pytest.mark.large
@settings(max_examples=drawn(80), deadline=None)
@given(
    first=ROWS,
    ahead=AHEAD,
    steps=STEPS,
    cuts=st.dictionaries(st.integers(0, 12), CUTS, max_size=6),
    backend=st.sampled_from(["memory", "rocksdb"]),
)
def test_wherever_the_job_is_cut_its_rows_are_those_of_one_that_is_not(
    first: list[Row], ahead: tuple[int, int], steps: list, cuts: dict, backend: Backend
) -> None:
    with jobs(3, backend) as both:
        for job in both:
            job.feed(first)
            job.advance(ahead[1] * SECOND_US, ahead[0])
        for number, step in enumerate([*steps, WATERMARK_END_US]):
            if number in cuts:
                both[1].cut(cuts[number])
            for job in both:
                if isinstance(step, list):
                    job.feed(step)
                else:
                    job.advance(step * SECOND_US if step < WATERMARK_END_US else step)
        stays, moves = both
        assert moves.emitted == stays.emitted
        assert moves.late == stays.late


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("mode", ["full", "changes"])
def test_of_keys_that_were_ahead_nothing_comes_again_and_late_rows_stay_late(mode, workers) -> None:
    """A left row at 5 s has expired when the watermark is 16 s; there a row at 16 s is in time."""
    with jobs(3) as both:
        for job in both:
            job.feed((key, 5, "left", 0) for key in KEYS)
            job.advance(16 * SECOND_US, 0)
        stays, moves = both
        ahead = sum(moves.emitted.values())
        assert 0 < ahead < len(KEYS)
        moves.cut(Cut(mode, workers, "memory"))
        for job in both:
            job.advance(14 * SECOND_US)
            for second, side in ((15, "left"), (15, "right"), (16, "left"), (18, "right")):
                job.feed((key, second, side, second) for key in KEYS)
            job.advance(17 * SECOND_US)
            job.advance(WATERMARK_END_US)
        assert moves.emitted == stays.emitted
        assert moves.late == stays.late == 2 * ahead


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("mode", ["full", "changes"])
def test_from_one_to_three_to_two_no_row_is_lost_or_twice(mode, backend) -> None:
    """Chains grow, are merged and dropped; every row is in the result of all rows once."""
    rows = [
        (KEYS[n % 7], n // 2, "left" if n % 3 else "right", n) for n in range(200)
    ]  # In the order of time.
    with jobs(1, backend) as (_, job):
        for number in range(20):
            job.feed(rows[10 * number : 10 * number + 10])
            job.advance(rows[10 * number][1] * SECOND_US)
            changed = {6: 3, 13: 2}.get(number)
            job.cut(Cut(mode, changed, backend))
        job.advance(WATERMARK_END_US)
        assert job.emitted == expected(batch_of(rows).to_pylist())
        assert job.late == 0
        assert job.tables_seen == LAYOUTS.keys()
        if mode == "changes":
            assert 3 < job.segments_max_seen <= 3 * 3, "merged per table, not only dropped"


def test_the_operator_has_incremental_snapshots() -> None:
    context = SubtaskContext("join", 0, 1, KEY_GROUPS, Generation(1))
    assert isinstance(SPEC.open(context, INPUT), IncrementalSubtask)
