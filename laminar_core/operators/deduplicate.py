"""Drop duplicate rows of a source that delivers at least once.

Rows carry their producer, its generation, and a number that the generation counts up. A batch is
divided into runs of consecutive numbers by array operations, so each look-up is for a run, not a
row. ``laminar_core.protocol.dedup`` defines the state and its bounds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.grouping import comparable, plain_type
from laminar_core.codec.key_groups import key_group_order, key_groups_of
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.operators.keyed import (
    key_group_properties,
    number,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.operators.mapping import change_back_or_reset
from laminar_core.protocol.dedup import (
    Admitted,
    Expired,
    Retention,
    Run,
    SeenGeneration,
    SeenProducer,
    TooManyGaps,
    admit,
)
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.window_state import KEY_GROUP, rows_of_key_groups

Producer = str | bytes | int
_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """Let each row of (``producer``, ``generation``, ``sequence``) through once.

    All rows of a producer have to come to one subtask: the input is exchanged by ``producer``.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    operator_id: str
    producer: str
    generation: str
    sequence: str
    retention: Retention = field(default_factory=Retention)

    def describe(self) -> JsonObject:
        """Return the columns. The retention is not included, so it may change from now on."""
        return {
            "kind": "deduplicate",
            "producer": self.producer,
            "generation": self.generation,
            "sequence": self.sequence,
        }

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the input's schema.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), used twice (INVALID_PIPELINE),
                or has an unsupported type (UNSUPPORTED_TYPE).
        """
        require_columns(input_schema, [self.producer, self.generation, self.sequence])
        require_distinct(
            [self.producer, self.generation, self.sequence], "give each purpose its own column"
        )
        _require_producer_type(input_schema.field(self.producer).type)
        for name in (self.generation, self.sequence):
            _require_number_type(name, input_schema.field(name).type)
        return input_schema

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of a run of numbers per row, ``first`` to ``last``, both included."""
        return {"": self._stored_schema(input_schema)}

    def _stored_schema(self, input_schema: pa.Schema) -> pa.Schema:
        return pa.schema(
            [
                (KEY_GROUP, pa.int32()),
                ("producer", plain_type(input_schema.field(self.producer).type)),
                ("newest_forgotten", pa.int64()),
                ("generation", pa.int64()),
                ("first", pa.int64()),
                ("last", pa.int64()),
            ]
        )

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "Deduplicator":
        """Create the running instance."""
        return Deduplicator(self, context, self._stored_schema(input_schema))


class Deduplicator:
    """One subtask: what has come of the producers in its range of key groups."""

    def __init__(self, spec: Deduplicate, context: SubtaskContext, schema: pa.Schema) -> None:
        self.duplicate_row_count = 0
        """Number of duplicates dropped so far."""
        self.late_row_count = 0
        """Rows of forgotten generations dropped so far."""
        self._spec = spec
        self._context = context
        self._schema = schema
        self._seen: dict[Producer, SeenProducer] = {}

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return the rows that have not come before; they count as having come from now on.

        Raises:
            DataError: a row lacks one of the columns (NULL_KEY), a generation has more gaps than
                are remembered (SEQUENCE_GAPS) or is forgotten (GENERATION_FORGOTTEN).
        """
        if not batch.num_rows:
            return ()
        rows = SortedRows(batch, self._spec)
        seen: dict[Producer, SeenProducer] = {}
        expired = 0
        for group in rows.groups():
            before = seen.get(group.producer) or self._seen.get(group.producer, SeenProducer())
            match admit(before, group.generation, group.runs, self._spec.retention):
                case Admitted(after, fresh):
                    seen[group.producer] = after
                    rows.keep_only(group, fresh)
                case Expired(newest):
                    self._require_expiry(group, newest)
                    rows.keep_only(group, ())
                    expired += group.stop - group.start
                case TooManyGaps(gaps, first):
                    raise self._too_many_gaps(group, gaps, first)
        self._seen.update(seen)
        kept = rows.kept()
        self.late_row_count += expired
        self.duplicate_row_count += batch.num_rows - kept.num_rows - expired
        return (kept,) if kept.num_rows else ()

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: results do not depend on event time."""
        del watermark_us
        return ()

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin what has come; its table is built in the asynchronous phase."""
        del checkpoint_id
        pinned = dict(self._seen)
        max_parallelism = self._context.max_parallelism
        properties: JsonObject = {
            **key_group_properties(self._context),
            "duplicate_row_count": self.duplicate_row_count,
            "late_row_count": self.late_row_count,
        }

        def finish_snapshot() -> Snapshot:
            tables = [_stored_table(pinned, self._schema, max_parallelism)] if pinned else []
            return Snapshot.of(tables, properties)

        return finish_snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's.

        Raises:
            IncompatibleStateError: the type of the producer column has changed (OPERATORS_CHANGED).
        """
        owned = owned_key_groups(self._context)
        ranges = restored_key_groups(snapshots, self._context)
        for snapshot, of in zip(snapshots, ranges, strict=True):
            for table in snapshot.rows():
                self._require_compatible(table.schema)
                self._seen.update(_seen_of(rows_of_key_groups(table, owned)))
            if of.start in owned:
                self.duplicate_row_count += number(snapshot.properties["duplicate_row_count"])
                self.late_row_count += number(snapshot.properties["late_row_count"])

    def _require_expiry(self, group: "Group", newest_forgotten: int) -> None:
        if self._spec.retention.expired == "fail":
            raise DataError(
                ErrorCode.GENERATION_FORGOTTEN,
                f"{self._spec.operator_id}: rows of producer {group.producer!r} are of generation"
                f" {group.generation}, and generations up to {newest_forgotten} are forgotten, so"
                " they may be copies: raise generations_max for the next run; to continue"
                ' now, drop such rows with expired="drop"',
            )

    def _too_many_gaps(self, group: "Group", gaps: int, first_missing: int) -> DataError:
        return DataError(
            ErrorCode.SEQUENCE_GAPS,
            f"{self._spec.operator_id}: generation {group.generation} of producer"
            f" {group.producer!r} has {gaps} gaps, the first one at {first_missing}: number its"
            " rows consecutively, look for those that are missing, or raise gaps_max"
            f" ({self._spec.retention.gaps_max})",
        )

    def _require_compatible(self, found: pa.Schema) -> None:
        if not found.equals(self._schema):
            raise IncompatibleStateError(
                ErrorCode.OPERATORS_CHANGED,
                f"operator {self._spec.operator_id!r} does not fit the checkpoint: its producers"
                f" were {found.field('producer').type} and are"
                f" {self._schema.field('producer').type};"
                f" {change_back_or_reset(self._spec.operator_id)}",
            )


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one generation of one producer: sorted, and each number once."""

    producer: Producer
    generation: int
    start: int
    """Start of its half-open range among the sorted rows."""
    stop: int
    runs: tuple[Run, ...]


class SortedRows:
    """A batch by producer, generation and number; copies inside the batch are out already."""

    def __init__(self, batch: pa.RecordBatch, spec: Deduplicate) -> None:
        self._batch = batch
        producers = batch.column(spec.producer)
        plain = producers.cast(plain_type(producers.type))  # A dictionary may hold a null.
        producers = comparable(_not_null(plain, spec.producer)).dictionary_encode()
        generations = _integers(batch, spec.generation)
        numbers = _integers(batch, spec.sequence)
        codes = producers.indices.to_numpy().astype(np.int64)
        order = np.lexsort((numbers, generations, codes))  # Stable: of copies the first is kept.
        columns = [column[order] for column in (codes, generations, numbers)]
        begins_group = _changes(columns[0]) | _changes(columns[1])
        distinct = begins_group | _changes(columns[2])
        self._producers = producers.dictionary.to_pylist()
        self._order = order[distinct]
        self._codes, self._generations, self._numbers = (column[distinct] for column in columns)
        self._begins_group = begins_group[distinct]
        self._keep = np.ones(len(self._order), dtype=np.bool_)

    def groups(self) -> Iterator[Group]:
        """Yield the groups one after the other, generations of a producer ascending."""
        count = len(self._order)
        begins_run = self._begins_group.copy()
        begins_run[1:] |= self._numbers[1:] != self._numbers[:-1] + 1
        run_starts = np.flatnonzero(begins_run)
        firsts = self._numbers[run_starts].tolist()
        lasts = self._numbers[np.append(run_starts[1:], count) - 1].tolist()
        runs = [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]
        starts = np.flatnonzero(self._begins_group)
        first_runs = np.searchsorted(run_starts, starts).tolist()
        codes, generations = self._codes[starts].tolist(), self._generations[starts].tolist()
        bounds, run_bounds = [*starts.tolist(), count], [*first_runs, len(runs)]
        for n, (code, generation) in enumerate(zip(codes, generations, strict=True)):
            mine = tuple(runs[run_bounds[n] : run_bounds[n + 1]])
            yield Group(self._producers[code], generation, bounds[n], bounds[n + 1], mine)

    def keep_only(self, group: Group, fresh: Sequence[Run]) -> None:
        """Drop the rows of the group that are in no run of ``fresh``."""
        if group.runs == fresh:
            return
        self._keep[group.start : group.stop] = False
        numbers = self._numbers[group.start : group.stop]
        for first, stop in fresh:
            at = group.start + int(np.searchsorted(numbers, first))
            self._keep[at : at + stop - first] = True

    def kept(self) -> pa.RecordBatch:
        """Return the rows that were not dropped, in the order of the batch."""
        if self._keep.all() and len(self._order) == self._batch.num_rows:
            return self._batch
        return self._batch.take(pa.array(np.sort(self._order[self._keep])))


def _changes(column: _Integers) -> npt.NDArray[np.bool_]:
    """Return where a value differs from its predecessor; the first one does."""
    return np.append(True, column[1:] != column[:-1])


def _integers(batch: pa.RecordBatch, name: str) -> _Integers:
    return _not_null(batch.column(name), name).cast(pa.int64()).to_numpy()


def _not_null(column: pa.Array, name: str) -> pa.Array:
    if column.null_count:
        raise DataError(
            ErrorCode.NULL_KEY,
            f"{column.null_count} rows have no {name!r}: fill it in or filter them out before"
            " copies are looked for",
        )
    return column


def _require_number_type(name: str, data_type: pa.DataType) -> None:
    if not pa.types.is_integer(data_type) or pa.types.is_uint64(data_type):
        raise ConfigurationError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"{name!r} is {data_type} and has to be an integer of up to 64 signed bits: cast it",
        )


def _require_producer_type(data_type: pa.DataType) -> None:
    require_key_type(data_type)
    plain = plain_type(data_type)
    if pa.types.is_temporal(plain) or pa.types.is_floating(plain) or pa.types.is_struct(plain):
        raise ConfigurationError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"a producer is a string or an integer, not {data_type}: cast the column",
        )


def _stored_table(
    pinned: Mapping[Producer, SeenProducer], schema: pa.Schema, max_parallelism: int
) -> pa.Table:
    """One row per run, sorted by key group and then as first seen."""
    rows = [
        (producer, seen.newest_forgotten, of.generation, first, stop - 1)
        for producer, seen in pinned.items()
        for of in seen.generations
        for first, stop in of.runs
    ]
    fields = list(schema)[1:]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), fields, strict=True)]
    batch = pa.record_batch(columns, schema=pa.schema(fields))
    groups = key_groups_of(batch, ["producer"], max_parallelism).astype(np.int32)
    table = pa.table([pa.array(groups), *columns], schema=schema)
    return table.take(pa.array(key_group_order(groups)))


def _seen_of(stored: pa.Table) -> dict[Producer, SeenProducer]:
    """Return the state from a table that ``_stored_table`` made."""
    runs: dict[tuple[Producer, int | None], dict[int, list[Run]]] = {}
    for row in zip(*(column.to_pylist() for column in stored.columns), strict=True):
        producer, newest_forgotten, generation, first, last = row
        generations = runs.setdefault((producer, newest_forgotten), {})
        generations.setdefault(generation, []).append((first, last + 1))
    return {
        producer: SeenProducer(
            tuple(SeenGeneration(g, tuple(of)) for g, of in generations.items()), newest_forgotten
        )
        for (producer, newest_forgotten), generations in runs.items()
    }
