"""Columns to order rows by, as a user writes them: ``price desc``."""

from dataclasses import dataclass

import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.aggregates.row_order import ranks_of
from laminar_core.operators.columns import require_columns


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to order by; null is least, and NaN greatest."""

    column: str
    descending: bool = False

    @classmethod
    def read(cls, text: str, schema: pa.Schema) -> "SortKey":
        """Read a column and its direction.

        >>> SortKey.read("price desc", pa.schema([("price", pa.int64())]))
        SortKey(column='price', descending=True)

        Raises:
            ConfigurationError: there is no such column (WRONG_SCHEMA).
        """
        column, _, direction = text.rpartition(" ")
        is_directed = text not in schema.names and direction.lower() in {"asc", "desc"}
        key = cls(column.strip(), direction.lower() == "desc") if is_directed else cls(text)
        require_columns(schema, [key.column])
        return key

    def __str__(self) -> str:
        """Return the text that it was read from."""
        return f"{self.column} desc" if self.descending else self.column

    def ranks(self, rows: pa.Table) -> list[Integers]:
        """Return numbers that order the rows by this column, the most significant first."""
        ranks = ranks_of(rows.column(self.column))
        return [~rank for rank in ranks] if self.descending else ranks
