"""States as a process function declares them, and what all of them offer to the operator."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from laminar_core.operators.base import JsonObject
from laminar_core.state.chunks import StateBackend
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TableLayout
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE
from laminar_core.units import Duration, duration_us

PURGES_PER_TTL = 4


class PinnedState(Protocol):
    """A table of state as it was at a cut."""

    def stored_tables(self, max_parallelism: int) -> Iterator[pa.Table]:
        """Yield the tables of a checkpoint, sorted by key group; in a background thread."""
        ...


class KeptState(Protocol):
    """One state in one subtask, as the operator sees it."""

    expired_row_count: int
    """Number of values dropped so far because they were not changed in time."""
    next_position: int
    """A number that no value has yet; 0 for states that number nothing."""

    @property
    def expired_us(self) -> int | None:
        """Values that expire at this time or before have been dropped."""
        ...

    def purge(self, before_us: int) -> None:
        """Drop what no later call can see, whose event time is not before ``before_us``."""
        ...

    def pin(self) -> PinnedState:
        """Hold on to all values as they are now."""
        ...

    def take_changes(self) -> PinnedState:
        """Hold on to the values that changed since the last call."""
        ...

    def restore(self, rows: pa.Table) -> None:
        """Take rows from a checkpoint; later ones replace earlier ones."""
        ...

    def restore_mark(self, expired_us: Sequence[int | None]) -> None:
        """Continue from where all subtasks of a checkpoint had come to."""
        ...


class State(Protocol):
    """A declared state: ``ValueState``, ``ListState`` or ``MapState``."""

    @property
    def ttl_us(self) -> int | None:
        """Return how long a value lives, in microseconds; None: for ever."""
        ...

    def describe(self) -> JsonObject:
        """Return the types that decide whether old state fits."""
        ...

    def layout(self, name: str, keys: Sequence[pa.Field]) -> TableLayout:
        """Return the table of the state with this name."""
        ...

    def opened(self, operator_id: str, layout: TableLayout, backend: StateBackend) -> KeptState:
        """Create the running instance."""
        ...


def time_to_live_us(ttl: Duration | None) -> int | None:
    """Return a time to live in microseconds; None: for ever.

    Raises:
        ConfigurationError: it is no duration (INVALID_OPTION).
    """
    return None if ttl is None else duration_us(ttl)


def state_columns(
    keys: Sequence[pa.Field], own: Sequence[pa.Field], ttl: Duration | None
) -> pa.Schema:
    """Return the columns of a stored state."""
    expiry = [] if ttl is None else [pa.field(EXPIRES, TIME_TYPE)]
    return pa.schema([pa.field(KEY_GROUP, pa.int32()), *keys, *own, *expiry])
