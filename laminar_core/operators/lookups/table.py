"""The lookup in a table: each row with the rows that the table has for its key.

The table is read whole when a subtask opens. It is *pinned* when the pipeline is built: what it
consists of is a part of the operator's description, so every checkpoint has it, and every worker
reads exactly that or fails. The operator has no state besides, so it may change its options freely,
but not its table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.key_index import MISSING
from laminar_core.codec.arrow import empty_table
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.operators.lookups.columns import LookupColumns, plain_columns
from laminar_core.operators.lookups.table_index import TableIndex
from laminar_core.operators.stateless import StatelessSubtask

Matches = Literal["one", "all"]
"""Whether a key may have one row in the table, or each row is a match."""

KIND, TABLE = "lookup", "table"
"""The kind in the description of a lookup, and its member that describes the table."""

LEFT, RIGHT = 0, 1


class PinnedTable(Protocol):
    """Rows that are the same in every process that reads them; cheap to send to workers."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        ...

    @property
    def size_max_bytes(self) -> int:
        """The memory that the rows may take."""
        ...

    def describe(self) -> JsonObject:
        """Return what decides whether it is the same table, such as ``files`` with their sizes."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows.

        Raises:
            DataError: they are not what was pinned, or cannot be read.
        """
        ...


class Table(Protocol):
    """A table that rows can be looked up in."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        ...

    def pinned(self, columns: Sequence[str]) -> PinnedTable:
        """Find out what the table consists of now; at least these columns are read later."""
        ...


@dataclass(frozen=True, slots=True)
class LookupRows:
    """Give each row what ``table`` has for its key."""

    operator_id: str
    table: PinnedTable
    columns: LookupColumns
    matches: Matches = "one"

    def __post_init__(self) -> None:
        if self.matches not in get_args(Matches):
            known = " or ".join(get_args(Matches))
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{self.operator_id}: matches is {known}, not {self.matches}",
            )

    def describe(self) -> JsonObject:
        """Return the options, and what the table consists of."""
        columns = self.columns
        on: JsonObject = dict(zip(columns.left_keys, columns.right_keys, strict=True))
        return {
            "kind": KIND,
            "on": on,
            "how": columns.how,
            "matches": self.matches,
            TABLE: self.table.describe(),
        }

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the columns of the rows, then those of the table.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), keys cannot be compared
                (UNSUPPORTED_TYPE), or two columns would have one name (INVALID_PIPELINE).
        """
        self.columns.check(self.operator_id, input_schema, self.table.schema)
        return self.columns.joined(input_schema, self.table.schema).schema

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "TableLookup":
        """Read the table.

        Raises:
            DataError: it is not the table that was pinned, or cannot be read (UNREADABLE_FILE); it
                is too large (TOO_MANY_ROWS), or has several rows of one key (BAD_ROW).
        """
        del context
        return TableLookup(self, input_schema, self._index())

    def _index(self) -> TableIndex:
        rows = self._rows()
        index = TableIndex(
            self.columns.keys_of(rows, RIGHT), rows.select(self._added().names).combine_chunks()
        )
        if self.matches == "one" and (key := index.repeated) is not None:
            said = ", ".join(map(repr, key))
            raise DataError(
                ErrorCode.BAD_ROW,
                f"lookup {self.operator_id}: the table has several rows with the key {said}: "
                'remove all but one, or ask for each of them with matches="all"',
            )
        return index

    def _added(self) -> pa.Schema:
        return self.columns.added(self.table.schema)

    def _rows(self) -> pa.Table:
        """Read the columns that are needed, as long as they are within the limit."""
        names = list(dict.fromkeys([*self.columns.right_keys, *self._added().names]))
        parts = [plain_columns(empty_table(self.table.schema), names)]
        size_bytes = 0
        try:
            for batch in self.table.batches():
                parts.append(plain_columns(pa.Table.from_batches([batch]), names))
                size_bytes += parts[-1].nbytes
                self._require_room(size_bytes, parts)
        except DataError as error:
            message = f"the table of lookup {self.operator_id} is not read: {error}"
            raise DataError(error.code, message) from error
        return pa.concat_tables(parts)

    def _require_room(self, size_bytes: int, parts: Sequence[pa.Table]) -> None:
        size_max_bytes = self.table.size_max_bytes
        if size_bytes > size_max_bytes:
            raise DataError(
                ErrorCode.TOO_MANY_ROWS,
                f"its first {sum(part.num_rows for part in parts):,} rows take {size_bytes:,} bytes"
                f" and may take {size_max_bytes:,}: choose fewer columns, raise size_max of the"
                " table, or look up in a stream",
            )


class TableLookup(StatelessSubtask):
    """One subtask, with the whole table; it has nothing to save."""

    def __init__(self, spec: LookupRows, input_schema: pa.Schema, index: TableIndex) -> None:
        self._spec = spec
        self._index = index
        self._joined = spec.columns.joined(input_schema, spec.table.schema)

    @property
    def held_row_count(self) -> int:
        """The number of rows in memory."""
        return len(self._index)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows in their order, with what the table has for them."""
        if not batch.num_rows:
            return
        rows, columns = pa.Table.from_batches([batch]), self._spec.columns
        numbers = self._index.find(columns.keys_of(rows, LEFT))
        if not self._index.has_repeated:
            yield from self._result(rows, numbers)
            return
        for positions, places in self._index.matches(numbers, keeps_missing=columns.how == "left"):
            yield from self._result(rows.take(pa.array(positions)), places)

    def _result(self, rows: pa.Table, places: np.ndarray) -> Iterator[pa.RecordBatch]:
        found = places != MISSING
        added = self._index.rows.take(pa.array(places, mask=~found))
        result = self._spec.columns.result(self._joined, rows, added, found)
        if result is not None:
            yield result
