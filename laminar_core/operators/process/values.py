"""A value per key: declared by a process function, read and written for many keys at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.row_groups import as_array
from laminar_core.operators.base import JsonObject
from laminar_core.operators.process.changes import expiries_us, least_of_all
from laminar_core.operators.process.declared import PURGES_PER_TTL, state_columns, time_to_live_us
from laminar_core.operators.process.given import Values, typed_values, wrong
from laminar_core.operators.process.keys import Keys
from laminar_core.state.chunks import StateBackend
from laminar_core.state.keyed_rows import KeyedRows, PinnedRows, RowLayout
from laminar_core.state.named_tables import TableLayout
from laminar_core.state.window_layout import TIME_TYPE
from laminar_core.units import Duration


@dataclass(frozen=True, slots=True)
class ValueState:
    """State with one value of an Arrow type per key.

    ``ttl``: a value is gone when this much event time has passed since it was last put.

    >>> ValueState(pa.int64(), ttl="1 hour").ttl_us
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
        """Return the type."""
        return {"kind": "value", "type": str(self.type)}

    def layout(self, name: str, keys: Sequence[pa.Field]) -> TableLayout:
        """Return the table: the value is in the column with the state's name."""
        columns = state_columns(keys, [pa.field(name, self.type)], self.ttl)
        return TableLayout(name, columns, tuple(k.name for k in keys), "newest", name)

    def opened(self, operator_id: str, layout: TableLayout, backend: StateBackend) -> "KeyedValues":
        """Create the running instance."""
        return KeyedValues(operator_id, layout, self, backend)


class KeyedValues:
    """The values of one state in one subtask.

    Whether a value has expired depends on the event time of the call that reads it (``Keys``), not
    on how far the watermark has come: so it is the same after a restart. Once no later call can
    see it, it is dropped from memory and counted.
    """

    next_position = 0
    """Values are not numbered."""

    def __init__(
        self,
        operator_id: str,
        layout: TableLayout,
        declared: ValueState,
        backend: StateBackend,
    ) -> None:
        self.layout = layout
        self.expired_row_count = 0
        """Number of values dropped so far because they were not changed in time."""
        self.expired_us: int | None = None
        """Values that expire at this time or before have been dropped."""
        self._what = f"state {layout.name!r} of process {operator_id!r}"
        self._type = declared.type
        self._ttl_us = declared.ttl_us
        schema = layout.schema.remove(0)
        self._rows = KeyedRows(RowLayout(layout.keys, (), schema), backend.shelf(schema))
        self._has_cut = False
        """Whether earlier rows were written as changes, so that removals have to be written."""
        self._removed = 0
        """Removals since the last cut of changes."""
        self._removed_before = 0
        """Removals that were written, and that memory still has."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def row_count(self) -> int:
        """The number of rows in memory, including those that were replaced."""
        return self._rows.row_count

    # --- for the user's function ----------------------------------------------------------------

    def get(self, keys: Keys) -> pa.Array:
        """Return the value of each key; null where there is none."""
        found, rows = self._rows.look_up(keys.table)
        if self._ttl_us is not None and len(found):
            alive = expiries_us(rows) >= keys.times_us[found]
            found, rows = found[alive], rows.filter(pa.array(alive))
        place = np.zeros(len(keys), np.int64)
        missing = np.ones(len(keys), np.bool_)
        place[found], missing[found] = np.arange(len(found)), False
        return as_array(rows.column(self.layout.name)).take(pa.array(place, mask=missing))

    def put(self, keys: Keys, values: Values) -> None:
        """Replace the value of each key; null removes it.

        Shapes: ``values`` has one value per key: an Arrow or numpy array, or a list.

        Raises:
            ConfigurationError: they are of another type or number (WRONG_SCHEMA).
        """
        if not len(keys):
            return
        typed = self._typed(values, len(keys))
        self._removed += typed.null_count
        columns = [*keys.table.columns, typed]
        if self._ttl_us is not None:
            columns.append(self._next_expiries(keys, self._ttl_us))
        self._rows.replace(pa.table(columns, schema=self.layout.schema.remove(0)))

    def __getitem__(self, key: Keys) -> Any:  # noqa: ANN401 - of the declared type
        """Return the value of a single key as a Python value; None if there is none."""
        assert len(key) == 1, f"these are {len(key)} keys"
        return self.get(key)[0].as_py()

    def __setitem__(self, key: Keys, value: object) -> None:
        """Replace the value of a single key; None removes it."""
        self.put(key, [value])

    def _typed(self, values: Values, count: int) -> pa.Array:
        typed = typed_values(self._what, values, self._type)
        if len(typed) != count:
            raise wrong(
                f"{self._what} was given {len(typed)} values for {count} keys: give one per key"
            )
        return typed

    def _next_expiries(self, keys: Keys, ttl_us: int) -> pa.Array:
        """Return when the values expire; what replaces a value never expires before it."""
        next_us = keys.times_us + ttl_us
        found, rows = self._rows.look_up(keys.table)
        if len(found):
            before_us = expiries_us(rows)
            gone = (before_us < keys.times_us[found]) & self._are_values(rows)
            self.expired_row_count += int(gone.sum())
            next_us[found] = np.maximum(next_us[found], before_us)
        return pa.array(next_us).cast(TIME_TYPE)

    # --- for the operator -----------------------------------------------------------------------

    def purge(self, before_us: int) -> None:
        """Drop what no later call can see, whose event time is not before ``before_us``.

        It is done now and then: when a part of the time to live has passed, or, of values without
        one, when half of them were removed.
        """
        if self._ttl_us is None:
            gone = self._removed_before + (0 if self._has_cut else self._removed)
            if gone > max(_FEW, len(self._rows) // 2):
                self._rows.forget(self._without_removed)
                self._removed_before = 0
                self._removed = self._removed if self._has_cut else 0
            return
        last_us = before_us - 1
        if self.expired_us is None or last_us >= self.expired_us + self._ttl_us // PURGES_PER_TTL:
            self.expired_us = last_us
            self._rows.forget(self._unexpired)

    def pin(self) -> "PinnedValues":
        """Hold on to all values as they are now."""
        return PinnedValues(self._rows.pin(), self.layout, whole=self._ttl_us is None)

    def take_changes(self) -> "PinnedValues":
        """Hold on to the values that changed since the last call."""
        self._has_cut = True
        self._removed_before, self._removed = self._removed_before + self._removed, 0
        return PinnedValues(self._rows.take_changes(), self.layout, whole=False)

    def restore(self, rows: pa.Table) -> None:
        """Take rows from a checkpoint; later ones replace earlier ones."""
        self._removed_before += rows.column(self.layout.name).null_count
        self._rows.replace(rows)

    def restore_mark(self, expired_us: Sequence[int | None]) -> None:
        """Continue from where all subtasks of a checkpoint had come to."""
        self.expired_us = least_of_all(expired_us)

    def _unexpired(self, rows: pa.Table, *, settled: bool) -> pa.Table:
        """Forget what has expired; removals stay until then, for the expiry of the next value."""
        del settled
        assert self.expired_us is not None, "it is set before"
        if not rows.num_rows:
            return rows
        gone = expiries_us(rows) <= self.expired_us
        self.expired_row_count += int((gone & self._are_values(rows)).sum())
        return rows.filter(pa.array(~gone))

    def _without_removed(self, rows: pa.Table, *, settled: bool) -> pa.Table:
        """Forget removals of values that live for ever, unless they are still to be written."""
        if (self._has_cut and not settled) or not rows.column(self.layout.name).null_count:
            return rows
        return self.layout.present_rows(rows)

    def _are_values(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        valid = call_function("is_valid", [rows.column(self.layout.name)])
        return valid.to_numpy().astype(np.bool_)


_FEW = 1_024


@dataclass(frozen=True, slots=True, eq=False)
class PinnedValues:
    """Values as they were at a cut.

    ``whole``: all of them, so that removals say nothing, not even when they would have expired.
    """

    rows: PinnedRows
    layout: TableLayout
    whole: bool = field(kw_only=True)

    def stored_tables(self, max_parallelism: int) -> Iterator[pa.Table]:
        """Yield the tables of a checkpoint."""
        for stored in self.rows.stored_tables(max_parallelism):
            rows = self.layout.present_rows(stored) if self.whole else stored
            if rows.num_rows:
                yield rows
