"""The columns of a join's result: those of the left side, then those of the right.

A key with one name on both sides is one column. Other columns of the right side whose names are
taken get a suffix. A semi join and an anti join have only the columns of the left side.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from laminar_core.aggregates.grouping import plain_type
from laminar_core.operators.columns import require_distinct
from laminar_core.operators.joins.side import HasKeys


class JoinedColumn(NamedTuple):
    """A column of the result, and its name on each side that has it."""

    name: str
    data_type: pa.DataType
    sources: tuple[str | None, str | None]

    def of(self, side: int, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Return the values for rows of one side without partner; null if it has no such column."""
        source = self.sources[side]
        return pa.nulls(rows.num_rows, self.data_type) if source is None else rows.column(source)


class JoinedColumns:
    """All columns of the result, in their order.

    ``encoded``: dictionaries stay; rows that were kept have none.
    """

    def __init__(
        self,
        sides: Sequence[HasKeys],
        schemas: Sequence[pa.Schema],
        suffix: str,
        *,
        left_only: bool = False,
        encoded: bool = False,
    ) -> None:
        left, right = sides
        shared = {key for key, other in zip(left.keys, right.keys, strict=True) if key == other}
        self.columns = [
            JoinedColumn(name, data_type, (name, name if name in shared else None))
            for name, data_type in _fields(schemas[0], encoded=encoded)
        ]
        self.columns += [
            JoinedColumn(
                name + suffix if name in schemas[0].names else name,
                data_type,
                (None, name),
            )
            for name, data_type in _fields(schemas[1], encoded=encoded)
            if name not in shared and not left_only
        ]
        require_distinct((c.name for c in self.columns), "give the join another suffix")
        self.schema = pa.schema([(column.name, column.data_type) for column in self.columns])

    def name_of(self, side: int, source: str) -> str:
        """Return the name in the result of a column of one side."""
        return next(column.name for column in self.columns if column.sources[side] == source)

    def paired(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return the result of rows and their partners, side by side.

        Shapes: both have as many rows.
        """
        values = [
            right.column(column.sources[1])
            if column.sources[0] is None
            else left.column(column.sources[0])
            for column in self.columns
        ]
        return self._result(values, left)

    def unpaired(self, side: int, rows: pa.Table) -> pa.Table:
        """Return the result of rows of one side that have no partner, or need none."""
        return self._result([column.of(side, rows) for column in self.columns], rows)

    def _result(self, values: list[pa.Array | pa.ChunkedArray], rows: pa.Table) -> pa.Table:
        """Return the result; ``rows`` are as they are kept, of either side."""
        del rows
        return pa.Table.from_arrays(values, schema=self.schema)


def _fields(schema: pa.Schema, *, encoded: bool) -> list[tuple[str, pa.DataType]]:
    return [(one.name, one.type if encoded else plain_type(one.type)) for one in schema]
