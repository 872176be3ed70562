"""A list per key, whose values are stored one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import as_array
from laminar_core.operators.base import JsonObject
from laminar_core.operators.process.declared import state_columns, time_to_live_us
from laminar_core.operators.process.entries import EntryTable, offsets
from laminar_core.operators.process.given import Values, typed_values, wrong
from laminar_core.operators.process.kept_entries import KeptEntries
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.timers import IS_SET
from laminar_core.state.chunks import StateBackend
from laminar_core.state.named_tables import TableLayout
from laminar_core.units import Duration

POSITION = "_position"
"""The column of a value's number: later values of a list have greater ones."""


@dataclass(frozen=True, slots=True)
class ListState:
    """State with a list of values of an Arrow type per key.

    To append costs as much as what is appended, however long the list is. ``ttl``: a value is gone
    when this much event time has passed since it was appended.

    >>> ListState(pa.string(), ttl="1 hour").ttl_us
    3600000000
    """

    type: pa.DataType
    ttl: Duration | None = None

    def __post_init__(self) -> None:
        """Check the time to live.

        Raises:
            ConfigurationError: it is no duration (INVALID_OPTION).
        """
        _ = self.ttl_us

    @property
    def ttl_us(self) -> int | None:
        """Return how long a value lives, in microseconds; None: for ever."""
        return time_to_live_us(self.ttl)

    def describe(self) -> JsonObject:
        """Return the type of the values."""
        return {"kind": "list", "type": str(self.type)}

    def layout(self, name: str, keys: Sequence[pa.Field]) -> TableLayout:
        """Return the table: a row per value, which is in the column with the state's name."""
        own = [pa.field(POSITION, pa.int64()), pa.field(name, self.type)]
        columns = state_columns(keys, [*own, pa.field(IS_SET, pa.bool_())], self.ttl)
        identity = (*(key.name for key in keys), POSITION)
        return TableLayout(name, columns, identity, "newest", IS_SET)

    def opened(self, operator_id: str, layout: TableLayout, backend: StateBackend) -> "KeyedLists":
        """Create the running instance."""
        return KeyedLists(operator_id, layout, self, backend)


class KeyedLists(KeptEntries):
    """The lists of one state in one subtask. A key without values has the empty list."""

    def __init__(
        self, operator_id: str, layout: TableLayout, declared: ListState, backend: StateBackend
    ) -> None:
        table = EntryTable(layout, backend, is_reused=False)
        super().__init__(operator_id, table, declared.ttl_us)
        self.next_position = 0
        self._type = declared.type

    def get(self, keys: Keys) -> pa.ListArray:
        """Return the list of each key, in the order in which its values were appended."""
        owners, rows = self._entries_of(keys)
        order = np.lexsort((rows.column(POSITION).to_numpy(), owners))
        values = as_array(rows.column(self.layout.name)).take(pa.array(order))
        return pa.ListArray.from_arrays(offsets(owners, len(keys)), values)

    def append(self, keys: Keys, values: Values) -> None:
        """Append values to the lists of their keys.

        Shapes: one value per row of the call, or one per key; to a single key, any number.

        Raises:
            ConfigurationError: they are of another type or number (WRONG_SCHEMA).
        """
        typed = typed_values(self._what, values, self._type)
        self._append(keys, self._owners(keys, len(typed)), typed)

    def put(self, keys: Keys, lists: Values) -> None:
        """Replace the list of each key; null and the empty list remove it.

        Shapes: one list per key: an Arrow array of lists, or a list of lists.

        Raises:
            ConfigurationError: they are of another type or number (WRONG_SCHEMA).
        """
        typed = typed_values(self._what, lists, pa.list_(self._type))
        if len(typed) != len(keys):
            raise wrong(
                f"{self._what} was given {len(typed)} lists for {len(keys)} keys: give one per key"
            )
        self.clear(keys)
        lengths = typed.value_lengths().fill_null(0).to_numpy()
        self._append(keys, np.repeat(np.arange(len(keys)), lengths), typed.flatten())

    def __getitem__(self, key: Keys) -> list[Any]:
        """Return the list of a single key, with Python values."""
        assert len(key) == 1, f"these are {len(key)} keys"
        return self.get(key)[0].as_py()

    def __setitem__(self, key: Keys, values: Sequence[Any]) -> None:
        """Replace the list of a single key."""
        self.put(key, [values])

    def _append(self, keys: Keys, owners: np.ndarray, values: pa.Array) -> None:
        if not len(values):
            return
        positions = np.arange(self.next_position, self.next_position + len(values))
        self.next_position += len(values)
        are_set = pa.array(np.ones(len(values), np.bool_))
        expiries = self._next_expiries(keys.times_us[owners])
        self._change(keys, owners, [pa.array(positions), values, are_set], expiries)
