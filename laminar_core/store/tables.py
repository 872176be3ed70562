"""The contents of a checkpoint as Arrow tables, in parts that can be read in parallel.

One part is the output of one worker: the verified state of a subtask, or one queue of in-flight
data. The caller decides where to read it.
"""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.types import Batch, Watermark
from laminar_core.records.channel_entries import InflightEntry
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.state.splits import current, is_table_of_splits
from laminar_core.store.checkpoint_parts import CheckpointParts
from laminar_core.store.state_reading import StateFiles, read_rows, table_names

SUBTASK = "subtask_index"
OPERATOR = "operator_id"
_PLACE = pa.schema(
    [
        (OPERATOR, pa.string()),
        (SUBTASK, pa.int32()),
        ("direction", pa.string()),
        ("input_id", pa.int32()),
        ("upstream", pa.string()),
        ("downstream", pa.string()),
        ("input_index", pa.int32()),
        ("feedback", pa.bool_()),
        ("sender", pa.int32()),
        ("receiver", pa.int32()),
    ]
)
_ELEMENT = [("position", pa.int64()), ("element", pa.string()), ("watermark_us", pa.int64())]

Part = tuple[int, ...]
"""Identifies a part of a table; it stays valid as long as the files exist."""


class StoredTable(Protocol):
    """A table that is read part by part; creating it reads nothing but a manifest."""

    def schema(self) -> pa.Schema:
        """Return the columns of every part. May read the smallest file that has them."""
        ...

    def parts(self) -> list[Part]:
        """Return the arguments for ``read``, one per part."""
        ...

    def read(self, part: Part) -> Iterator[pa.Table]:
        """Yield the rows of one part; files are verified before they are decoded.

        Raises:
            CorruptCheckpointError: a file is missing, or not what was written.
        """
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a checkpoint to read; None stands for all."""

    operator_id: str | None = None
    subtask_index: int | None = None
    state_table: str | None = None
    """One of the operator's tables of state; None: its only one."""

    def check(self, manifest: CheckpointManifest) -> None:
        """Refuse an operator that the checkpoint does not have."""
        if self.operator_id is not None and self.operator_id not in manifest.parallelism:
            known = ", ".join(manifest.parallelism)
            raise _invalid(
                f"{_name(manifest)} has no operator {self.operator_id}; its operators: {known}"
            )

    def takes(self, entry: SubtaskEntry | InflightEntry) -> bool:
        """Return whether the entry is selected."""
        return self.operator_id in (None, entry.operator_id) and self.subtask_index in (
            None,
            entry.subtask_index,
        )


class StateTable:
    """One table of an operator's state, a row per key; ``subtask_index`` is the owner of the row.

    An operator with several tables needs a choice of one.
    """

    def __init__(
        self, files: StateFiles, manifest: CheckpointManifest, selection: Selection
    ) -> None:
        selection.check(manifest)
        if selection.operator_id is None:
            owners = dict.fromkeys(e.operator_id for e in manifest.subtasks if e.segments)
            raise _invalid(
                f"{_name(manifest)} has the state of the operators {', '.join(owners)}: "
                'choose one with option("operator", …)'
            )
        self._files, self._manifest = files, manifest
        self._operator_id = selection.operator_id
        self._table = _chosen_table(manifest, selection.operator_id, selection.state_table)
        self._entries = [
            entry
            for entry in manifest.subtasks
            if selection.takes(entry) and any(s.table == self._table for s in entry.segments)
        ]

    def schema(self) -> pa.Schema:
        """Return the columns of the state, after ``subtask_index``."""
        if not self._entries:
            raise _invalid(
                f"{self._operator_id} kept no rows in {_name(self._manifest)}, so its columns are "
                "not known"
            )
        return _with_subtask(_columns_of(self._files, self._entries, self._table))

    def parts(self) -> list[Part]:
        """Return one part per subtask with rows."""
        return [(number,) for number in range(len(self._entries))]

    def read(self, part: Part) -> Iterator[pa.Table]:
        """Yield the rows of one subtask."""
        entry = self._entries[part[0]]
        rows = read_rows(self._files, self._manifest, entry, self._table)
        assert rows is not None, "it has segments"
        yield _placed(rows, entry)


class OffsetsTable:
    """Positions of the sources: one row per split."""

    def __init__(
        self, files: StateFiles, manifest: CheckpointManifest, selection: Selection
    ) -> None:
        selection.check(manifest)
        self._files, self._manifest = files, manifest
        self._entries = [
            entry
            for entry in manifest.subtasks
            if selection.takes(entry)
            and any(not segment.table for segment in entry.segments)
            and "key_groups" not in entry.properties
        ]
        self._columns: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        """Return ``operator_id``, ``subtask_index``, and the sources' columns of their splits."""
        found = [
            columns
            for operator_id in dict.fromkeys(entry.operator_id for entry in self._entries)
            if is_table_of_splits(columns := self._columns_of(operator_id))
        ]
        if not found:
            raise _invalid(f"{_name(self._manifest)} has no positions of this kind of source")
        columns = _united(found, "sources with different columns")
        return _with_subtask(columns).insert(0, pa.field(OPERATOR, pa.string()))

    def parts(self) -> list[Part]:
        """Return one part per subtask of a source."""
        return [(number,) for number in range(len(self._entries))]

    def read(self, part: Part) -> Iterator[pa.Table]:
        """Yield the splits of one subtask; columns that only other sources have are left out."""
        entry = self._entries[part[0]]
        rows = read_rows(self._files, self._manifest, entry)
        assert rows is not None, "it has segments"
        if is_table_of_splits(rows.schema):
            owner = pa.repeat(pa.scalar(entry.operator_id), rows.num_rows)
            yield _placed(rows, entry).add_column(0, OPERATOR, owner)

    def _columns_of(self, operator_id: str) -> pa.Schema:
        return _columns_of(self._files, [e for e in self._entries if e.operator_id == operator_id])


class InflightTable:
    """Data in flight: rows, watermarks and idle marks of every queue, in order."""

    def __init__(
        self, files: CheckpointParts, manifest: CheckpointManifest, selection: Selection
    ) -> None:
        selection.check(manifest)
        self._inflight = files.inflight(manifest.inflight_files)
        self._entries = [entry for entry in manifest.inflight_data if selection.takes(entry)]

    def schema(self) -> pa.Schema:
        """Return the place, then ``position``, ``element``, ``watermark_us`` and ``row``.

        ``row`` is there if any queue has rows.
        """
        smallest: dict[tuple[str, int], InflightEntry] = {}
        for entry in sorted(self._entries, key=lambda e: e.size_bytes):
            if entry.row_count:
                smallest.setdefault((entry.edge.downstream, entry.edge.input_index), entry)
        rows = [
            next(e.data.schema for e in self._inflight.read(entry) if isinstance(e, Batch))
            for entry in smallest.values()
        ]
        fields = [*_PLACE, *(pa.field(name, of) for name, of in _ELEMENT)]
        if rows:
            united = _united(rows, "queues with rows of different kinds")
            fields.append(pa.field("row", pa.struct(list(united))))
        return pa.schema(fields)

    def parts(self) -> list[Part]:
        """Return one part per queue that was not empty."""
        return [(number,) for number in range(len(self._entries))]

    def read(self, part: Part) -> Iterator[pa.Table]:
        """Yield the elements of one queue, table by table."""
        entry = self._entries[part[0]]
        place = {
            **{name: getattr(entry, name) for name in _PLACE.names if hasattr(entry, name)},
            **entry.edge.model_dump(),
        }
        for position, element in enumerate(self._inflight.read(entry)):
            if isinstance(element, Batch):
                batch = element.data
                columns = _elements(batch.num_rows, position, "row", None)
                columns["row"] = batch.to_struct_array()
            elif isinstance(element, Watermark):
                columns = _elements(1, position, "watermark", element.time_us)
            else:
                columns = _elements(1, position, "idle", None)
            count = len(columns["position"])
            yield pa.table({**_repeated(place, count), **columns})


def _elements(count: int, position: int, element: str, time_us: int | None) -> dict[str, pa.Array]:
    values = (position, element, time_us)
    return {
        name: pa.repeat(pa.scalar(value, of), count)
        for (name, of), value in zip(_ELEMENT, values, strict=True)
    }


def _repeated(place: dict[str, object], count: int) -> dict[str, pa.Array]:
    return {f.name: pa.repeat(pa.scalar(place[f.name], f.type), count) for f in _PLACE}


def _chosen_table(manifest: CheckpointManifest, operator_id: str, chosen: str | None) -> str:
    names = table_names(operator_id, manifest)
    if chosen is None and len(names) <= 1:
        return names[0] if names else ""
    if chosen is None or chosen not in names:
        what = "several tables of state" if chosen is None else f"no table of state {chosen!r}"
        there = ", ".join(name or '"" (it has only one)' for name in names)
        raise _invalid(
            f"{operator_id} has {what} in {_name(manifest)}: choose one with "
            f'option("state_table", …); there are {there or "none"}'
        )
    return chosen


def _columns_of(files: StateFiles, entries: Sequence[SubtaskEntry], table: str = "") -> pa.Schema:
    """Read the smallest file: all of one table have the same columns."""
    segments = [s for entry in entries for s in entry.segments if s.table == table]
    smallest = min(segments, key=lambda segment: segment.size_bytes)
    return current(files.read_state(smallest)).schema.remove_metadata()


def _with_subtask(columns: pa.Schema) -> pa.Schema:
    if SUBTASK in columns.names:
        return columns
    return columns.insert(0, pa.field(SUBTASK, pa.int32()))


def _placed(rows: pa.Table, entry: SubtaskEntry) -> pa.Table:
    if SUBTASK in rows.schema.names:
        return rows
    index = pa.repeat(pa.scalar(entry.subtask_index, pa.int32()), rows.num_rows)
    return rows.add_column(0, SUBTASK, index)


def _united(schemas: Sequence[pa.Schema], what: str) -> pa.Schema:
    try:
        return pa.unify_schemas([schema.remove_metadata() for schema in schemas])
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise _invalid(f"{what} ({reason}): choose one with option operator") from error


def _name(manifest: CheckpointManifest) -> str:
    return f"checkpoint {manifest.checkpoint_id} of {manifest.job}"


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
