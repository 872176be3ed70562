"""Keyed streams: windows over event time, running totals, or process functions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

import pyarrow as pa

from laminar_core.aggregates.accumulators import Aggregate
from laminar_core.arguments import require_instance, require_schema
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import MultiInputSpec
from laminar_core.operators.process.declared import State
from laminar_core.operators.process.spec import (
    FunctionProcess,
    Process,
    ProcessFunction,
    ProcessRows,
)
from laminar_core.operators.running import CombineRows, RunningAggregate
from laminar_core.operators.sessions import PartialSessions, Sessions
from laminar_core.operators.windows import Window, require_window
from laminar_core.pipeline.combined import aggregated
from laminar_core.pipeline.connected import ConnectedStreams, process_time
from laminar_core.pipeline.event_time import EventTime, TimeColumn
from laminar_core.pipeline.updating import first_rows, last_rows, top_rows
from laminar_core.plan.plan import Keyed
from laminar_core.records.paths import check_operator_id
from laminar_core.units import Duration, duration_us

if TYPE_CHECKING:
    from laminar_core.pipeline.stream import Stream


class KeyedStream:
    """A stream grouped by key."""

    def __init__(self, stream: "Stream", columns: tuple[str, ...]) -> None:
        self._stream = stream
        self._columns = columns

    def aggregate(
        self, name: str, *aggregates: Aggregate, emit: Literal["upsert", "retract"] | None = None
    ) -> "Stream":
        """Compute running totals: for every batch, emit the new totals of the keys in it.

        The result is an upsert stream: a row replaces the earlier row of its key. With
        ``emit="retract"`` a total that has changed is taken back by a row with ``_weight`` -1, and
        the new one comes with 1, so that it can be aggregated again. Each batch is combined before
        the exchange. State has one row per key, and keys are never removed.

        Over rows that come and go, totals are retracted in any case, and a key is removed with its
        last row.

        Raises:
            ConfigurationError: an aggregate cannot take rows away, and they come and go.
        """
        _check_aggregation(name, aggregates)
        if self._stream.updates.mode == "retract":
            if emit == "upsert":
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"{name} is over rows that come and go, so a total can go, too: leave out emit",
                )
            aggregates, emit = tuple(a.over_weights() for a in aggregates), "retract"
        combine = CombineRows(f"{name}-combine", self._columns, aggregates)
        merge = RunningAggregate(name, self._columns, aggregates, emit or "upsert")
        totals = self._stream.then(combine).then(merge, Keyed(self._columns))
        event_time = self._stream.event_time
        return totals if event_time is None else totals.timed(event_time.among(self._columns))

    def top(
        self,
        name: str,
        count: int,
        *,
        by: str | Sequence[str],
        rank: str | None = None,
        ttl: Duration | None = None,
        time: str | None = None,
    ) -> "Stream":
        """Keep the first ``count`` rows of each key in an order.

            bids.key_by("auction").top("best", 10, by=("price desc", "paid_at"))

        ``by``: columns, each with ``desc`` if the largest is first. Null is least, and NaN
        greatest. Rows that are equal in these columns are ordered by all columns, ascending.

        For each batch, the rows that come in are emitted with the weight 1, and those that fall
        out with -1. ``rank`` adds a column of this name with the place, from 1.

        With ``ttl``, a key is forgotten so long after the newest row that has come into its rows;
        nothing is taken back then. Rows behind the watermark are dropped and counted. ``time``: its
        event time, by default the watermark's.

        Of rows that come and go, all are kept, because one that has fallen out comes back when
        another goes. With ``ttl``, each row leaves so long after its own event time, and is taken
        back; rows that are further behind the watermark are dropped and counted.
        """
        return top_rows(
            self._stream, name, self._columns, count, by=by, rank=rank, ttl=ttl, time=time
        )

    def first(self, name: str, *, time: str | None = None, ttl: Duration | None = None) -> "Stream":
        """Emit the first row of each key in event time, once event time has passed it.

        Of several at one time the least is taken, compared by all columns. Rows behind the
        watermark are dropped and counted. With ``ttl``, a row that is later than the first one by
        more is a first row again; without it, each key is kept for ever.
        """
        return first_rows(self._stream, name, self._columns, time=time, ttl=ttl)

    def last(self, name: str, *, time: str | None = None, ttl: Duration | None = None) -> "Stream":
        """Emit the last row of each key in event time, whenever a batch has changed it.

        The result is an upsert stream: a row replaces the earlier row of its key. Of several at one
        time the greatest is taken, compared by all columns. ``time`` can be any column if there is
        no ``ttl``. With it, a key is forgotten so long after its last row, and rows that are
        further behind the watermark are dropped and counted.
        """
        return last_rows(self._stream, name, self._columns, time=time, ttl=ttl)

    @overload
    def connect(self, other: "KeyedStream", /) -> ConnectedStreams: ...

    @overload
    def connect(self, *others: "Stream | KeyedStream", operator: MultiInputSpec) -> "Stream": ...

    def connect(
        self, *others: "Stream | KeyedStream", operator: MultiInputSpec | None = None
    ) -> "Stream | ConnectedStreams":
        """Bring this stream and another one together, so that rows with equal keys meet.

            orders.key_by("order").connect(payments.key_by("of")).process("settle", Settle())

        With ``operator`` this stream and ``others`` are given to an operator of your own; the
        others have as many key columns, of like types, or are broadcast; see ``Stream.connect``.

        Raises:
            ConfigurationError: without ``operator``, it is not one other keyed stream.
        """
        if operator is not None:
            return self.rows().connect(*others, operator=operator)
        if len(others) == 1 and isinstance(others[0], KeyedStream):
            return ConnectedStreams(self, others[0])
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            "connect(...).process(...) is of two keyed streams: call key_by on the other one, or"
            " pass operator=... for an operator of your own",
        )

    def process(
        self,
        name: str,
        process: Process | ProcessFunction,
        *,
        schema: pa.Schema | None = None,
        state: Mapping[str, State] | None = None,
        sides: Mapping[str, pa.Schema] | None = None,
        time: str | None = None,
    ) -> "Stream":
        """Run code of your own over keyed rows, with state per key and timers; see ``Process``.

        ``process``: an object with ``state``, ``schema`` and the functions; or only the function
        for rows, with ``schema``, ``state`` and ``sides`` given here. ``time`` is the event time of
        its timers and times to live, by default the watermark's column.

        The result has no event-time column that a window would take by default, because rows can be
        made of old state: pass ``time=column`` to a window behind it.

        Raises:
            ConfigurationError: the input lacks a column, event time is needed and there is none, or
                the schema is declared twice or not at all.
        """
        check_operator_id(name)
        declared = _declared(name, process, schema, state, sides)
        column, lag_us = process_time(self._stream, time) or (None, 0)
        operator = ProcessRows(name, self._columns, declared, column, lag_us)
        return self._stream.then(operator, Keyed(self._columns)).timed(None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The key columns."""
        return self._columns

    def rows(self) -> "Stream":
        """Return the rows, divided by key."""
        return self._stream.divided(Keyed(self._columns))

    def window(self, window: Window, *, time: str | None = None) -> "WindowedStream":
        """Cut event time into windows; ``time`` is by default the watermark's column.

        Behind other windows it is their ``window_start`` or ``window_end``.

        Raises:
            ConfigurationError: no event time is known, or it is in another column
                (INVALID_PIPELINE), or ``window`` is none (INVALID_OPTION).
        """
        require_window(window)
        return WindowedStream(self._stream, self._columns, window, self._time_column(time))

    def session(self, gap: Duration, *, time: str | None = None) -> "SessionStream":
        """Divide the rows of a key into sessions, where none comes for longer than ``gap``.

        A session ends ``gap`` after its last row; a row at exactly that time still belongs to it.
        ``time`` is as for windows.

        Raises:
            ConfigurationError: no event time is known, or it is in another column
                (INVALID_PIPELINE), or ``gap`` is not a duration (INVALID_OPTION).
        """
        return SessionStream(self._stream, self._columns, duration_us(gap), self._time_column(time))

    def _time_column(self, time: str | None) -> TimeColumn:
        known = self._stream.event_time
        if known is not None:
            return known.column(time)
        if time is None:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                "windows need event time: call watermark(column) before key_by, or pass time=column"
                " if a watermark comes with these rows",
            )
        return TimeColumn(time, 0)


class WindowedStream:
    """Rows grouped by key and window."""

    def __init__(
        self, stream: "Stream", columns: tuple[str, ...], window: Window, time: TimeColumn
    ) -> None:
        self._stream = stream
        self._columns = columns
        self._window = window
        self._time = time

    def aggregate(
        self,
        name: str,
        *aggregates: Aggregate,
        allowed_lateness: Duration | None = None,
        early: Duration | None = None,
        late_rows: bool = False,
    ) -> "Stream":
        """Emit one row per key and window, when event time has passed the window's end.

        Each batch is combined before the exchange, so that only one row per key and window is sent
        to the worker that owns the key. Rows that arrive after their window was emitted are dropped
        and counted; ``allowed_lateness`` delays the emission, and with it later windows downstream.

        With ``late_rows`` they are not dropped: ``side("late")`` of the result gives them as they
        came, each once. Rows that may be late are then not combined before the exchange.

        With ``early``, results of windows that are open are emitted as well: whenever event time
        passes a multiple of this duration, those that have changed. The result is an upsert stream:
        a row replaces the earlier row of its key and window, and the last one is final.

        Raises:
            ConfigurationError: a duration is invalid (INVALID_OPTION), or columns do not fit.
        """
        _check_aggregation(name, aggregates)
        lateness_us = 0 if allowed_lateness is None else duration_us(allowed_lateness)
        early_us = None if early is None else duration_us(early)
        partial = PartialAggregate(
            f"{name}-combine",
            self._columns,
            self._time.name,
            self._window,
            aggregates,
            self._time.lag_us,
            bundles=early_us is None and not late_rows,  # These are about rows that came before.
        )
        merge = WindowAggregate(
            name, self._columns, self._window, aggregates, lateness_us, early_us
        )
        results = aggregated(self._stream, partial, merge, late_rows=late_rows)
        return results.timed(EventTime.behind(self._window))


class SessionStream:
    """Rows grouped by key and session."""

    def __init__(
        self, stream: "Stream", columns: tuple[str, ...], gap_us: int, time: TimeColumn
    ) -> None:
        self._stream = stream
        self._columns = columns
        self._gap_us = gap_us
        self._time = time

    def aggregate(
        self,
        name: str,
        *aggregates: Aggregate,
        allowed_lateness: Duration | None = None,
        early: Duration | None = None,
        late_rows: bool = False,
    ) -> "Stream":
        """Emit one row per key and session, when event time has passed the session's end.

        Rows behind the watermark are dropped and counted, because their session may have been
        emitted; ``allowed_lateness`` delays that, and the emission, and later windows downstream.
        ``late_rows`` is as for windows.

        With ``early``, results of sessions that are open are emitted as well: whenever event time
        passes a multiple of this duration, those that have changed. The result is a retract stream:
        a session that grows or joins another one takes its earlier results back by rows with
        ``_weight`` -1.

        Raises:
            ConfigurationError: a duration is invalid (INVALID_OPTION), columns do not fit, or early
                results cannot be compared.
        """
        _check_aggregation(name, aggregates)
        early_us = None if early is None else duration_us(early)
        lateness_us = 0 if allowed_lateness is None else duration_us(allowed_lateness)
        partial = PartialSessions(
            f"{name}-combine",
            self._columns,
            self._time.name,
            self._gap_us,
            aggregates,
            self._time.lag_us,
        )
        merge = Sessions(name, self._columns, self._gap_us, aggregates, lateness_us, early_us)
        results = aggregated(self._stream, partial, merge, late_rows=late_rows)
        return results.timed(EventTime.behind_sessions())


def _declared(
    name: str,
    process: Process | ProcessFunction,
    schema: pa.Schema | None,
    state: Mapping[str, State] | None,
    sides: Mapping[str, pa.Schema] | None,
) -> Process:
    problem = ""
    if schema is not None:
        require_schema(schema, f"the schema of {name}")
    if isinstance(process, type):
        problem = "is a class: pass an instance of it"
    elif isinstance(process, Process):
        if schema is None and state is None and sides is None:
            return process
        problem = "declares its schema, state and sides itself: leave them out here"
    elif not callable(process):
        problem = "needs a method process, and attributes state and schema"
    elif schema is not None:
        return FunctionProcess(process, schema, state or {}, sides or {})
    else:
        problem = "is a function: pass the schema of what it emits"
    raise ConfigurationError(ErrorCode.INVALID_PIPELINE, f"process {name!r} {problem}")


def _check_aggregation(name: str, aggregates: tuple[Aggregate, ...]) -> None:
    check_operator_id(name)
    if not aggregates:
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE, f"{name} aggregates nothing: add agg.count()"
        )
    for each in aggregates:
        require_instance(each, Aggregate, f'{name} takes aggregates, such as agg.sum("amount")')
