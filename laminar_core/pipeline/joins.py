"""Joins of two streams, as ``Stream.join`` and ``Stream.as_of`` describe them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import MultiInputSpec
from laminar_core.operators.joins.as_of import AsOfHow, AsOfJoin
from laminar_core.operators.joins.columns import JoinedColumns
from laminar_core.operators.joins.interval import How, IntervalJoin
from laminar_core.operators.joins.side import JoinSide
from laminar_core.pipeline.event_time import EventTime, TimeColumn
from laminar_core.units import Duration, duration_us, signed_duration_us

if TYPE_CHECKING:
    from laminar_core.pipeline.builder import Stream

On = str | Sequence[str] | Mapping[str, str]
"""Key columns: one, several, or the left name and the right name of each."""

Times = str | tuple[str, str] | None
"""Event time: a column of both sides, one of each, or the column of each one's ``watermark``."""


def interval_join(  # noqa: PLR0913 - the options of Stream.join
    left: "Stream",
    right: "Stream",
    name: str,
    *,
    on: On,
    within: tuple[Duration, Duration],
    how: How,
    time: Times,
    suffix: str,
) -> "Stream":
    """Pair rows with equal keys whose times are close enough; see ``Stream.join``."""
    sides, lag_us = _sides(left, right, name, on, time)
    low_us, high_us = (signed_duration_us(bound) for bound in within)
    operator = IntervalJoin(name, *sides, low_us, high_us, how, suffix, lag_us)
    joined = _connected(left, right, sides, operator)
    columns = operator.columns(left.schema, right.schema)
    kept = [side for side in (0, 1) if how == "inner" or operator.how == ("left", "right")[side]]
    return joined.timed(_event_time(columns, sides, kept))


def as_of_join(  # noqa: PLR0913 - the options of Stream.as_of
    left: "Stream",
    right: "Stream",
    name: str,
    *,
    on: On,
    time: Times,
    max_distance: Duration | None,
    how: AsOfHow,
    suffix: str,
) -> "Stream":
    """Give each row the last row of the other stream before it; see ``Stream.as_of``."""
    sides, lag_us = _sides(left, right, name, on, time)
    distance_us = None if max_distance is None else duration_us(max_distance)
    operator = AsOfJoin(name, *sides, distance_us, how, suffix, lag_us)
    joined = _connected(left, right, sides, operator)
    columns = operator.columns(left.schema, right.schema)
    return joined.timed(_event_time(columns, sides, [0]))


def _sides(
    left: "Stream", right: "Stream", name: str, on: On, time: Times
) -> tuple[tuple[JoinSide, JoinSide], int]:
    """Return both sides, and how far their times may lag behind the watermark."""
    left_keys, right_keys = key_names(on)
    times = time_columns(left, right, name, time)
    sides = (
        JoinSide("left", left_keys, times[0].name),
        JoinSide("right", right_keys, times[1].name),
    )
    return sides, max(time.lag_us for time in times)


def key_names(on: On) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the keys on the left and on the right."""
    if isinstance(on, Mapping):
        return tuple(on), tuple(on.values())
    names = (on,) if isinstance(on, str) else tuple(on)
    return names, names


def time_columns(
    left: "Stream", right: "Stream", name: str, time: Times
) -> tuple[TimeColumn, TimeColumn]:
    """Return the event time of both streams.

    Raises:
        ConfigurationError: a stream has none, or not this one (INVALID_PIPELINE).
    """
    left_time, right_time = (time, time) if time is None or isinstance(time, str) else time
    return (
        _time_of(left.event_time, left_time, f"the left input of {name}"),
        _time_of(right.event_time, right_time, f"the right input of {name}"),
    )


def _time_of(known: EventTime | None, name: str | None, what: str) -> TimeColumn:
    """Return the column of event time, by default the one of ``watermark``.

    Raises:
        ConfigurationError: the watermark does not apply to this column, or none is named and there
            are several (INVALID_PIPELINE).
    """
    lags_us: Mapping[str, int] = {} if known is None else known.lags_us
    chosen = name or ("" if known is None else known.default)
    if chosen in lags_us:
        return TimeColumn(chosen, lags_us[chosen])
    if not lags_us:
        problem = "has no event time: call watermark(column) on it"
    elif name is None:
        problem = f"has several event times: choose one of {', '.join(lags_us)} with time=..."
    else:
        problem = f"has the event time {' or '.join(lags_us)}, and not {name!r}: change time=..."
    raise ConfigurationError(ErrorCode.INVALID_PIPELINE, f"{what} {problem}")


def _connected(
    left: "Stream", right: "Stream", sides: tuple[JoinSide, JoinSide], operator: MultiInputSpec
) -> "Stream":
    for stream, side in zip((left, right), sides, strict=True):
        side.check(stream.schema)
    keyed = left.key_by(*sides[0].keys)
    return keyed.connect(right.key_by(*sides[1].keys), operator=operator)


def _event_time(
    columns: JoinedColumns, sides: tuple[JoinSide, JoinSide], kept: Sequence[int]
) -> EventTime:
    """Return the event time of a result: the time of each side that is in every row."""
    names = [columns.name_of(side, sides[side].time) for side in kept]
    return EventTime(dict.fromkeys(names, 0), names[0] if names else "")
