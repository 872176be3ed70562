"""Sessions against a plain loop over sorted rows, wherever rows and state are cut.

Histories are drawn: rows in any order, early and late, watermarks that subtasks reach at different
times, cuts of everything and of changes, chains that are merged and shortened as in a worker, and
restarts with any number of workers.
"""

import json
from dataclasses import dataclass, field
from itertools import cycle
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.codec.arrow import decode_table, encode_table
from laminar_core.codec.key_groups import key_group_range, key_groups_of, partition
from laminar_core.operators import agg
from laminar_core.operators.base import Snapshot, StateTable, SubtaskContext
from laminar_core.operators.sessions import SESSIONS, PartialSessions, Sessions
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation
from laminar_core.state import session_state
from laminar_core.state.chunks import MemoryBackend
from laminar_core.state.expiry import newest_expiry_us, unexpired
from laminar_core.state.reading import merged_rows
from tests.state.shelves import rocks_backend

KEYS = ("merchant", "country")
GAP_US = 10
MAX_PARALLELISM = 8
SEGMENTS_MAX = 2
ID = CheckpointId(1)
AGGREGATES = (
    agg.count(),
    agg.sum("v", name="total"),
    agg.min("v", name="least"),
    agg.max("v", name="most"),
    agg.count_distinct("v", name="distinct"),
)
SCHEMA = pa.schema(
    [
        ("v", pa.int64()),
        ("ts", pa.timestamp("us")),
        ("country", pa.int16()),
        ("merchant", pa.string()),
    ]
)
ALL_KEYS = [("a", 1), ("a", 2), (None, 1), ("b", None)]

Key = tuple[str | None, int | None]
Row = tuple[Key, int, int | None]
"""Key, event time, value."""
Result = tuple


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    lines = [{"merchant": k[0], "country": k[1], "ts": ts, "v": v} for k, ts, v in rows]
    return pa.RecordBatch.from_pylist(lines, schema=SCHEMA)


def group_of_keys() -> dict[Key, int]:
    batch = batch_of([(key, 0, 0) for key in ALL_KEYS])
    return dict(zip(ALL_KEYS, key_groups_of(batch, KEYS, MAX_PARALLELISM).tolist(), strict=True))


GROUPS = group_of_keys()


@dataclass
class Model:
    """A loop over the sorted rows of each key that came in time."""

    lateness_us: int
    rows: dict[Key, list[tuple[int, int | None]]] = field(default_factory=dict)
    reached_us: dict[Key, int] = field(default_factory=dict)
    emitted: set[tuple[Key, int]] = field(default_factory=set)
    late: int = 0

    def add(self, rows: list[Row]) -> None:
        for key, time_us, value in rows:
            if time_us + self.lateness_us < self.reached_us.get(key, time_us):
                self.late += 1
            else:
                self.rows.setdefault(key, []).append((time_us, value))

    def advance(self, watermark_us: int, groups: range) -> list[Result]:
        """Event time of the owner of these key groups; the sessions that end."""
        results: list[Result] = []
        for key, group in GROUPS.items():
            if group not in groups:
                continue
            self.reached_us[key] = max(self.reached_us.get(key, watermark_us), watermark_us)
            for session in self.sessions(key):
                start, end = session[0][0], session[-1][0] + GAP_US
                if end + self.lateness_us < watermark_us and (key, start) not in self.emitted:
                    self.emitted.add((key, start))
                    results.append(result(key, start, end, [value for _, value in session]))
        return results

    def sessions(self, key: Key) -> list[list[tuple[int, int | None]]]:
        found: list[list[tuple[int, int | None]]] = []
        for time_us, value in sorted(self.rows.get(key, []), key=lambda row: row[0]):
            if found and time_us <= found[-1][-1][0] + GAP_US:
                found[-1].append((time_us, value))
            else:
                found.append([(time_us, value)])
        return found


def result(key: Key, start: int, end: int, values: list[int | None]) -> Result:
    known = [value for value in values if value is not None]
    extremes = (min(known), max(known)) if known else (None, None)
    total = sum(known) if known else None
    return (*key, start, end, len(values), total, *extremes, len(set(known)))


class Job:
    """Both operators, the exchange between them, and the chains of each subtask.

    Sessions are in memory, and after every other restore in RocksDB.
    """

    def __init__(self, lateness_us: int, parallelism: int) -> None:
        self.partial = PartialSessions("partial", KEYS, "ts", GAP_US, AGGREGATES)
        self.spec = Sessions("sessions", KEYS, GAP_US, AGGREGATES, lateness_us)
        self.backends = cycle([MemoryBackend(), rocks_backend()])
        self.start(parallelism)

    def start(self, parallelism: int) -> None:
        exchanged = self.partial.output_schema(SCHEMA)
        backend = next(self.backends)
        contexts = [
            SubtaskContext("any", i, parallelism, MAX_PARALLELISM, Generation(1), backend)
            for i in range(parallelism)
        ]
        self.combiner = self.partial.open(contexts[0], SCHEMA)
        self.subtasks = [self.spec.open(context, exchanged) for context in contexts]
        self.reached_us: list[int | None] = [None] * parallelism
        self.chains: list[list[pa.Table]] = [[] for _ in contexts]

    def groups(self, index: int) -> range:
        return key_group_range(index, MAX_PARALLELISM, len(self.subtasks))

    def add(self, rows: list[Row]) -> None:
        for partial in self.combiner.process(batch_of(rows)):
            for i, part in partition(partial, KEYS, MAX_PARALLELISM, len(self.subtasks)):
                assert list(self.subtasks[i].process(part)) == []

    def sender_reaches(self, watermark_us: int) -> None:
        assert self.combiner.on_watermark(watermark_us) == ()

    def advance(self, index: int, watermark_us: int) -> list[Result]:
        subtask = self.subtasks[index]
        rows = [row for b in subtask.on_watermark(watermark_us) for row in as_tuples(b)]
        passed = self.reached_us[index]
        self.reached_us[index] = watermark_us if passed is None else max(passed, watermark_us)
        return rows

    def cut(self, *, full: bool, parallelism: int | None, random: Random) -> None:
        """Take a checkpoint; lose everything and continue from it, if somebody does."""
        pending = [s.snapshot(ID) if full else s.snapshot_changes(ID) for s in self.subtasks]
        everything = [s.snapshot(ID) for s in self.subtasks]
        if parallelism is not None:  # The snapshot must not see what comes after its cut.
            self.add([(random.choice(ALL_KEYS), random.randrange(200), 1_000) for _ in range(9)])
            for index in range(len(self.subtasks)):
                list(self.subtasks[index].on_watermark(150))
        snapshots = [stored(finish()) for finish in pending]
        if not full:
            snapshots = [self.extended(i, snapshot) for i, snapshot in enumerate(snapshots)]
        for snapshot, finish in zip(snapshots, everything, strict=True):
            self.require_readable(snapshot, finish())
        if parallelism is not None:
            self.restart(snapshots, parallelism, full=full)

    def extended(self, index: int, changes: Snapshot) -> Snapshot:
        """The subtask's chain with these changes; what is void or too long is dealt with."""
        expired_us = changes.expired_us.get(SESSIONS)
        chain = [t for t in self.chains[index] if not is_void(t, expired_us)]
        chain += [table.rows for table in changes.tables]
        if len(chain) > SEGMENTS_MAX:
            merge = self.subtasks[index].merge_tables
            chain = [chain[0], *merge(SESSIONS, iter(chain[1:]), expired_us)]
        self.chains[index] = chain
        tables = tuple(StateTable(SESSIONS, rows) for rows in chain)
        return Snapshot(tables, changes.properties, expired_us=changes.expired_us)

    def require_readable(self, snapshot: Snapshot, everything: Snapshot) -> None:
        """Without the operator, the chain is what the operator held at the cut."""
        held = [line for table in everything.tables for line in table.rows.to_pylist()]
        found: list[dict] = []
        if tables := [table.rows for table in snapshot.tables]:
            expired_us = snapshot.expired_us.get(SESSIONS)
            found = merged_rows(tables, self.spec.describe(), expired_us, SESSIONS).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, held))

    def restart(self, snapshots: list[Snapshot], parallelism: int, *, full: bool) -> None:
        as_before = parallelism == len(self.subtasks)
        reached_us, owned = self.reached_us, [self.groups(i) for i in range(len(self.subtasks))]
        self.start(parallelism)
        for index, subtask in enumerate(self.subtasks):
            mine = [i for i, groups in enumerate(owned) if meets(groups, self.groups(index))]
            subtask.restore([restorable(snapshots[i]) for i in mine])
            known = [us for i in mine if (us := reached_us[i]) is not None]
            self.reached_us[index] = min(known) if len(known) == len(mine) else None
            if as_before and not full:
                subtask.snapshot_changes(ID)
                self.chains[index] = [table.rows for table in snapshots[index].tables]

    @property
    def late(self) -> int:
        return sum(subtask.late_row_count for subtask in self.subtasks)


def meets(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def is_void(table: pa.Table, expired_us: int | None) -> bool:
    newest_us = newest_expiry_us(SESSIONS, table)
    return expired_us is not None and newest_us is not None and newest_us <= expired_us


def stored(snapshot: Snapshot) -> Snapshot:
    """The snapshot as it comes back from a store."""
    tables = [
        StateTable(table.name, decode_table(bytes(encode_table(table.rows))))
        for table in snapshot.tables
    ]
    for table in tables:
        groups = table.rows.column("key_group").to_numpy()
        assert (np.diff(groups) >= 0).all()
    properties = json.loads(json.dumps(snapshot.properties))
    return Snapshot(tuple(tables), properties, expired_us=snapshot.expired_us)


def restorable(snapshot: Snapshot) -> Snapshot:
    """The runtime leaves out what has expired; tables are iterated once."""
    expired_us = snapshot.expired_us.get(SESSIONS)
    tables = [StateTable(t.name, unexpired(t.name, t.rows, expired_us)) for t in snapshot.tables]
    return Snapshot(iter(tables), snapshot.properties)


def as_tuples(batch: pa.RecordBatch) -> list[Result]:
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def key_of(row: Result) -> str:
    return repr(row)


class History:
    """One history, drawn step by step."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        lateness_us = self.random.choice([0, 0, 7])
        self.parallelism = self.random.choice([1, 2, 3])
        self.job = Job(lateness_us, self.parallelism)
        self.model = Model(lateness_us)
        self.now_us = self.random.choice([-50, 0])

    def run(self, steps: int) -> None:
        for _ in range(steps):
            match self.random.randrange(6):
                case 0 | 1 | 2:
                    self.add()
                case 3 | 4:
                    self.advance()
                case _:
                    self.cut()
        self.reach([WATERMARK_END_US] * len(self.job.subtasks))
        assert self.job.late == self.model.late

    def add(self) -> None:
        rows = [
            (
                self.random.choice(ALL_KEYS),
                self.now_us + self.random.randrange(-15, 40),
                self.random.choice([None, 1, 2, 3, -4]),
            )
            for _ in range(self.random.randrange(1, 8))
        ]
        self.job.add(rows)
        self.model.add(rows)

    def advance(self) -> None:
        """Each subtask comes as far as it likes, but not further than the sender."""
        self.now_us += self.random.randrange(0, 25)
        self.job.sender_reaches(self.now_us)
        reached = [self.now_us - self.random.choice([0, 0, 0, 12]) for _ in self.job.subtasks]
        self.reach(reached)

    def reach(self, watermarks_us: list[int]) -> None:
        for index, watermark_us in enumerate(watermarks_us):
            if (passed := self.job.reached_us[index]) is not None and watermark_us <= passed:
                continue
            found = self.job.advance(index, watermark_us)
            expected = self.model.advance(watermark_us, self.job.groups(index))
            assert sorted(found, key=key_of) == sorted(expected, key=key_of)
            held_us = self.job.subtasks[index].output_watermark(watermark_us)
            assert watermark_us - self.model.lateness_us - 1 <= held_us
            assert held_us <= watermark_us - self.model.lateness_us

    def cut(self) -> None:
        parallelism = self.random.choice([None, 1, 2, 3, len(self.job.subtasks)])
        full = self.random.random() < 0.3
        self.job.cut(full=full, parallelism=parallelism, random=self.random)


@pytest.mark.large
@pytest.mark.sampled(5)
@pytest.mark.parametrize("chunk", range(11))
def test_sessions_are_the_models_wherever_the_job_is_cut(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chunk % 2:  # A session is in many runs, and many parts fire.
        monkeypatch.setattr(session_state, "_SIZE_RATIO", 0)
        monkeypatch.setattr(session_state, "FIRED_KEYS_MAX", 1)
    for seed in range(chunk * 100, chunk * 100 + 100):
        try:
            History(seed).run(steps=12)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.large
@pytest.mark.sampled(5)
@pytest.mark.parametrize("chunk", range(4))
def test_one_to_three_to_two_workers_and_chains_of_changes(chunk: int) -> None:
    for seed in range(chunk * 10, chunk * 10 + 10):
        history = History(seed)
        history.job.start(1)
        for parallelism in (1, 3, 3, 2, 2):
            for _ in range(3):
                history.add()
                history.advance()
                history.job.cut(full=False, parallelism=None, random=history.random)
            history.add()
            history.job.cut(full=False, parallelism=parallelism, random=history.random)
        history.run(steps=4)
