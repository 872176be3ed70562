"""Joins of two streams, as ``Stream.join`` and ``Stream.as_of`` describe them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from laminar_core.arguments import require_instance
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.aggregation import WINDOW_END
from laminar_core.operators.joins.as_of import AsOfJoin
from laminar_core.operators.joins.columns import JoinedColumns
from laminar_core.operators.joins.forward import ForwardAsOfJoin
from laminar_core.operators.joins.interval import IntervalJoin
from laminar_core.operators.joins.kinds import How, sides_in_every_row
from laminar_core.operators.joins.side import JoinSide
from laminar_core.operators.joins.waiting import AsOfHow
from laminar_core.operators.joins.window import WindowJoin
from laminar_core.operators.windows import Window, are_equal, require_window, window_text
from laminar_core.pipeline.event_time import EventTime, TimeColumn
from laminar_core.state.window_layout import WINDOW_START
from laminar_core.units import Duration, duration_us, signed_duration_us

if TYPE_CHECKING:
    from laminar_core.pipeline.stream import Stream

On = str | Sequence[str] | Mapping[str, str]
"""Key columns: one, several, or the left name and the right name of each."""

Times = str | tuple[str, str] | None
"""Event time: a column of both sides, one of each, or the column of each one's ``watermark``."""

Direction = Literal["backward", "forward"]
"""Whether the last row before or the first row after is meant."""


class JoinOptions(NamedTuple):
    """Options of all joins: the keys, the times, and the suffix of right columns."""

    on: On
    time: Times
    suffix: str

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the key columns of both sides."""
        return key_names(self.on)


def join(  # noqa: PLR0913 - the options of Stream.join
    left: "Stream",
    right: "Stream",
    name: str,
    options: JoinOptions,
    *,
    within: tuple[Duration, Duration] | None,
    window: Window | None,
    how: How,
) -> "Stream":
    """Pair rows with equal keys whose times are close, or in one window; see ``Stream.join``.

    Raises:
        ConfigurationError: it has neither bounds nor a window, or both, or these are of another
            form (INVALID_OPTION).
    """
    sides, lag_us = sides_of(left, right, name, options)
    if (within is None) == (window is None):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{name}: a join needs within=(low, high), window=... or ttl=..., and only one of them;"
            " or equal_windows=True for results of windows",
        )
    if window is not None:
        require_window(window)
        operator = WindowJoin(name, *sides, window, how=how, suffix=options.suffix, lag_us=lag_us)
        return _connected(left, right, operator).timed(_window_time(left, right, operator))
    low, high = pair_of(
        within,
        f'{name}: within is two durations, as in ("0 seconds", "1 hour"), not {within!r}',
    )
    low_us, high_us = signed_duration_us(low), _upper_bound(left, high, name)
    if isinstance(high_us, str):
        sides, high_us = (replace(sides[0], until=high_us), sides[1]), None
    operator = IntervalJoin(
        name, *sides, low_us, high_us, how=how, suffix=options.suffix, lag_us=lag_us
    )
    joined = _connected(left, right, operator)
    columns = operator.columns(left.schema, right.schema)
    return joined.timed(_event_time(columns, sides, operator.timed_sides()))


def join_of_equal_windows(
    left: "Stream", right: "Stream", name: str, options: JoinOptions, *, how: How
) -> "Stream":
    """Pair results of equal windows by key and window; see ``Stream.join``.

    The window is a part of the key, and its end the event time of both sides. So a result meets
    only those of its window, and leaves when the watermark has passed its end.

    Raises:
        ConfigurationError: an input has no results of windows, or both have those of different
            ones (INVALID_PIPELINE).
    """
    if options.time is not None:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{name}: the event time of results of windows is {WINDOW_END}: leave time out",
        )
    window = _equal_windows(left, right, name)
    keys = [(*keys, WINDOW_START, WINDOW_END) for keys in options.keys]
    sides, lag_us = sides_of(left, right, name, options._replace(time=WINDOW_END))
    sides = (replace(sides[0], keys=keys[0]), replace(sides[1], keys=keys[1]))
    operator = IntervalJoin(name, *sides, 0, 0, how=how, suffix=options.suffix, lag_us=lag_us)
    return _connected(left, right, operator).timed(EventTime.behind(window))


def _equal_windows(left: "Stream", right: "Stream", name: str) -> Window:
    one = _windows_of(left, f"the left input of {name}")
    other = _windows_of(right, f"the right input of {name}")
    if not are_equal(one, other):
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"{name} pairs results of equal windows, and has {window_text(one)} on the left and"
            f" {window_text(other)} on the right: use the same windows on both sides",
        )
    return one


def _windows_of(stream: "Stream", what: str) -> Window:
    known = stream.event_time
    if known is None or known.windows is None:
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"{what} has no results of windows, or not their {WINDOW_START} and {WINDOW_END} as"
            " they were: join rows with window=..., or within=(low, high)",
        )
    return known.windows


def as_of_join(  # noqa: PLR0913 - the options of Stream.as_of
    left: "Stream",
    right: "Stream",
    name: str,
    options: JoinOptions,
    *,
    how: AsOfHow,
    direction: Direction,
    max_distance: Duration | None,
) -> "Stream":
    """Give each row the closest row of the other stream; see ``Stream.as_of``.

    Raises:
        ConfigurationError: there is no such direction, or it needs a distance (INVALID_OPTION).
    """
    if direction not in get_args(Direction):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{name}: direction is {' or '.join(get_args(Direction))}, not {direction}",
        )
    sides, lag_us = sides_of(left, right, name, options)
    distance_us = None if max_distance is None else duration_us(max_distance)
    kind = AsOfJoin if direction == "backward" else ForwardAsOfJoin
    operator = kind(name, *sides, distance_us, how, suffix=options.suffix, lag_us=lag_us)
    joined = _connected(left, right, operator)
    columns = operator.columns(left.schema, right.schema)
    return joined.timed(_event_time(columns, sides, [0]))


def _upper_bound(left: "Stream", bound: Duration, name: str) -> int | str:
    """Return a bound in microseconds, or the column of the left stream that has one per row.

    Raises:
        ConfigurationError: it is neither (INVALID_OPTION).
    """
    if isinstance(bound, str) and bound in left.schema.names:
        return bound
    try:
        return signed_duration_us(bound)
    except ConfigurationError as error:
        raise ConfigurationError(
            error.code, f"{name}: the upper bound is no column of the left input, and {error}"
        ) from error


def sides_of(
    left: "Stream", right: "Stream", name: str, options: JoinOptions
) -> tuple[tuple[JoinSide, JoinSide], int]:
    """Return both sides, and how far their times may lag behind the watermark."""
    left_keys, right_keys = options.keys
    times = time_columns(left, right, name, options.time)
    sides = (
        JoinSide("left", left_keys, times[0].name),
        JoinSide("right", right_keys, times[1].name),
    )
    return sides, max(time.lag_us for time in times)


def key_names(on: On) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the keys on the left and on the right.

    Raises:
        ConfigurationError: ``on`` is no columns (INVALID_OPTION).
    """
    given: Any = on
    if isinstance(on, Mapping):
        left, right = tuple(on), tuple(on.values())
    elif isinstance(on, str) or not hasattr(given, "__iter__"):
        left = right = (given,)
    else:
        left = right = tuple(given)
    names: tuple[object, ...] = (*left, *right)
    if not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            "on is a column, several, or a mapping from the left ones to the right ones, not"
            f" {on!r}",
        )
    return left, right


def pair_of(pair: Any, problem: str) -> tuple[Any, Any]:  # noqa: ANN401 - of the user
    """Return two things.

    Raises:
        ConfigurationError: they are not two (INVALID_OPTION); ``problem`` is the message.
    """
    given: tuple[Any, ...] = ()
    if hasattr(pair, "__iter__") and not isinstance(pair, str | Mapping):
        given = tuple(cast("Iterable[Any]", pair))
    match given:
        case (first, second):
            return first, second
        case _:
            raise ConfigurationError(ErrorCode.INVALID_OPTION, problem)


def time_columns(
    left: "Stream", right: "Stream", name: str, time: Times
) -> tuple[TimeColumn, TimeColumn]:
    """Return the event time of both streams.

    Raises:
        ConfigurationError: a stream has none, or not this one (INVALID_PIPELINE), or ``time`` is
            neither a column nor two (INVALID_OPTION).
    """
    left_time, right_time = (
        (time, time)
        if time is None or isinstance(time, str)
        else pair_of(time, f"{name}: time is a column of both, or two, one of each, not {time!r}")
    )
    return (
        event_time_of(left.event_time, left_time, f"the left input of {name}"),
        event_time_of(right.event_time, right_time, f"the right input of {name}"),
    )


def event_time_of(known: EventTime | None, name: str | None, what: str) -> TimeColumn:
    """Return the column of event time, by default the one of ``watermark``.

    Raises:
        ConfigurationError: the watermark does not apply to this column, or none is named and there
            are several (INVALID_PIPELINE).
    """
    lags_us: Mapping[str, int] = {} if known is None else known.lags_us
    chosen = ("" if known is None else known.default) if name is None else name
    require_instance(chosen, str, f"the event time of {what} must be a column")
    if chosen in lags_us:
        return TimeColumn(chosen, lags_us[chosen])
    if not lags_us:
        problem = "has no event time: call watermark(column) on it"
    elif name is None:
        several = "several event times" if len(lags_us) > 1 else "also rows of any time"
        problem = f"has {several}: choose one of {', '.join(lags_us)} with time=..."
    else:
        problem = f"has the event time {' or '.join(lags_us)}, and not {name!r}: change time=..."
    raise ConfigurationError(ErrorCode.INVALID_PIPELINE, f"{what} {problem}")


def _connected(
    left: "Stream",
    right: "Stream",
    operator: IntervalJoin | WindowJoin | AsOfJoin | ForwardAsOfJoin,
) -> "Stream":
    for stream, side in zip((left, right), operator.sides, strict=True):
        stream.updates.require_taken_by(operator)
        side.check(stream.schema)
    keyed = left.key_by(*operator.left.keys)
    return keyed.connect(right.key_by(*operator.right.keys), operator=operator)


def _event_time(
    columns: JoinedColumns, sides: tuple[JoinSide, JoinSide], kept: Sequence[int]
) -> EventTime:
    """Return the event time of a result: the time of each side that is in every row."""
    names = [columns.name_of(side, sides[side].time) for side in kept]
    return EventTime(dict.fromkeys(names, 0), names[0] if names else "")


def _window_time(left: "Stream", right: "Stream", operator: WindowJoin) -> EventTime:
    """Return the event time of a window join: its window, and times that are in every row."""
    columns = operator.columns(left.schema, right.schema)
    size_us = operator.window.size_us
    lags_us = {
        columns.name_of(side, operator.sides[side].time): size_us
        for side in sides_in_every_row(operator.how)
    }
    times = {WINDOW_END: 0, WINDOW_START: size_us, **lags_us}
    return EventTime(times, windows=operator.window)
