"""First, last and best rows and joins without bounds, as ``Stream`` and ``KeyedStream`` say."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from laminar_core.arguments import require_instance
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.columns import require_columns
from laminar_core.operators.first_rows import FirstRows
from laminar_core.operators.joins.kinds import How
from laminar_core.operators.joins.side import JoinSide
from laminar_core.operators.joins.updating import UpdatingJoin
from laminar_core.operators.sort_keys import SortKey
from laminar_core.operators.top_rows import TopRows
from laminar_core.operators.weighted_top import WeightedTop
from laminar_core.pipeline.joins import JoinOptions, event_time_of, sides_of
from laminar_core.plan.plan import Keyed
from laminar_core.records.paths import check_operator_id
from laminar_core.units import Duration, duration_us, is_whole

if TYPE_CHECKING:
    from laminar_core.pipeline.stream import Stream


def distinct_rows(
    stream: "Stream",
    name: str,
    columns: Sequence[str],
    *,
    within: Duration | None,
    time: str | None,
) -> "Stream":
    """Pass the first row that comes of each key; see ``Stream.distinct``.

    Raises:
        ConfigurationError: a column is missing or cannot be compared, or there is no event time.
    """
    keys = tuple(columns or stream.schema.names)
    if within is None:
        if time is not None:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{name} has a time and keeps its keys for ever: pass within=..., or no time",
            )
        return stream.then(FirstRows(name, keys), Keyed(keys))
    chosen = event_time_of(stream.event_time, time, f"the input of {name}")
    operator = FirstRows(name, keys, chosen.name, duration_us(within), lag_us=chosen.lag_us)
    return stream.then(operator, Keyed(keys))


def first_rows(
    stream: "Stream", name: str, keys: tuple[str, ...], *, time: str | None, ttl: Duration | None
) -> "Stream":
    """Emit the first row of each key in event time; see ``KeyedStream.first``.

    Raises:
        ConfigurationError: a column is missing or of no type for this, or there is no event time.
    """
    check_operator_id(name)
    chosen = event_time_of(stream.event_time, time, f"the input of {name}")
    ttl_us = None if ttl is None else duration_us(ttl)
    operator = FirstRows(name, keys, chosen.name, ttl_us, waits=True, lag_us=chosen.lag_us)
    found = stream.then(operator, Keyed(keys))
    known = found.event_time
    if known is None or known.windows is not None:  # Times of one window are never far apart.
        return found
    return found.timed(known.among([chosen.name]))  # Rows wait for it, whatever others say.


def last_rows(
    stream: "Stream", name: str, keys: tuple[str, ...], *, time: str | None, ttl: Duration | None
) -> "Stream":
    """Emit the last row of each key whenever it changes; see ``KeyedStream.last``.

    Raises:
        ConfigurationError: a column is missing or of no type for this, or there is no event time.
    """
    check_operator_id(name)
    if ttl is None and time is not None:
        require_columns(stream.schema, [time])
        operator = TopRows(name, keys, 1, (SortKey(time, descending=True),), replaces=True)
        return stream.then(operator, Keyed(keys)).timed(None)
    chosen = event_time_of(stream.event_time, time, f"the input of {name}")
    operator = TopRows(
        name,
        keys,
        1,
        (SortKey(chosen.name, descending=True),),
        replaces=True,
        time=chosen.name,
        ttl_us=None if ttl is None else duration_us(ttl),
        lag_us=chosen.lag_us,
    )
    return stream.then(operator, Keyed(keys)).timed(None)


def top_rows(  # noqa: PLR0913 - the options of KeyedStream.top
    stream: "Stream",
    name: str,
    keys: tuple[str, ...],
    count: int,
    *,
    by: str | Sequence[str],
    rank: str | None,
    ttl: Duration | None,
    time: str | None,
) -> "Stream":
    """Keep the first rows of each key in an order; see ``KeyedStream.top``.

    Raises:
        ConfigurationError: a column is missing or of no type for this, or there is no event time.
    """
    check_operator_id(name)
    texts = (by,) if isinstance(by, str) else by
    wanted = f'{name}: by must be columns, as in ("price desc", "paid_at")'
    require_instance(texts, Sequence, wanted)
    for text in texts:
        require_instance(text, str, wanted)
    order = tuple(SortKey.read(text, stream.schema) for text in texts)
    kind = TopRows if stream.updates.mode == "append" else WeightedTop
    count = int(count) if is_whole(count) else count  # Of numpy, it could not be described.
    if ttl is None:
        return stream.then(kind(name, keys, count, order, rank), Keyed(keys)).timed(None)
    chosen = event_time_of(stream.event_time, time, f"the input of {name}")
    ttl_us = duration_us(ttl)
    operator = kind(
        name, keys, count, order, rank, time=chosen.name, ttl_us=ttl_us, lag_us=chosen.lag_us
    )
    return stream.then(operator, Keyed(keys)).timed(None)


def require_one_limit(name: str, *limits: object) -> None:
    """Accept a join that has one limit of its state.

    Raises:
        ConfigurationError: it has several, None apart (INVALID_OPTION).
    """
    if sum(limit is not None for limit in limits) > 1:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{name}: a join has one of within, window, equal_windows, ttl and unbounded, not"
            " several",
        )


def updating_join(
    left: "Stream",
    right: "Stream",
    name: str,
    options: JoinOptions,
    *,
    ttl: Duration | None,
    how: How,
) -> "Stream":
    """Pair rows with equal keys whatever their times; see ``Stream.join``.

    ``ttl`` is None: rows are kept for ever.

    Raises:
        ConfigurationError: keys, times or names do not fit, or there is no event time.
    """
    if ttl is None:
        left_keys, right_keys = options.keys
        sides, lag_us = (JoinSide("left", left_keys, ""), JoinSide("right", right_keys, "")), 0
    else:
        sides, lag_us = sides_of(left, right, name, options)
    operator = UpdatingJoin(
        name,
        *sides,
        how=how,
        suffix=options.suffix,
        lag_us=lag_us,
        ttl_us=None if ttl is None else duration_us(ttl),
        weighted=(left.updates.mode == "retract", right.updates.mode == "retract"),
    )
    keyed = left.key_by(*sides[0].keys)
    return keyed.connect(right.key_by(*sides[1].keys), operator=operator)
