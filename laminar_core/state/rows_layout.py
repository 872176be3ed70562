"""The columns of rows that an operator keeps until they expire, in memory and in a checkpoint."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_core.codec.stable_hash import require_key_type
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import WEIGHT, TableLayout
from laminar_core.state.window_layout import KEY_GROUP

MATCHED = "_matched"
"""In a checkpoint: whether a row has had a partner."""
WEIGHT_TYPE = pa.int32()


@dataclass(frozen=True, slots=True)
class RowsLayout:
    """``schema``: the keys, then other columns.

    With a column ``_expires`` rows expire, and with ``_weight`` rows that are equal in all other
    columns are one row, and its weight is the sum. ``is_marked``: it is remembered of each row
    whether it has had a partner. Rows are plain values, without dictionaries.
    """

    keys: tuple[str, ...]
    schema: pa.Schema
    is_marked: bool = False

    @property
    def has_weights(self) -> bool:
        """Whether rows have weights in memory."""
        return WEIGHT in self.schema.names

    @property
    def expires(self) -> bool:
        """Whether rows expire."""
        return EXPIRES in self.schema.names

    @property
    def stored_schema(self) -> pa.Schema:
        """The schema in a checkpoint.

        A mark that changes is a row of weight -1 without it and one of weight 1 with it, so that
        the tables of several cuts add up.
        """
        schema = self.schema.insert(0, pa.field(KEY_GROUP, pa.int32()))
        if not self.is_marked:
            return schema
        return schema.append(pa.field(MATCHED, pa.bool_())).append(pa.field(WEIGHT, WEIGHT_TYPE))

    def table(self, name: str) -> TableLayout:
        """Return the table of this name in a checkpoint."""
        is_weighted = self.is_marked or self.has_weights
        merging = "weights" if is_weighted else "append"
        return TableLayout(name, self.stored_schema, self.keys, merging)


def of_key_groups(stored: pa.Table, owned: range) -> pa.Table:
    """Return the rows of these key groups: a slice, because tables are sorted by key group."""
    groups = stored.column(KEY_GROUP).to_numpy()
    first, stop = np.searchsorted(groups, [owned.start, owned.stop])
    return stored.slice(first, stop - first)


def require_comparable(layout: RowsLayout) -> None:
    """Accept rows that can be compared, if they have to be: their weights are added up.

    Raises:
        ConfigurationError: a column has a type whose values pyarrow cannot group by
            (UNSUPPORTED_TYPE).
    """
    if WEIGHT not in layout.stored_schema.names:
        return
    for field in layout.schema:
        try:
            require_key_type(field.type)
        except ConfigurationError as error:
            raise ConfigurationError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"rows without partner are kept by their values, and {field.name!r} is "
                f"{field.type}: leave it out, or turn it into text",
            ) from error
