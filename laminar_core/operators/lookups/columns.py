"""The keys and columns of a lookup: what is looked up, and what a row gets."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.grouping import has_nulls, plain_column, plain_type
from laminar_core.aggregates.row_groups import as_array
from laminar_core.codec.canonical import canonical
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.operators.joins.columns import JoinedColumns
from laminar_core.operators.joins.output import one_batch
from laminar_core.operators.joins.side import require_alike

LookupHow = Literal["left", "inner"]
"""Whether rows for which nothing is found stay, with nulls, or are dropped."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Side:
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LookupColumns:
    """The keys that are compared, and the columns that are added.

    ``columns``: the columns that are added; None: all but ``hidden``. A key with one name on both
    sides is not added again. Other names that are taken get the ``suffix``.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    how: LookupHow
    columns: tuple[str, ...] | None
    suffix: str
    hidden: tuple[str, ...] = ()

    def check(self, operator_id: str, left: pa.Schema, right: pa.Schema) -> None:
        """Accept inputs with these columns.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), keys cannot be compared
                (UNSUPPORTED_TYPE), or an option is none (INVALID_OPTION).
        """
        if self.how not in get_args(LookupHow):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{operator_id}: how is {' or '.join(get_args(LookupHow))}, not {self.how}",
            )
        for schema, keys in ((left, self.left_keys), (right, self.right_keys)):
            require_columns(schema, keys)
            for key in keys:
                require_key_type(schema.field(key).type)
        require_alike(_Side(self.left_keys), _Side(self.right_keys), (left, right))

    def added(self, right: pa.Schema) -> pa.Schema:
        """Return the columns that a row gets, without dictionaries.

        Raises:
            ConfigurationError: one is missing (WRONG_SCHEMA) or named twice (INVALID_PIPELINE).
        """
        names: Collection[str] = right.names if self.columns is None else self.columns
        require_columns(right, names)
        require_distinct(names, "name each column once")
        pairs = zip(self.left_keys, self.right_keys, strict=True)
        left_out = {key for key, other in pairs if key == other}
        left_out |= {*self.hidden} if self.columns is None else set()
        kept = [name for name in names if name not in left_out]
        return pa.schema([(name, plain_type(right.field(name).type)) for name in kept])

    def joined(self, left: pa.Schema, right: pa.Schema) -> JoinedColumns:
        """Return the columns of the result: those of a row as it came, then what is added."""
        sides = (_Side(self.left_keys), _Side(self.right_keys))
        return JoinedColumns(sides, (left, self.added(right)), self.suffix, encoded=True)

    def keys_of(self, rows: pa.Table, side: int) -> pa.Table:
        """Return the keys of rows of one side in the form in which they are compared.

        Shapes: the columns are called like the keys of the right side.
        """
        names = (self.left_keys, self.right_keys)[side]
        columns = [canonical(as_array(plain_column(rows.column(name)))) for name in names]
        return pa.table(columns, list(self.right_keys))

    def result(
        self, joined: JoinedColumns, rows: pa.Table, added: pa.Table, found: Mask
    ) -> pa.RecordBatch | None:
        """Return rows with what was found for them; None if nothing is left.

        Shapes: all have as many rows; ``added`` has none if it has no columns.
        """
        if self.how == "inner" and not found.all():
            rows = rows.filter(pa.array(found))
            added = added.filter(pa.array(found)) if added.num_columns else added
        return one_batch(joined.paired(rows, added)) if rows.num_rows else None


def known_keys(keys: pa.Table) -> Mask:
    """Return which rows have no null in their keys: null equals nothing."""
    known = np.ones(keys.num_rows, np.bool_)
    for column in keys.columns:
        if has_nulls(column):
            known &= plain_column(column).is_valid().to_numpy()
    return known


def plain_columns(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return these columns without dictionaries."""
    return pa.table({name: plain_column(rows.column(name)) for name in names})
