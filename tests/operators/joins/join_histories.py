"""Histories of a join: rows, watermarks, cuts, other numbers of workers; and who is late in them.

A history runs the operator in several subtasks, gives each row to the one that owns its key, and
notes which rows are in time by a model of its own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import cycle
from random import Random

import pyarrow as pa
from hypothesis import strategies as st

from laminar_core.codec.key_groups import key_group_range, key_groups_of, partition
from laminar_core.operators.base import (
    MultiInputSpec,
    Side,
    SideOutputs,
    Snapshot,
    SubtaskContext,
)
from laminar_core.protocol.types import (
    WATERMARK_END_US,
    WATERMARK_MIN_US,
    CheckpointId,
    Generation,
)
from laminar_core.state.chunks import MemoryBackend, StateBackend
from tests.state.shelves import rocks_backend

MAX_PARALLELISM = 8
LEFT_SCHEMA = pa.schema(
    [("id", pa.int64()), ("k", pa.string()), ("t", pa.timestamp("us")), ("v", pa.float64())]
)
RIGHT_SCHEMA = pa.schema([("u", pa.int64()), ("key", pa.string()), ("t", pa.timestamp("us"))])
SCHEMAS = (LEFT_SCHEMA, RIGHT_SCHEMA)
KEYS = ("k", "key")

Row = tuple[str | None, int | None, int]
"""Key, event time, number."""

ROW = st.tuples(
    st.sampled_from(["a", "b", "a", "b", "c", "", None]),
    st.integers(-2, 9) | st.integers(0, 3) | st.none(),
    st.integers(0, 3),
)
"""The time is less the least watermark at that moment."""
STEP = (
    st.tuples(st.just("rows"), st.sampled_from([0, 1]), st.lists(ROW, min_size=1, max_size=6))
    | st.tuples(st.just("rows"), st.sampled_from([0, 1]), st.lists(ROW, min_size=1, max_size=6))
    | st.tuples(st.just("watermark"), st.integers(1, 5))
    | st.tuples(st.just("one_watermark"), st.integers(0, 3), st.integers(0, 9))
    | st.tuples(st.just("cut"))
    | st.tuples(st.just("merge"))
    | st.tuples(st.just("full_restart"), st.integers(1, 4))
    | st.tuples(st.just("restart"), st.integers(1, 4))
)
STEPS = st.lists(STEP, max_size=20)


def dense_steps(seed: int) -> list[tuple]:
    """Return many steps with rows that mostly meet, so that cuts and restarts matter."""
    random = Random(seed)
    steps: list[tuple] = []
    for _ in range(24):
        kind = random.choices(
            ["rows", "watermark", "one_watermark", "cut", "merge", "restart", "full_restart"],
            [14, 5, 1, 4, 1, 2, 1],
        )[0]
        if kind == "rows":
            rows: list[Row] = [
                (
                    random.choice(["a", "a", "a", "b", None]),
                    random.randint(-1, 9),
                    random.randint(0, 3),
                )
                for _ in range(random.randint(1, 5))
            ]
            steps.append((kind, random.randint(0, 1), rows))
        elif kind in {"cut", "merge"}:
            steps.append((kind,))
        elif kind == "one_watermark":
            steps.append((kind, random.randint(0, 3), random.randint(0, 5)))
        else:
            steps.append((kind, random.randint(1, 3)))
    return steps


HISTORIES = STEPS | st.integers(0, 2**32).map(dense_steps)
"""Short histories, which show a fault simply, and dense ones, which find it."""


def batch(side: int, rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows of one side; of equal ones each comes."""
    keys, times, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    named = {"id": numbers, "u": numbers, "k": keys, "key": keys, "t": times, "v": numbers}
    schema = SCHEMAS[side]
    return pa.record_batch([pa.array(named[f.name], f.type) for f in schema], schema=schema)


def context(
    subtask: int = 0, parallelism: int = 1, backend: StateBackend | None = None
) -> SubtaskContext:
    """Return the place of a subtask; its rows are in memory unless a backend is given."""
    place = (subtask, parallelism, MAX_PARALLELISM, Generation(1))
    return SubtaskContext("join", *place, backend or MemoryBackend())


COLUMNS = ["id", "k", "t", "v", "u", "key", "t_right"]


def moment(time_us: int | None) -> datetime | None:
    return pa.scalar(time_us, pa.timestamp("us")).as_py()


def joined(left: Row | None, right: Row | None) -> dict:
    """Return the joined row of a left and a right row; one of them may be None."""
    key, time_us, number = left or (None, None, None)
    mine = [number, key, moment(time_us), None if number is None else float(number)]
    key, time_us, number = right or (None, None, None)
    return dict(zip(COLUMNS, [*mine, number, key, moment(time_us)], strict=True))


def left_alone(left: Row) -> dict:
    """Return a row of the left side as a semi or anti join emits it."""
    return {name: joined(left, None)[name] for name in LEFT_SCHEMA.names}


def emitted(*parts: pa.RecordBatch | Side) -> list[tuple]:
    """Return the numbers of the rows of each pair; rows of side outputs are left out."""
    main = [part for part in parts if isinstance(part, pa.RecordBatch)]
    return [(row["id"], row.get("u")) for part in main for row in part.to_pylist()]


class History:
    """An operator in some subtasks; ``times`` are the event-time columns of its result.

    Its rows are in memory, and after every other restore in RocksDB.

    ``judged_us``: the time of a row that decides whether it is late. ``lags_us``: how far columns
    of ``times`` may lag behind the watermark.
    """

    schemas = SCHEMAS

    def __init__(
        self,
        spec: MultiInputSpec,
        times: Sequence[str],
        workers: int = 1,
        *,
        judged_us: Callable[[int], int] = lambda time_us: time_us,
        lags_us: Sequence[int] | None = None,
    ) -> None:
        self.spec = spec
        self.accepted: tuple[list[Row], list[Row]] = ([], [])
        self.reached: tuple[list[int], list[int]] = ([], [])
        """The event time that its key had reached when each accepted row came."""
        self._judged_us = judged_us
        self._lags_us = lags_us or [0] * len(times)
        self.late: list[tuple[str, int]] = []
        """The number of each late row, and its side output."""
        self.given_back: list[tuple[str, int]] = []
        self.output: list[dict] = []
        self._times = times
        self._reached_us = [WATERMARK_MIN_US] * MAX_PARALLELISM
        """By key group: rows before this are late."""
        self._backends = cycle([MemoryBackend(), rocks_backend()])
        self._open(workers, [WATERMARK_MIN_US] * workers)

    def _open(self, workers: int, watermarks_us: list[int]) -> None:
        backend = next(self._backends)
        contexts = [context(n, workers, backend) for n in range(workers)]
        self.subtasks = [self.spec.open(one, *self.schemas) for one in contexts]
        self._watermarks_us = watermarks_us
        self._passed_us = [WATERMARK_MIN_US] * workers
        self._chains: list[list[Snapshot]] = [[] for _ in range(workers)]
        self.owned = [key_group_range(n, MAX_PARALLELISM, workers) for n in range(workers)]

    def run(self, steps: Iterable[tuple]) -> "History":
        """Do the steps; then the input ends."""
        for kind, *values in steps:
            getattr(self, kind)(*values)
        for subtask in range(len(self.subtasks)):
            self._advance(subtask, WATERMARK_END_US)
        assert sum(subtask.late_row_count for subtask in self.subtasks) == len(self.late)
        if isinstance(self.spec, SideOutputs):
            assert sorted(self.given_back) == sorted(self.late)
        return self

    def rows(self, side: int, rows: list[Row]) -> None:
        now_us = max(min(self._watermarks_us), 5)
        rows = [(key, None if t is None else now_us + t, number) for key, t, number in rows]
        table = self.batch(side, rows)
        groups = key_groups_of(table, [KEYS[side]], MAX_PARALLELISM).tolist()
        for row, group in zip(rows, groups, strict=True):
            if row[1] is not None and self._judged_us(row[1]) < self._reached_us[group]:
                self.late.append((("late_left", "late_right")[side], row[2]))
            else:
                self.accepted[side].append(row)
                self.reached[side].append(self._reached_us[group])
        parts = partition(table, [KEYS[side]], MAX_PARALLELISM, len(self.subtasks))
        for subtask, part in parts:
            self._take(subtask, self.subtasks[subtask].process_input(side, part))

    def batch(self, side: int, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return the batch of these rows."""
        return batch(side, rows)

    def watermark(self, forward_us: int) -> None:
        least_us = max(min(self._watermarks_us), 0)
        for subtask in range(len(self.subtasks)):
            self._advance(subtask, least_us + forward_us)

    def one_watermark(self, subtask: int, forward_us: int) -> None:
        subtask %= len(self.subtasks)
        self._advance(subtask, max(self._watermarks_us[subtask], 0) + forward_us)

    def _advance(self, subtask: int, watermark_us: int) -> None:
        if watermark_us <= self._watermarks_us[subtask]:
            return
        self._watermarks_us[subtask] = watermark_us
        self._take(subtask, self.subtasks[subtask].on_watermark(watermark_us))
        for group in self.owned[subtask]:
            self._reached_us[group] = max(self._reached_us[group], watermark_us)
        if watermark_us != WATERMARK_END_US:
            passed_us = self.subtasks[subtask].output_watermark(watermark_us)
            assert passed_us <= watermark_us
            self._passed_us[subtask] = max(self._passed_us[subtask], passed_us)

    def _take(self, subtask: int, emitted: Iterable[pa.RecordBatch | Side]) -> None:
        for rows in emitted:
            if isinstance(rows, Side):
                numbers = rows.rows.column({"late_left": "id"}.get(rows.output, "u")).to_pylist()
                self.given_back += [(rows.output, number) for number in numbers]
                continue
            assert rows.num_rows
            for row in rows.to_pylist():
                self.output.append(row)
                for name, lag_us in zip(self._times, self._lags_us, strict=True):
                    if row[name] is not None:
                        time_us = int(row[name].timestamp() * 1_000_000)
                        assert time_us >= self._passed_us[subtask] - lag_us, "late downstream"

    def cut(self) -> None:
        for subtask, chain in zip(self.subtasks, self._chains, strict=True):
            chain.append(_kept(subtask.snapshot_changes(CheckpointId(1))()))

    def merge(self) -> None:
        """Merge the newer part of each chain, as a compaction does."""
        for subtask, chain in zip(self.subtasks, self._chains, strict=True):
            if len(chain) > 2:
                newest = chain[-1]
                tables = [table for snapshot in chain[1:] for table in snapshot.tables]
                merged = [
                    type(tables[0])(name, rows)
                    for name in dict.fromkeys(table.name for table in tables)
                    for rows in subtask.merge_tables(
                        name,
                        [table.rows for table in tables if table.name == name],
                        newest.expired_us.get(name),
                    )
                ]
                chain[1:] = [Snapshot(merged, newest.properties, expired_us=newest.expired_us)]

    def restart(self, workers: int) -> None:
        """Continue with so many workers from the chains of changes."""
        self.cut()
        chains = self._chains
        self._restored(
            workers,
            [
                Snapshot(
                    [table for snapshot in chain for table in snapshot.tables],
                    chain[-1].properties,
                    expired_us=chain[-1].expired_us,
                )
                for chain in chains
            ],
        )

    def full_restart(self, workers: int) -> None:
        """Continue with so many workers from full snapshots."""
        snapshots = [_kept(one.snapshot(CheckpointId(1))()) for one in self.subtasks]
        self._restored(workers, snapshots)

    def _restored(self, workers: int, snapshots: Sequence[Snapshot]) -> None:
        before = list(zip(self.owned, self._watermarks_us, snapshots, strict=True))
        self._open(workers, [])
        for owned, subtask in zip(self.owned, self.subtasks, strict=True):
            origins = [
                (watermark_us, snapshot)
                for groups, watermark_us, snapshot in before
                if groups.start < owned.stop and owned.start < groups.stop
            ]
            subtask.restore([snapshot for _, snapshot in origins])
            self._watermarks_us.append(min(watermark_us for watermark_us, _ in origins))


def _kept(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with its tables in a list, so that they can be read again."""
    tables = list(snapshot.tables)
    for table in tables:
        assert table.rows.num_rows
    return Snapshot(tables, snapshot.properties, expired_us=snapshot.expired_us)


def counted(rows: Iterable[dict]) -> Counter[tuple]:
    """Return how often each row comes."""
    return Counter(tuple(row.items()) for row in rows)
