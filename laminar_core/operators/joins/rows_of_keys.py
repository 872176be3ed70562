"""All rows of some keys, out of an arrangement whose rows have weights."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.codec.arrow import empty_table
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.weights import weights_of
from laminar_core.state.arrangement import Arrangement
from laminar_core.state.named_tables import added_up
from laminar_core.state.rows_layout import RowsLayout
from laminar_core.state.runs import arranged

NUMBER = "_number"
"""A column for a moment: the number of the key."""


class RowsOfKeys(NamedTuple):
    """Rows of some keys. Each is there once; ``numbers`` has the number of each row's key."""

    table: pa.Table
    numbers: Integers

    @property
    def weights(self) -> Integers:
        """How often each row is there."""
        return weights_of(self.table).astype(np.int64)

    def per_key(self, key_count: int) -> Integers:
        """Return how many rows there are of each key."""
        return np.bincount(self.numbers, self.weights, key_count).astype(np.int64)


def rows_of_keys(
    held: Arrangement, keys: Keys, passed_us: int | None, *, null_is_key: bool = False
) -> RowsOfKeys:
    """Return the rows that are there of these keys, by the number of the key.

    ``passed_us``: rows that expire then or before are gone; None: none are. ``null_is_key``: null
    is a key like others; otherwise it equals nothing.
    """
    names = keys.table.column_names
    numbered = keys.table.append_column(NUMBER, pa.array(np.arange(len(keys))))
    layout = RowsLayout(tuple(names), numbered.schema)
    probing = arranged(numbered, np.zeros(len(keys), np.int64), layout)
    parts: list[pa.Table] = []
    for match in held.probe(probing, names, null_is_key=null_is_key):
        if held.layout.expires and passed_us is not None:
            match = match.where(match.run.expires_us[match.found] > passed_us)  # noqa: PLW2901
        numbers = probing.rows.select([NUMBER]).take(pa.array(match.probing)).column(0)
        parts.append(match.partners().append_column(NUMBER, numbers))
    if not parts:
        return RowsOfKeys(empty_table(held.layout.schema), np.empty(0, np.int64))
    table = added_up(pa.concat_tables(parts))
    numbers = table.column(NUMBER).to_numpy()
    order = np.argsort(numbers, kind="stable")
    return RowsOfKeys(table.take(pa.array(order)).drop_columns([NUMBER]), numbers[order])
