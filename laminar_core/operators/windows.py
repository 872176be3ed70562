"""Event-time windows for users, and the assignment of rows to them.

>>> tumbling("5 minutes")
TumblingWindow(size_us=300000000, offset_us=0)
>>> sliding("10 minutes", "5 minutes")
SlidingWindow(size_us=600000000, slide_us=300000000, offset_us=0)

>>> cumulative("1 day", "1 hour")
CumulativeWindow(size_us=86400000000, step_us=3600000000, offset_us=0)

A window covers [start, start + size): its start is in it, its end is not. Starts are the multiples
of the slide (for tumbling and cumulative windows, of the size), shifted by the offset, also before
1970. Cumulative windows of one start end after one step, two steps and so on.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import JsonObject
from laminar_core.units import US_MAX, Duration, duration_us

TimesUs = npt.NDArray[np.int64]
Times = TypeVar("Times", int, npt.NDArray[np.int64])
"""One time, or an array of times."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class TumblingWindow:
    """Windows side by side: every row is in exactly one."""

    size_us: int
    offset_us: int = 0

    @property
    def slide_us(self) -> int:
        """The distance between starts of windows."""
        return self.size_us

    def describe(self) -> JsonObject:
        """Return the identity for the fingerprint of a pipeline."""
        return {"kind": "tumbling", "size_us": self.size_us, "offset_us": self.offset_us}


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Windows that overlap: every row is in ``size / slide`` of them."""

    size_us: int
    slide_us: int
    offset_us: int = 0

    def describe(self) -> JsonObject:
        """Return the identity for the fingerprint of a pipeline."""
        return {
            "kind": "sliding",
            "size_us": self.size_us,
            "slide_us": self.slide_us,
            "offset_us": self.offset_us,
        }


@dataclass(frozen=True, slots=True)
class CumulativeWindow:
    """Windows that begin together and grow by a step, until they are ``size`` long."""

    size_us: int
    step_us: int
    offset_us: int = 0

    @property
    def slide_us(self) -> int:
        """The distance between ends of windows, and the length of a pane."""
        return self.step_us

    def describe(self) -> JsonObject:
        """Return the identity for the fingerprint of a pipeline."""
        return {
            "kind": "cumulative",
            "size_us": self.size_us,
            "step_us": self.step_us,
            "offset_us": self.offset_us,
        }


Window = TumblingWindow | SlidingWindow | CumulativeWindow


def are_equal(one: Window, other: Window) -> bool:
    """Return whether both divide event time into the same windows, however they are described.

    >>> are_equal(tumbling("5 minutes"), sliding("5 minutes", "5 minutes"))
    True
    """
    return _identity(one) == _identity(other)


def _identity(window: Window) -> tuple[str, int, int, int]:
    if window.size_us == window.slide_us:
        return "tumbling", window.size_us, window.slide_us, window.offset_us % window.size_us
    begins_every_us = window.slide_us
    if isinstance(window, CumulativeWindow):
        begins_every_us = window.size_us
    offset_us = window.offset_us % begins_every_us
    return type(window).__name__, window.size_us, window.slide_us, offset_us


def require_window(window: object) -> None:
    """Accept windows.

    Raises:
        ConfigurationError: it is none (INVALID_OPTION).
    """
    if not isinstance(window, Window):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{window!r} is no window: make one with windows.tumbling, sliding or cumulative",
        )


def window_text(window: Window) -> str:
    """Return what kind of windows these are, in words.

    >>> window_text(cumulative("1 day", "1 hour", offset="90 seconds"))
    'cumulative windows of 86400 s with steps of 3600 s, from 90 s on'
    """
    size, step = (f"{us / 1_000_000:g} s" for us in (window.size_us, window.slide_us))
    said = f"tumbling windows of {size}"
    if isinstance(window, SlidingWindow):
        said = f"sliding windows of {size} every {step}"
    elif isinstance(window, CumulativeWindow):
        said = f"cumulative windows of {size} with steps of {step}"
    offset = f", from {window.offset_us / 1_000_000:g} s on" if window.offset_us else ""
    return said + offset


def tumbling(size: Duration, *, offset: Duration | None = None) -> TumblingWindow:
    """Return windows of ``size``, the first one beginning ``offset`` after 1970.

    Raises:
        ConfigurationError: a duration is invalid (INVALID_OPTION).
    """
    return TumblingWindow(duration_us(size), _offset_us(offset))


def sliding(size: Duration, slide: Duration, *, offset: Duration | None = None) -> SlidingWindow:
    """Return windows of ``size`` that begin every ``slide``; ``size`` is a multiple of ``slide``.

    Raises:
        ConfigurationError: a duration is invalid, or ``slide`` does not divide ``size``
            (INVALID_OPTION).
    """
    window = SlidingWindow(duration_us(size), duration_us(slide), _offset_us(offset))
    if window.size_us % window.slide_us:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"the size of a sliding window must be a multiple of its slide: {size} is not a"
            f" multiple of {slide}",
        )
    return window


def cumulative(
    size: Duration, step: Duration, *, offset: Duration | None = None
) -> CumulativeWindow:
    """Return windows that begin every ``size`` and end after each ``step`` of it.

    With ``cumulative("1 day", "1 hour")`` each day has 24 windows: its first hour, its first two
    hours, and so on to the whole day.

    Raises:
        ConfigurationError: a duration is invalid, or ``step`` does not divide ``size``
            (INVALID_OPTION).
    """
    window = CumulativeWindow(duration_us(size), duration_us(step), _offset_us(offset))
    if window.size_us % window.step_us:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"the size of a cumulative window must be a multiple of its step: {size} is not a"
            f" multiple of {step}",
        )
    return window


def grows_from_us(window: Window) -> int | None:
    """Return the offset of cumulative windows; None: all windows have the same size."""
    return window.offset_us if isinstance(window, CumulativeWindow) else None


def pane_numbers(window: Window, times_us: Times) -> Times:
    """Return the pane number of each time: the slide that it falls into, counted from the offset.

    A pane of a sliding window belongs to the windows that start with it and up to
    ``size / slide - 1`` slides before.
    """
    # Floor division by a constant is vectorised by numpy; the remainder is not.
    return (times_us - window.offset_us if window.offset_us else times_us) // window.slide_us


def pane_starts(window: Window, numbers: Times) -> Times:
    """Start of each numbered pane, in microseconds."""
    return numbers * window.slide_us + window.offset_us


def windows_per_row(window: Window) -> int:
    """Return the largest number of windows that a row can be in."""
    return 1 if isinstance(window, TumblingWindow) else window.size_us // window.slide_us


def last_ends_us(window: Window, times_us: TimesUs) -> TimesUs:
    """Return the end of the last window that each time is in."""
    starts_us = pane_starts(window, pane_numbers(window, times_us))
    if not isinstance(window, CumulativeWindow):
        return starts_us + window.size_us
    return window_starts_us(window, starts_us + window.step_us) + window.size_us


def ends_us(window: Window, times_us: TimesUs) -> tuple[TimesUs, TimesUs]:
    """Return a position and the end of a window, for each window that each time is in.

    Shapes: both arrays are as long; positions are ascending, and so are the ends of one position.
    """
    numbers = pane_numbers(window, times_us)
    counts = np.full(len(times_us), windows_per_row(window))
    if isinstance(window, CumulativeWindow):
        counts -= numbers % windows_per_row(window)
    positions = np.repeat(np.arange(len(times_us)), counts)
    nth = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
    return positions, pane_starts(window, numbers)[positions] + window.slide_us * (nth + 1)


def window_starts_us(window: Window, ends_us: TimesUs) -> TimesUs:
    """Return the start of the window with each end; no two windows of a kind end together."""
    if not isinstance(window, CumulativeWindow):
        return ends_us - window.size_us
    last_panes = pane_numbers(window, ends_us) - 1
    return pane_starts(window, last_panes // windows_per_row(window) * windows_per_row(window))


def require_time_column(schema: pa.Schema, column: str) -> None:
    """Accept a timestamp of any unit and zone, or int64 microseconds since 1970.

    Raises:
        ConfigurationError: the column has another type (UNSUPPORTED_TYPE).
    """
    data_type = schema.field(column).type
    if not (pa.types.is_timestamp(data_type) or pa.types.is_int64(data_type)):
        raise ConfigurationError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"event time must be a timestamp or int64 microseconds, and {column!r} is {data_type}",
        )


def event_times_us(batch: pa.RecordBatch, column: str) -> TimesUs:
    """Read the event time of every row.

    Raises:
        DataError: a row has none (NULL_EVENT_TIME), or one so far off that it cannot be right
            (ARITHMETIC_OVERFLOW).
    """
    times = batch.column(column)
    if times.null_count:
        raise DataError(
            ErrorCode.NULL_EVENT_TIME,
            f"{times.null_count} of {len(times)} rows have no event time in {column!r};"
            " filter them out before the window",
        )
    return known_times_us(times, column)


def known_times_us(times: pa.Array, column: str) -> TimesUs:
    """Convert event times without nulls to microseconds since 1970, rounding down.

    Raises:
        DataError: one is so far off that it cannot be right (ARITHMETIC_OVERFLOW).
    """
    unit = times.type.unit if pa.types.is_timestamp(times.type) else "us"
    values = times.view(pa.int64()).to_numpy()
    limit = US_MAX // _PER_SECOND["us"] * _PER_SECOND[unit]
    worst = max(int(values.max(initial=0)), int(values.min(initial=0)), key=abs)
    if abs(worst) > limit:
        raise DataError(
            ErrorCode.ARITHMETIC_OVERFLOW,
            f"event time {worst} ({unit} since 1970) in {column!r} is not a real time;"
            " check the unit of the column",
        )
    if unit == "ns":
        return values // 1_000
    return values if unit == "us" else values * (_PER_SECOND["us"] // _PER_SECOND[unit])


def _offset_us(offset: Duration | None) -> int:
    return 0 if offset is None else duration_us(offset)
