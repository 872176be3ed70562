"""Which columns of a stream its watermark tells about.

A watermark is a promise about one clock, and a window that takes another column for its time would
drop rows that are in time by that column. So a stream knows its columns of event time, each with
how far its values may be behind the watermark.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.aggregation import WINDOW_END
from laminar_core.operators.windows import Window
from laminar_core.state.window_layout import WINDOW_START


class TimeColumn(NamedTuple):
    """A column that a window can be over."""

    name: str
    lag_us: int
    """Its values may be so far behind the watermark."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """What the watermark of a stream is about."""

    lags_us: Mapping[str, int]
    """By column: no later row is older than the watermark less this."""
    default: str = ""
    """What a window is over that names no column; empty: it has to name one."""

    @classmethod
    def of(cls, column: str) -> "EventTime":
        """Behind ``watermark(column)``."""
        return cls({column: 0}, column)

    @classmethod
    def behind(cls, window: Window) -> "EventTime":
        """Behind windows, which hold the watermark back to what is certain of their ends."""
        return cls({WINDOW_END: 0, WINDOW_START: window.size_us})

    def among(self, columns: Collection[str]) -> "EventTime":
        """Leave out what is not in ``columns``."""
        lags_us = {name: lag_us for name, lag_us in self.lags_us.items() if name in columns}
        return EventTime(lags_us, self.default if self.default in lags_us else "")

    def through(self, before: pa.Schema, after: pa.Schema) -> "EventTime":
        """Behind an operator: a column that keeps its name and its type is still event time."""
        kept = [
            name
            for name in self.lags_us
            if name in after.names and after.field(name).type == before.field(name).type
        ]
        return self.among(kept)

    def joined(self, other: "EventTime") -> "EventTime":
        """Of a union: what is event time in both, as far behind as in either."""
        lags_us = {
            name: max(lag_us, other.lags_us[name])
            for name, lag_us in self.lags_us.items()
            if name in other.lags_us
        }
        return EventTime(lags_us, self.default if self.default in lags_us else "")

    def column(self, name: str | None) -> TimeColumn:
        """Return the column that a window is over, by default the one of ``watermark``.

        Raises:
            ConfigurationError: the watermark says nothing about this column, or none is named and
                there are several (INVALID_PIPELINE).
        """
        chosen = name or self.default
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
