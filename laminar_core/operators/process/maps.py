"""A map per key, whose entries are stored one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.aggregates.row_order import ascending
from laminar_core.arguments import require_instance
from laminar_core.codec.canonical import canonical
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.operators.base import JsonObject
from laminar_core.operators.process.changes import expiries_us, newest_positions
from laminar_core.operators.process.declared import state_columns, time_to_live_us
from laminar_core.operators.process.entries import EntryTable, offsets
from laminar_core.operators.process.given import Values, typed_values, wrong
from laminar_core.operators.process.kept_entries import KeptEntries
from laminar_core.operators.process.keys import Keys
from laminar_core.state.chunks import StateBackend
from laminar_core.state.named_tables import TableLayout
from laminar_core.units import Duration

ENTRY = "_entry"
"""The column of what an entry is found by."""


@dataclass(frozen=True, slots=True)
class MapState:
    """State with a map per key, from values of one Arrow type to values of another.

    To read or change an entry costs the same however many others its key has. ``ttl``: an entry is
    gone when this much event time has passed since it was last put.

    >>> MapState(pa.string(), pa.int64(), ttl="1 hour").ttl_us
    3600000000
    """

    key_type: pa.DataType
    type: pa.DataType
    ttl: Duration | None = None

    def __post_init__(self) -> None:
        """Check the types and the time to live.

        Raises:
            ConfigurationError: it is no duration (INVALID_OPTION), or entries cannot be found by
                values of ``key_type`` (UNSUPPORTED_TYPE).
        """
        wanted = "key_type must be a type of pyarrow, such as pa.string()"
        require_instance(self.key_type, pa.DataType, wanted)
        require_key_type(self.key_type)
        _ = self.ttl_us

    @property
    def ttl_us(self) -> int | None:
        """Return how long an entry lives, in microseconds; None: for ever."""
        return time_to_live_us(self.ttl)

    def describe(self) -> JsonObject:
        """Return the types."""
        return {"kind": "map", "key": str(self.key_type), "type": str(self.type)}

    def layout(self, name: str, keys: Sequence[pa.Field]) -> TableLayout:
        """Return the table: a row per entry, whose value is in the column with the state's name."""
        own = [pa.field(ENTRY, self.key_type), pa.field(name, self.type)]
        identity = (*(key.name for key in keys), ENTRY)
        return TableLayout(name, state_columns(keys, own, self.ttl), identity, "newest", name)

    def opened(self, operator_id: str, layout: TableLayout, backend: StateBackend) -> "KeyedMaps":
        """Create the running instance."""
        return KeyedMaps(operator_id, layout, self, backend)


class KeyedMaps(KeptEntries):
    """The maps of one state in one subtask.

    ``entries`` and ``values`` have one value per row of the call, or one per key; for a single key,
    any number.
    """

    def __init__(
        self, operator_id: str, layout: TableLayout, declared: MapState, backend: StateBackend
    ) -> None:
        table = EntryTable(layout, backend, is_reused=True)
        super().__init__(operator_id, table, declared.ttl_us)
        self._key_type, self._type = declared.key_type, declared.type

    def get(self, keys: Keys, entries: Values) -> pa.Array:
        """Return the value of each entry; null where there is none.

        Raises:
            ConfigurationError: the entries are of another type or number (WRONG_SCHEMA).
        """
        wanted = self._entries(entries)
        owners = self._owners(keys, len(wanted))
        found, rows = self._table.of_entries(self._identity(keys, owners, wanted))
        seen = self._seen(rows, keys.times_us[owners[found]])
        place = np.zeros(len(wanted), np.int64)
        missing = np.ones(len(wanted), np.bool_)
        place[found[seen]], missing[found[seen]] = np.flatnonzero(seen), False
        return as_array(rows.column(self.layout.name)).take(pa.array(place, mask=missing))

    def put(self, keys: Keys, entries: Values, values: Values) -> None:
        """Replace the value of each entry; null removes it. Of equal entries, the last counts.

        Raises:
            ConfigurationError: they are of another type or number (WRONG_SCHEMA).
        """
        wanted, typed = self._entries(entries), typed_values(self._what, values, self._type)
        if len(wanted) != len(typed):
            raise wrong(f"{self._what} was given {len(typed)} values for {len(wanted)} entries")
        self._put(keys, self._owners(keys, len(wanted)), wanted, typed)

    def remove(self, keys: Keys, entries: Values) -> None:
        """Remove entries, where there are such."""
        wanted = self._entries(entries)
        owners = self._owners(keys, len(wanted))
        self._put(keys, owners, wanted, pa.nulls(len(wanted), self._type))

    def items(self, keys: Keys) -> pa.MapArray:
        """Return all entries of each key, ordered by what they are found by."""
        owners, rows = self._entries_of(keys)
        rows = rows.take(ascending([pa.chunked_array([owners]), rows.column(ENTRY)]))
        held = [as_array(rows.column(name)) for name in (ENTRY, self.layout.name)]
        return pa.MapArray.from_arrays(offsets(owners, len(keys)), *held)

    def __getitem__(self, key: Keys) -> dict[Any, Any]:
        """Return the map of a single key, with Python values."""
        assert len(key) == 1, f"these are {len(key)} keys"
        return dict(self.items(key)[0].as_py())

    def __setitem__(self, key: Keys, entries: Mapping[Any, Any]) -> None:
        """Replace the whole map of a single key."""
        assert len(key) == 1, f"these are {len(key)} keys"
        self.clear(key)
        self.put(key, list(entries), list(entries.values()))

    def _entries(self, entries: Values) -> pa.Array:
        typed = canonical(typed_values(self._what, entries, self._key_type))
        if typed.null_count:
            raise wrong(f"{self._what} was given null for an entry, by which none is found")
        return typed

    def _identity(self, keys: Keys, owners: Integers, entries: pa.Array) -> pa.Table:
        return keys.table.take(pa.array(owners)).append_column(ENTRY, entries)

    def _put(self, keys: Keys, owners: Integers, entries: pa.Array, values: pa.Array) -> None:
        """Write entries, but for removals of those that there are not."""
        if not len(entries):
            return
        identity = self._identity(keys, owners, entries)
        last = np.sort(newest_positions(dict(zip(identity.column_names, identity, strict=True))))
        owners, entries, values = owners[last], entries.take(last), values.take(last)
        found, rows = self._table.of_entries(identity.take(pa.array(last)))
        written = values.is_valid().to_numpy(zero_copy_only=False)
        expiries = self._next_expiries(keys.times_us[owners])
        if expiries is not None:
            known = expiries_us(rows)
            gone = (known < keys.times_us[owners[found]]) & self._table.are_present(rows)
            self.expired_row_count += int(gone.sum())
            stays = np.maximum(expiries[found], known)
            expiries[found] = np.where(written[found], stays, known)
        written[found] |= self._table.are_present(rows)
        chosen = pa.array(np.flatnonzero(written))
        self._change(
            keys,
            owners[written],
            [entries.take(chosen), values.take(chosen)],
            None if expiries is None else expiries[written],
        )
