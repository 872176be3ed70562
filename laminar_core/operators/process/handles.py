"""Timers as a process function sets and deletes them."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.timers import TimerTable

_DUE_MAX_US = 2**62
"""Beyond all times of rows; ``duration`` added to it is still a time."""

Due = int | Integers | pa.Array | pa.ChunkedArray
"""One time for all keys, or one per key: microseconds since 1970, or timestamps. Null: none."""


class Timers:
    """Timers by key and due time: a key can have several, and one time of it is there once."""

    input_ended = False
    """Whether the input has ended, so that all timers fire, also those that are set from now on."""

    def __init__(
        self,
        what: str,
        event: TimerTable | None,
        clock: TimerTable | None,
        now_us: Callable[[], int],
    ) -> None:
        self._what = what
        self._event = event
        self._clock = clock
        self._now_us = now_us

    def set(self, keys: Keys, due: Due) -> None:
        """Call ``on_timer`` for these keys once event time has reached ``due``.

        At once, after this call, if it has already.

        Raises:
            ConfigurationError: the process has no ``on_timer`` (INVALID_PIPELINE).
        """
        _change(self._named(self._event, "on_timer"), keys, due, is_set=True)

    def delete(self, keys: Keys, due: Due) -> None:
        """Delete the timers of these keys for exactly this time, where there are such."""
        _change(self._named(self._event, "on_timer"), keys, due, is_set=False)

    def set_clock(self, keys: Keys, due: Due) -> None:
        """Call ``on_clock_timer`` once the clock of the worker has reached ``due``.

        Raises:
            ConfigurationError: the process has no ``on_clock_timer`` (INVALID_PIPELINE).
        """
        table = self._named(self._clock, "on_clock_timer")
        after_us = -_DUE_MAX_US if table.reached_us is None else table.reached_us + 1
        _change(table, keys, due, is_set=True, least_us=after_us)

    def delete_clock(self, keys: Keys, due: Due) -> None:
        """Delete timers by the clock, as ``delete`` does."""
        _change(self._named(self._clock, "on_clock_timer"), keys, due, is_set=False)

    @property
    def now_us(self) -> int:
        """The clock of the worker, in microseconds since 1970."""
        return self._now_us()

    def _named(self, table: TimerTable | None, method: str) -> TimerTable:
        if table is None:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{self._what} sets a timer and has no {method}: give its class that method",
            )
        return table


def _change(
    table: TimerTable, keys: Keys, due: Due, *, is_set: bool, least_us: int = -_DUE_MAX_US
) -> None:
    if isinstance(due, int | np.ndarray):
        dues_us = np.broadcast_to(np.asarray(due, np.int64), (len(keys),))
    else:
        keys, dues_us = _known(keys, as_array(due))
    table.change(keys.table, np.clip(dues_us, least_us, _DUE_MAX_US), is_set=is_set)


def _known(keys: Keys, due: pa.Array) -> tuple[Keys, Integers]:
    """Leave out the keys without a due time."""
    if pa.types.is_timestamp(due.type):
        due = due.cast(pa.timestamp("us", tz=due.type.tz)).view(pa.int64())
    if due.null_count:
        keys, due = keys.take(due.is_valid()), due.drop_null()
    return keys, due.to_numpy()
