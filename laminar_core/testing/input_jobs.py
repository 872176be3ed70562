"""Jobs with an operator of two inputs: wrong if rows of one input are taken for the other's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from laminar_core.codec.key_groups import key_groups_of
from laminar_core.operators.base import (
    JsonObject,
    MultiInputSubtask,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
)
from laminar_core.operators.keyed import (
    key_group_properties,
    number,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.rescaling import Redistribution
from laminar_core.testing.jobs import (
    DELAY,
    SECOND_US,
    WINDOW_US,
    BuildJob,
    Burden,
    Job,
    Row,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource

_NO_TIME_US = -1
"""Before every row of these jobs."""
_TIME = pa.timestamp("us", tz="UTC")
_PAIRS = pa.schema([("key", pa.string()), ("ts", _TIME), ("id", pa.int64()), ("value", pa.int64())])
_HELD = pa.schema(
    [
        ("key_group", pa.int32()),
        ("key", pa.string()),
        ("window", pa.int64()),
        ("side", pa.int8()),
        ("id", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class PairRows:
    """Pairs payments (``id``, ``key``, ``ts``) with refunds (``refund``, ``shop``, ``at``).

    They are of one key and one window of ``WINDOW_US``. A pair is emitted once, when the second of
    its rows comes: ``id`` is the payment's, ``value`` the refund's, ``ts`` the last moment of the
    window. When event time has passed the window its rows are forgotten, and later ones dropped.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    operator_id: str

    @property
    def input_names(self) -> Sequence[str]:
        """Return the names of the inputs."""
        return ("payments", "refunds")

    def describe(self) -> JsonObject:
        """Return the kind."""
        return {"kind": "pair-rows"}

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of a pair."""
        del inputs
        return _PAIRS

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of a row that is held, of either input."""
        del inputs
        return {"": _HELD}

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> "RowPairer":
        """Create the running instance."""
        del inputs
        return RowPairer(context)


_COLUMNS = (("id", "key", "ts"), ("refund", "shop", "at"))


class RowPairer:
    """One subtask: the rows of both inputs whose keys it owns, by key and window."""

    def __init__(self, context: SubtaskContext) -> None:
        self.late_row_count = 0
        self._context = context
        self._owned = owned_key_groups(context)
        self._watermark_us = _NO_TIME_US
        self._held: dict[tuple[str, int], tuple[list[int], list[int]]] = {}

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of these rows with what has come on the other input."""
        names = _COLUMNS[index]
        columns = [batch.column(name) for name in names]
        groups = key_groups_of(batch, names[1:2], self._context.max_parallelism).tolist()
        pairs: list[Row] = []
        for group, *row in zip(groups, *(c.to_pylist() for c in columns), strict=True):
            if group not in self._owned:
                continue  # A broadcast input brings every row.
            row_id, key, at = row
            time_us = int(at.timestamp() * SECOND_US)
            window = time_us - time_us % WINDOW_US
            if window + WINDOW_US <= self._watermark_us:
                self.late_row_count += 1
                continue
            sides = self._held.setdefault((key, window), ([], []))
            sides[index].append(row_id)
            for other in sides[1 - index]:
                left, right = (row_id, other) if index == 0 else (other, row_id)
                pairs.append(_pair(key, window, left, right))
        if pairs:
            (rows,) = pa.Table.from_pylist(pairs, _PAIRS).to_batches()
            yield rows

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Forget the windows that are over."""
        self._watermark_us = watermark_us
        over = [place for place in self._held if place[1] + WINDOW_US <= watermark_us]
        for place in over:
            del self._held[place]
        return ()

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark: the last moment of a window that is not over is not before it."""
        return watermark_us

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the rows that are held."""
        del checkpoint_id
        held = [
            {"key": key, "window": window, "side": side, "id": row_id}
            for (key, window), sides in sorted(self._held.items())
            for side, ids in enumerate(sides)
            for row_id in ids
        ]
        properties: JsonObject = {
            **key_group_properties(self._context),
            "watermark_us": self._watermark_us,
            "late_row_count": self.late_row_count,
        }
        max_parallelism = self._context.max_parallelism

        def finish() -> Snapshot:
            return Snapshot.of([_stored(held, max_parallelism)] if held else [], properties)

        return finish

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Take the rows of the keys that this subtask owns; time is the least of all."""
        ranges = restored_key_groups(snapshots, self._context)
        for snapshot, groups in zip(snapshots, ranges, strict=True):
            for row in rows_of(list(snapshot.rows())):
                if row["key_group"] in self._owned:
                    side: int = row["side"]
                    sides = self._held.setdefault((row["key"], row["window"]), ([], []))
                    sides[side].append(row["id"])
            if groups.start in self._owned:
                self.late_row_count += number(snapshot.properties["late_row_count"])
        self._watermark_us = min(number(s.properties["watermark_us"]) for s in snapshots)


def _pair(key: str, window_us: int, left: int, right: int) -> Row:
    return {"key": key, "ts": window_us + WINDOW_US - 1, "id": left, "value": right}


def _stored(held: Sequence[Row], max_parallelism: int) -> pa.Table:
    (rows,) = pa.Table.from_pylist(list(held), _HELD.remove(0)).to_batches()
    groups = pa.array(key_groups_of(rows, ("key",), max_parallelism), pa.int32())
    return pa.table([groups, *rows.columns], schema=_HELD).sort_by("key_group")


@dataclass(frozen=True, slots=True)
class NameInputs:
    """Passes rows of any number of inputs on, each with the name of its input."""

    operator_id: str
    input_names: Sequence[str]

    def describe(self) -> JsonObject:
        """Return the names."""
        return {"kind": "name-inputs", "names": list(self.input_names)}

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of the first input, and the name."""
        return pa.schema([*inputs[0], ("input", pa.string())])

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> MultiInputSubtask:
        """Create the running instance."""
        del context
        return InputNamer(self.input_names, self.output_schema(*inputs))


class InputNamer:
    """One subtask; it has no state."""

    def __init__(self, names: Sequence[str], schema: pa.Schema) -> None:
        self._names = names
        self._schema = schema

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the name of their input."""
        name = pa.array([self._names[index]] * batch.num_rows, pa.string())
        yield pa.record_batch([*batch.columns, name], schema=self._schema)

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: rows pass at once."""
        del watermark_us
        return ()

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Return an empty snapshot."""
        del checkpoint_id
        return Snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing."""


# --- jobs -----------------------------------------------------------------------------------------


def pairs_job(parallelism: int) -> Job:
    """Return a job that pairs a slow stream with a fast one, and windows behind it."""
    del parallelism
    left, right, burden = payments(), refunds(), Burden()
    p = Pipeline("pairs")
    slow = p.source("payments", MemorySource(left)).watermark("ts", max_delay=DELAY)
    slow = slow.rebalance().map(burden.carry, name="slow")
    pairs = slow.key_by("key").connect(
        read_refunds(p, right).key_by("shop"), operator=PairRows("pair")
    )
    expected = paired(rows_of(left), rows_of(right))
    outputs = {"out": (pairs, expected), "windows": (windowed(pairs), totals(expected))}
    return with_ledgers(p, outputs, burden)


def broadcast_pairs_job(parallelism: int) -> Job:
    """Return a job that pairs a keyed stream with a broadcast one, for any number of workers."""
    del parallelism
    left, right, burden = payments(), refunds(), Burden()
    p = Pipeline("broadcast-pairs")
    rows = p.source("payments", MemorySource(left, gap_every=6)).watermark("ts", max_delay=DELAY)
    others = read_refunds(p, right).map(burden.carry, name="slow").broadcast()
    pairs = rows.key_by("key").connect(others, operator=PairRows("pair"))
    expected = paired(rows_of(left), rows_of(right))
    return with_ledgers(p, {"out": (pairs.rebalance(), expected)}, burden)


def named_inputs_job(parallelism: int) -> Job:
    """Return a job that connects one stream with itself, twice in another way."""
    del parallelism
    tables, burden = payments(rows=13), Burden()  # Each row is carried three times.
    p = Pipeline("named-inputs")
    rows = p.source("in", MemorySource(tables))
    dealt = rows.rebalance()
    named = rows.connect(dealt, dealt, operator=NameInputs("name", ("plain", "one", "two")))
    met = named.rebalance().map(burden.carry, name="slow")
    expected = [
        {**row, "input": name} for name in ("plain", "one", "two") for row in rows_of(tables)
    ]
    return with_ledgers(p, {"out": (met, expected)}, burden)


def refunds() -> list[pa.Table]:
    """Return payments of another seed, with other names of columns and another type of text."""
    return [
        pa.table(
            {
                "refund": table.column("id"),
                "shop": table.column("key").cast(pa.large_string()),
                "at": table.column("ts"),
            }
        )
        for table in payments(2, 50, seed=5)
    ]


def read_refunds(pipeline: Pipeline, tables: Sequence[pa.Table]) -> Stream:
    """Read refunds, with their event time."""
    source = MemorySource(tables, batch_rows=6, gap_every=9)
    return pipeline.source("refunds", source).watermark("at", max_delay=DELAY)


def paired(left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """Return all pairs of one key and one window, one row after the other."""

    def window(row: Row, name: str) -> int:
        time_us = int(row[name].timestamp() * SECOND_US)
        return time_us - time_us % WINDOW_US

    pairs = [
        _pair(one["key"], window(one, "ts"), one["id"], other["refund"])
        for one in left
        for other in right
        if one["key"] == other["shop"] and window(one, "ts") == window(other, "at")
    ]
    return rows_of([pa.Table.from_pylist(pairs, _PAIRS)])


INPUT_JOBS: dict[str, BuildJob] = {
    "pairs": pairs_job,
    "broadcast-pairs": broadcast_pairs_job,
    "named-inputs": named_inputs_job,
}
