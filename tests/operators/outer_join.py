"""An operator with three tables of state, each of other columns: an outer join of one input.

It is made for tests of the state, not for speed: every batch reads all rows. Rows say which side
they are of. A left row waits for right rows until ``LEFT_US`` after it, a right one for left rows
until ``RIGHT_US`` after it; a left row that has met none by then is emitted alone. So a row is in
the result once, whatever comes first. At the end of the input follows how many rows each key had.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from laminar_core.codec.key_groups import key_groups_of
from laminar_core.operators.base import (
    JsonObject,
    PendingSnapshot,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.keyed import (
    key_group_properties,
    number,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.operators.progress import Progress, least_watermark_us, progress_properties
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from laminar_core.state.chunks import Chunk, Shelf
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TABLES, WEIGHT, TableLayout, described
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE

SECOND_US = 1_000_000
LEFT_US = 10 * SECOND_US
RIGHT_US = 3 * SECOND_US

INPUT = pa.schema(
    [("key", pa.string()), ("ts", TIME_TYPE), ("side", pa.string()), ("value", pa.int64())]
)
OUTPUT = pa.schema([("key", pa.string()), ("left", pa.int64()), ("right", pa.string())])

_KEYED = [(KEY_GROUP, pa.int32()), ("key", pa.string())]
LEFT = TableLayout(
    "left",
    pa.schema(
        [
            *_KEYED,
            ("ts", TIME_TYPE),
            ("value", pa.int64()),
            ("_matched", pa.bool_()),
            (EXPIRES, TIME_TYPE),
            (WEIGHT, pa.int32()),
        ]
    ),
    ("key",),
    "weights",
)
RIGHT = TableLayout(
    "right",
    pa.schema([*_KEYED, (EXPIRES, pa.int64()), ("said", pa.string())]),
    ("key",),
    "append",
)
SEEN = TableLayout("seen", pa.schema([*_KEYED, ("rows", pa.int64())]), ("key",), "newest")
LAYOUTS = {layout.name: layout for layout in (LEFT, RIGHT, SEEN)}


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """The plan's view of the operator."""

    redistribution: ClassVar[Redistribution] = "keyed"
    operator_id: str

    def describe(self) -> JsonObject:
        return {"kind": "test-outer-join", TABLES: described(LAYOUTS.values())}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        del input_schema
        return OUTPUT

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        del input_schema
        return {name: layout.schema for name, layout in LAYOUTS.items()}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "OuterJoiner":
        del input_schema
        return OuterJoiner(context)


class Kept:
    """The rows of one table, as chunks on the backend's shelf."""

    def __init__(self, layout: TableLayout, shelf: Shelf) -> None:
        self.layout = layout
        self._shelf = shelf
        self._chunks: list[Chunk] = []
        self._fresh = 0
        """Number of chunks before the last cut of changes."""

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._chunks.append(self._shelf.put(0, 0, rows.combine_chunks()))

    def table(self, expired_us: int | None = None) -> pa.Table:
        return self.layout.merge([chunk.read() for chunk in self._chunks], expired_us)

    def rows(self, expired_us: int | None = None) -> list[dict[str, Any]]:
        return self.table(expired_us).to_pylist()

    def pin(self) -> tuple[Chunk, ...]:
        return tuple(self._chunks)

    def take_changes(self) -> tuple[Chunk, ...]:
        fresh, self._fresh = self._chunks[self._fresh :], len(self._chunks)
        return tuple(fresh)


class OuterJoiner:
    """The running instance."""

    def __init__(self, context: SubtaskContext) -> None:
        self.late_row_count = 0
        self.watermark_us: int | None = None
        self._context = context
        self._kept = {
            name: Kept(layout, context.backend.shelf(layout.schema))
            for name, layout in LAYOUTS.items()
        }
        self._ahead: Progress | None = None
        self._has_ended = False

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep the rows that are in time; yield the new pairs."""
        rows = self._in_time(pa.Table.from_batches([batch])).to_pylist()
        pairs: list[tuple] = []
        for row in rows:
            pairs += self._met(row) if row["side"] == "left" else self._meeting(row)
        before = {row["key"]: row["rows"] for row in self._kept["seen"].rows()}
        seen = Counter(row["key"] for row in rows)
        counts = [{"key": key, "rows": before.get(key, 0) + n} for key, n in seen.items()]
        self._keep("seen", counts)
        if pairs:
            yield _emitted(pairs)

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield left rows that nothing can meet any more, and at the end the numbers of rows."""
        before_us, now_us = self.expired_us, watermark_us - 1
        if before_us is not None and now_us <= before_us:
            return
        alone = [
            (row["key"], row["value"], None)
            for row in self._kept["left"].rows(before_us)
            if _us(row[EXPIRES]) <= now_us and not row["_matched"]
            for _ in range(row[WEIGHT])
        ]
        self.watermark_us = watermark_us
        if self._ahead is not None and not self._ahead.is_ahead_of(watermark_us):
            self._ahead = None
        if watermark_us == WATERMARK_END_US:
            alone += [(row["key"], row["rows"], "rows") for row in self._kept["seen"].rows()]
            self._has_ended = True
        if alone:
            yield _emitted(alone)

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark behind which no row waits."""
        return watermark_us - LEFT_US

    def state(self) -> dict[str, pa.Table]:
        """Return the rows of each table that have not expired."""
        return {name: kept.table(self.expired_us) for name, kept in self._kept.items()}

    @property
    def expired_us(self) -> int | None:
        """Rows that expire then have nothing more to meet: a row at the watermark may come."""
        return None if self.watermark_us is None else self.watermark_us - 1

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        del checkpoint_id
        return self._pending({name: kept.pin() for name, kept in self._kept.items()})

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        del checkpoint_id
        return self._pending({name: kept.take_changes() for name, kept in self._kept.items()})

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        yield LAYOUTS[name].merge(tables, expired_us)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        owned = owned_key_groups(self._context)
        ranges = restored_key_groups(snapshots, self._context)
        for snapshot, groups in zip(snapshots, ranges, strict=True):
            for table in snapshot.tables:
                if table.name == "seen" and snapshot.properties["has_ended"]:
                    continue  # These numbers were emitted.
                of_row = table.rows.column(KEY_GROUP).to_numpy()
                mine = (of_row >= owned.start) & (of_row < owned.stop)
                self._kept[table.name].add(table.rows.filter(pa.array(mine)))
            if groups.start in owned:
                self.late_row_count += number(snapshot.properties["late_row_count"])
        self.watermark_us = least_watermark_us(snapshots)
        groups = self._context.max_parallelism
        self._ahead = Progress.restored(snapshots, ranges, owned, groups)

    def _pending(self, pinned: Mapping[str, Sequence[Chunk]]) -> PendingSnapshot:
        """Pin all tables; what has expired is left to those who read them."""
        expired_us = self.expired_us
        properties: JsonObject = {
            **progress_properties(self.watermark_us, self._ahead),
            **key_group_properties(self._context),
            "late_row_count": self.late_row_count,
            "has_ended": self._has_ended,
        }
        expired = {} if expired_us is None else {"left": expired_us, "right": expired_us}

        def finish_snapshot() -> Snapshot:
            tables = (
                StateTable(name, LAYOUTS[name].merge([c.read() for c in chunks], None))
                for name, chunks in pinned.items()
            )
            return Snapshot(tables, properties, expired_us=expired)

        return finish_snapshot

    def _in_time(self, rows: pa.Table) -> pa.Table:
        times_us = rows.column("ts").cast(pa.int64()).to_numpy()
        late = np.zeros(rows.num_rows, np.bool_)
        if self.watermark_us is not None:
            late |= times_us < self.watermark_us
        if self._ahead is not None:
            late |= self._ahead.is_late(rows, ["key"], times_us)
        self.late_row_count += int(late.sum())
        return rows.filter(pa.array(~late))

    def _met(self, row: dict[str, Any]) -> list[tuple]:
        """Pairs of a left row that comes, which is kept."""
        said = [r["said"] for r in self._kept["right"].rows() if _meet(row, r)]
        self._keep("left", [_left(row, matched=bool(said), weight=1)])
        return [(row["key"], row["value"], word) for word in said]

    def _meeting(self, row: dict[str, Any]) -> list[tuple]:
        """Pairs of a right row that comes; left rows that met none before have met one."""
        right = {"key": row["key"], EXPIRES: _us(row["ts"]) + RIGHT_US, "said": f"r{row['value']}"}
        met = [r for r in self._kept["left"].rows() if _meet(r, right)]
        first = [r for r in met if not r["_matched"]]
        changed = [_left(r, matched=False, weight=-r[WEIGHT]) for r in first]
        changed += [_left(r, matched=True, weight=r[WEIGHT]) for r in first]
        self._keep("left", changed)
        self._keep("right", [right])
        return [(r["key"], r["value"], right["said"]) for r in met for _ in range(r[WEIGHT])]

    def _keep(self, name: str, rows: list[dict[str, Any]]) -> None:
        if rows:
            schema = LAYOUTS[name].schema
            batch = pa.RecordBatch.from_pylist(rows, schema=schema.remove(0))
            groups = key_groups_of(batch, ["key"], self._context.max_parallelism)
            columns = [pa.array(groups.astype(np.int32)), *batch.columns]
            self._kept[name].add(pa.table(columns, schema=schema))


def _left(row: Mapping[str, Any], *, matched: bool, weight: int) -> dict[str, Any]:
    kept = {"key": row["key"], "ts": row["ts"], "value": row["value"], "_matched": matched}
    return {**kept, EXPIRES: _us(row["ts"]) + LEFT_US, WEIGHT: weight}


def _meet(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    after_us = right[EXPIRES] - RIGHT_US - _us(left["ts"])
    return left["key"] == right["key"] and -RIGHT_US <= after_us <= LEFT_US


def _us(time: Any) -> int:
    return pa.scalar(time, TIME_TYPE).cast(pa.int64()).as_py()


def _emitted(rows: Sequence[tuple]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(OUTPUT.names, row, strict=True)) for row in rows], schema=OUTPUT
    )


def expected(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple]:
    """Return the pairs, the left rows without a partner, and the row counts, if no row is late."""
    left = [row for row in rows if row["side"] == "left"]
    right = [
        {"key": row["key"], EXPIRES: _us(row["ts"]) + RIGHT_US, "said": f"r{row['value']}"}
        for row in rows
        if row["side"] != "left"
    ]
    found: Counter[tuple] = Counter()
    for row in left:
        met = [r["said"] for r in right if _meet(row, r)]
        found.update((row["key"], row["value"], said) for said in met or [None])
    found.update((key, n, "rows") for key, n in Counter(row["key"] for row in rows).items())
    return found
