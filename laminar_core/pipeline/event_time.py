"""The event-time columns of a stream: those that its watermark applies to.

A watermark refers to one clock. A window over another time column would drop rows that are on time
by that column. So a stream knows its event-time columns, each with the maximal lag of its values
behind the watermark.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from laminar_core.arguments import require_instance
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.aggregation import WINDOW_END
from laminar_core.operators.windows import Window, are_equal
from laminar_core.state.window_layout import WINDOW_START


class TimeColumn(NamedTuple):
    """A column that a window can be over."""

    name: str
    lag_us: int
    """How far its values may lag behind the watermark."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """The columns that the watermark of a stream applies to."""

    lags_us: Mapping[str, int]
    """By column: no later row is older than the watermark less this."""
    default: str = ""
    """The column of windows that name none; empty if they must name one."""
    windows: Window | None = None
    """The windows that the rows are results of, by their ``window_start`` and ``window_end``; None:
    they are results of no windows, or of different ones."""

    @classmethod
    def of(cls, column: str) -> "EventTime":
        """Return the event time after ``watermark(column)``."""
        return cls({column: 0}, column)

    @classmethod
    def behind(cls, window: Window) -> "EventTime":
        """Return the event time after windows, which delay the watermark accordingly."""
        return cls({WINDOW_END: 0, WINDOW_START: window.size_us}, windows=window)

    @classmethod
    def behind_sessions(cls) -> "EventTime":
        """Return the event time after sessions: they may have begun any time before they end."""
        return cls({WINDOW_END: 0})

    def among(self, columns: Collection[str]) -> "EventTime":
        """Leave out what is not in ``columns``."""
        lags_us = {name: lag_us for name, lag_us in self.lags_us.items() if name in columns}
        windows = self.windows if {WINDOW_START, WINDOW_END} <= lags_us.keys() else None
        return EventTime(lags_us, self.default if self.default in lags_us else "", windows)

    def through(self, before: pa.Schema, after: pa.Schema) -> "EventTime":
        """Return the event time after an operator: columns that keep their name and type."""
        kept = [
            name
            for name in self.lags_us
            if name in after.names and after.field(name).type == before.field(name).type
        ]
        return self.among(kept)

    def joined(self, other: "EventTime") -> "EventTime":
        """Return the event time of a union: the common columns, each with the larger lag."""
        lags_us = {
            name: max(lag_us, other.lags_us[name])
            for name, lag_us in self.lags_us.items()
            if name in other.lags_us
        }
        windows = self.windows
        if windows is None or other.windows is None or not are_equal(windows, other.windows):
            windows = None
        return EventTime(lags_us, self.default if self.default in lags_us else "", windows)

    def if_named(self) -> "EventTime":
        """Return the event time of a stream with rows of any time: a window has to name it."""
        return EventTime(self.lags_us)

    def column(self, name: str | None) -> TimeColumn:
        """Return the column of a window, by default the column of ``watermark``.

        Raises:
            ConfigurationError: the watermark does not apply to this column, or none is named and
                there are several (INVALID_PIPELINE).
        """
        chosen = self.default if name is None else name
        require_instance(chosen, str, "an event time must be a column")
        if chosen in self.lags_us:
            return TimeColumn(chosen, self.lags_us[chosen])
        here = " or ".join(f"time={known!r}" for known in self.lags_us) or "in no column any more"
        if name is None:
            problem = f"this window has to name its event time, which is {here}"
        else:
            problem = f"{name!r} is not the event time of this stream, which is {here}"
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE, f"{problem}; or call watermark(column) before key_by"
        )
