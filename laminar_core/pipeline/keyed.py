"""Rows by key: windows over event time, or running totals."""

from typing import TYPE_CHECKING

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.running import CombineRows, RunningAggregate
from laminar_core.operators.windows import Duration, Window, duration_us
from laminar_core.runtime.plan import Keyed
from laminar_core.state.accumulators import Aggregate
from laminar_core.state.paths import check_operator_id

if TYPE_CHECKING:
    from laminar_core.pipeline.builder import Stream


class KeyedStream:
    """Rows grouped by key."""

    def __init__(self, stream: "Stream", columns: tuple[str, ...], time: str) -> None:
        self._stream = stream
        self._columns = columns
        self._time = time

    def aggregate(self, name: str, *aggregates: Aggregate) -> "Stream":
        """Running totals: for every batch the new totals of the keys in it, for ever.

        What leaves is an upsert stream: a row replaces the earlier row of its key. Each batch is
        combined where it arises. State has one row per key, and keys are never forgotten.
        """
        _check_aggregation(name, aggregates)
        combine = CombineRows(f"{name}-combine", self._columns, aggregates)
        merge = RunningAggregate(name, self._columns, aggregates)
        return self._stream.then(combine).then(merge, Keyed(self._columns))

    def window(self, window: Window, *, time: str | None = None) -> "WindowedStream":
        """Cut event time into windows; ``time`` is by default the watermark's column.

        Raises:
            ConfigurationError: no event time is known.
        """
        column = time or self._time
        if not column:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                "windows need event time: call watermark(column) before, or pass time=column",
            )
        return WindowedStream(self._stream, self._columns, window, column)


class WindowedStream:
    """Rows grouped by key and window."""

    def __init__(
        self, stream: "Stream", columns: tuple[str, ...], window: Window, time: str
    ) -> None:
        self._stream = stream
        self._columns = columns
        self._window = window
        self._time = time

    def aggregate(
        self, name: str, *aggregates: Aggregate, allowed_lateness: Duration | None = None
    ) -> "Stream":
        """One row per key and window, when event time has passed the window's end.

        Each batch is combined where it arises, so that only one row per key and window crosses to
        the worker that owns the key. Rows that come after their window was emitted are dropped and
        counted; ``allowed_lateness`` delays the emission.
        """
        _check_aggregation(name, aggregates)
        lateness_us = 0 if allowed_lateness is None else duration_us(allowed_lateness)
        partial = PartialAggregate(
            f"{name}-combine", self._columns, self._time, self._window, aggregates
        )
        merge = WindowAggregate(name, self._columns, self._window, aggregates, lateness_us)
        return self._stream.then(partial).then(merge, Keyed(self._columns))


def _check_aggregation(name: str, aggregates: tuple[Aggregate, ...]) -> None:
    check_operator_id(name)
    if not aggregates:
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE, f"{name} aggregates nothing: add agg.count()"
        )
