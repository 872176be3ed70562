"""Timers as a process function sets and deletes them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.process.given import wrong
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.timers import TimerTable

_DUE_MAX_US = 2**62
"""Beyond all times of rows; ``duration`` added to it is still a time."""

Due = int | np.integer | np.datetime64 | npt.NDArray[Any] | pa.Array | pa.ChunkedArray
"""One time for all keys, or one per key: microseconds since 1970, or timestamps. Null: none."""


class Timers:
    """Timers by key and due time: a key can have several, and one time of it is there once."""

    input_ended = False
    """Whether the input has ended, so that all timers fire, also those that are set from now on."""
    set_count = 0
    """How many timers were set so far."""

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

        At once, after this call, if it has already. Nanoseconds are rounded down.

        Raises:
            ConfigurationError: the process has no ``on_timer`` (INVALID_PIPELINE), or ``due`` is no
                time, or of another number than keys (WRONG_SCHEMA).
        """
        self._change(self._named(self._event, "on_timer"), keys, due, is_set=True)

    def delete(self, keys: Keys, due: Due) -> None:
        """Delete the timers of these keys for exactly this time, where there are such."""
        self._change(self._named(self._event, "on_timer"), keys, due, is_set=False)

    def set_clock(self, keys: Keys, due: Due) -> None:
        """Call ``on_clock_timer`` once the clock of the worker has reached ``due``.

        Raises:
            ConfigurationError: as ``set``, of ``on_clock_timer``.
        """
        table = self._named(self._clock, "on_clock_timer")
        after_us = -_DUE_MAX_US if table.reached_us is None else table.reached_us + 1
        self._change(table, keys, due, is_set=True, least_us=min(after_us, _DUE_MAX_US))

    def delete_clock(self, keys: Keys, due: Due) -> None:
        """Delete timers by the clock, as ``delete`` does."""
        self._change(self._named(self._clock, "on_clock_timer"), keys, due, is_set=False)

    @property
    def now_us(self) -> int:
        """The clock of the worker, in microseconds since 1970."""
        return self._now_us()

    def _change(
        self,
        table: TimerTable,
        keys: Keys,
        due: Due,
        *,
        is_set: bool,
        least_us: int = -_DUE_MAX_US,
    ) -> None:
        keys, dues_us = _dues(self._what, keys, due)
        self.set_count += len(dues_us) if is_set else 0
        table.change(keys.table, np.clip(dues_us, least_us, _DUE_MAX_US), is_set=is_set)

    def _named(self, table: TimerTable | None, method: str) -> TimerTable:
        if table is None:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{self._what} sets a timer and has no {method}: give its class that method",
            )
        return table


def _dues(what: str, keys: Keys, due: Due) -> tuple[Keys, Integers]:
    """Return the keys that have a due time, and these times in microseconds, rounded down."""
    try:
        found = as_array(due) if isinstance(due, pa.Array | pa.ChunkedArray) else _array(keys, due)
        dues_us = _in_us(found)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise wrong(
            f"{what} sets timers for {type(due).__name__}: give microseconds since 1970, or"
            f" timestamps ({reason})"
        ) from error
    if len(dues_us) != len(keys):
        raise wrong(
            f"{what} sets timers for {len(dues_us)} times and {len(keys)} keys: give one time for"
            " all keys, or one per key"
        )
    if dues_us.null_count:
        keys, dues_us = keys.take(dues_us.is_valid()), dues_us.drop_null()
    return keys, dues_us.to_numpy()


def _array(keys: Keys, due: object) -> pa.Array:
    """Return one value or several as an array; a single one is for all keys."""
    given = np.asarray(due)
    if isinstance(due, np.ndarray) and given.dtype.kind == "f":
        given = _whole(given)
    if given.dtype.kind == "M":  # numpy has units that pyarrow has not.
        given = given.astype("datetime64[us]")
    return pa.array(np.broadcast_to(given, (len(keys),)) if given.size == 1 else given)


def _whole(given: npt.NDArray[Any]) -> Integers:
    """Round times down.

    Raises:
        ValueError: one is no number, or infinite.
    """
    if not np.isfinite(given).all():
        raise ValueError("a time is no finite number")
    return np.floor(given).astype(np.int64)


def _in_us(due: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(due.type) and due.type.unit == "ns":
        nulls = due.is_null().to_numpy(zero_copy_only=False)
        values = due.view(pa.int64()).fill_null(0).to_numpy()
        return pa.array(values // 1_000, mask=nulls)  # Casting rounds towards zero.
    if pa.types.is_timestamp(due.type):
        return due.cast(pa.timestamp("us", tz=due.type.tz)).view(pa.int64())
    if not (pa.types.is_integer(due.type) or pa.types.is_null(due.type)):
        message = f"not {due.type}"
        raise TypeError(message)
    return due.cast(pa.int64())
