"""Streams: rows on their way through a pipeline, and the operators that can be added."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, TypeVar, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.arguments import (
    require_function,
    require_instance,
    require_methods,
    require_schema,
)
from laminar_core.connectors.base import Sink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.terminal import say
from laminar_core.operators.base import LATE, MultiInputSpec, OperatorSpec, side_outputs_of
from laminar_core.operators.columns import require_columns
from laminar_core.operators.deduplicate import Deduplicate
from laminar_core.operators.enrich.spec import AsyncFunction
from laminar_core.operators.flat_map import (
    BatchesFunction,
    FlatMapBatches,
    MapRows,
    RowFunction,
)
from laminar_core.operators.joins.kinds import How
from laminar_core.operators.joins.side import SUFFIX
from laminar_core.operators.joins.waiting import AsOfHow
from laminar_core.operators.loops import LoopHead
from laminar_core.operators.stateless import FilterRows, MapBatches, SelectColumns
from laminar_core.operators.watermarks import AssignWatermarks
from laminar_core.operators.weights import WEIGHT
from laminar_core.operators.windows import Window
from laminar_core.pipeline.enrich import EnrichOptions, enrichment
from laminar_core.pipeline.event_time import EventTime
from laminar_core.pipeline.folding import folded
from laminar_core.pipeline.graph import Input, Node
from laminar_core.pipeline.joins import (
    Direction,
    JoinOptions,
    On,
    Times,
    as_of_join,
    join,
    join_of_equal_windows,
    pair_of,
)
from laminar_core.pipeline.keyed import KeyedStream
from laminar_core.pipeline.lookups import Lookups
from laminar_core.pipeline.preview import INPUT_ROWS_MAX, Bounds, previewed
from laminar_core.pipeline.retracted import retracted
from laminar_core.pipeline.shown import ROWS_SHOWN, table_lines
from laminar_core.pipeline.updating import distinct_rows, require_one_limit, updating_join
from laminar_core.plan.inputs import require_input_count
from laminar_core.plan.plan import (
    Broadcast,
    Forward,
    Keyed,
    Partitioning,
    Rebalance,
    SinkNode,
)
from laminar_core.plan.updates import Updates
from laminar_core.protocol.dedup import Retention
from laminar_core.records.paths import check_operator_id
from laminar_core.units import Duration, duration_ms, duration_us

if TYPE_CHECKING:
    from laminar_core.pipeline.builder import Pipeline

Leaving = TypeVar("Leaving")
"""The result of a loop: a stream, or a tuple of streams."""


class Stream(Lookups):
    """Rows on their way; each method adds an operator and returns what leaves it."""

    def __init__(
        self,
        pipeline: "Pipeline",
        node: Node,
        by: Partitioning | None = None,
        event_time: EventTime | None = None,
        side: str | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._from = Input(node, by or Forward(), side)
        self._event_time = event_time

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._from.schema

    @property
    def comes_from(self) -> Input:
        """The node that the rows leave, and how they are divided."""
        return self._from

    @property
    def event_time(self) -> EventTime | None:
        """The columns that the watermark applies to; None without a watermark."""
        return self._event_time

    @property
    def updates(self) -> Updates:
        """The mode of the rows: whether they replace earlier ones."""
        return self._from.updates

    def watermark(
        self, column: str, *, max_delay: Duration | None = None, name: str | None = None
    ) -> "Stream":
        """Take event time from ``column``; rows may be up to ``max_delay`` out of order.

        Event time begins anew here: a watermark from before is not passed on.
        """
        delay_us = 0 if max_delay is None else duration_us(max_delay)
        name = self._pipeline.name_for("watermark", name)
        return self.then(AssignWatermarks(name, column, delay_us)).timed(EventTime.of(column))

    def map(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
        *,
        schema: pa.Schema | None = None,
        name: str | None = None,
    ) -> "Stream":
        """Replace every batch by ``function(batch)``."""
        name = self._pipeline.name_for("map", name)
        require_function(function, f"{name} takes a function")
        if schema is not None:
            require_schema(schema, f"the schema of {name}")
        return self.then(MapBatches(name, function, schema))

    def flat_map(
        self,
        function: BatchesFunction,
        *,
        schema: pa.Schema | None = None,
        sides: Mapping[str, pa.Schema] | None = None,
        name: str | None = None,
    ) -> "Stream":
        """Replace every batch by the batches that the function returns: one, several or none.

        ``Side(name, batch)`` among them goes to ``side(name)``; ``sides`` are the columns of each.
        """
        name = self._pipeline.name_for("flat-map", name)
        require_function(function, f"{name} takes a function")
        if schema is not None:
            require_schema(schema, f"the schema of {name}")
        sides = {} if sides is None else sides
        require_instance(sides, Mapping, f"{name}: sides must be a mapping from names to schemas")
        return self.then(FlatMapBatches(name, function, schema, sides))

    def map_rows(
        self, function: RowFunction, schema: pa.Schema, *, name: str | None = None
    ) -> "Stream":
        """Replace every row by a row, several rows or none; a row is a dictionary.

        The function returns a dictionary with the columns of ``schema``, a list of these, or None.
        It is called for every row, in Python: ``map`` and ``flat_map`` are many times faster.
        """
        name = self._pipeline.name_for("map-rows", name)
        require_function(function, f"{name} takes a function")
        require_schema(schema, f"the schema of {name}")
        return self.then(MapRows(name, function, schema, self.updates.mode == "retract"))

    def enrich(
        self, name: str, function: AsyncFunction, **options: Unpack[EnrichOptions]
    ) -> "Stream":
        """Add the columns that calls of a coroutine function return; see ``pipeline.enrich``."""
        check_operator_id(name)
        return self.then(enrichment(name, function, options))

    def filter(
        self,
        predicate: pc.Expression | Callable[[pa.RecordBatch], pa.Array],
        *,
        name: str | None = None,
    ) -> "Stream":
        """Keep the rows for which the predicate is true."""
        return self.then(FilterRows(self._pipeline.name_for("filter", name), predicate))

    def select(self, *columns: str, name: str | None = None) -> "Stream":
        """Keep only these columns, and of rows that come and go their weight."""
        if self.updates.mode == "retract" and WEIGHT not in columns:
            columns = (*columns, WEIGHT)
        return self.then(SelectColumns(self._pipeline.name_for("select", name), columns))

    def deduplicate(
        self,
        *,
        producer: str,
        generation: str,
        sequence: str,
        retention: Retention | None = None,
        name: str | None = None,
    ) -> "Stream":
        """Pass each row once, for a source that delivers at least once.

        Three columns identify a row: its producer, the generation of that producer (a number that
        rises when it restarts) and a number that the generation counts up. All rows of a producer
        go to one worker, which keeps the received numbers as state.
        """
        name = self._pipeline.name_for("deduplicate", name)
        kept = Retention() if retention is None else retention
        require_instance(kept, Retention, f"{name}: retention must be a Retention(…)")
        operator = Deduplicate(name, producer, generation, sequence, kept)
        return self.then(operator, Keyed((producer,)))

    def distinct(
        self,
        *columns: str,
        within: Duration | None = None,
        time: str | None = None,
        name: str | None = None,
    ) -> "Stream":
        """Pass the first row that comes with equal values in ``columns``; by default in all.

        ``within``: a row that is later than the one that was passed by more than this passes again.
        Without it, each key is kept for ever. ``time``: the event time, by default the
        watermark's; with ``within``, rows behind the watermark are dropped and counted.
        """
        name = self._pipeline.name_for("distinct", name)
        return distinct_rows(self, name, columns, within=within, time=time)

    def rebalance(self) -> "Stream":
        """Distribute whole batches evenly over all workers, for an uneven source."""
        return self.divided(Rebalance())

    def broadcast(self) -> "Stream":
        """Send every row to all workers."""
        return self.divided(Broadcast())

    def side(self, name: str) -> "Stream":
        """Return the rows of a side output of the operator or source that this stream comes from.

        They are rows that do not belong to the result, such as the letters of a source. A side
        output that no stream reads is dropped. It has no event time of its own.

        Raises:
            ConfigurationError: there is no such side output.
        """
        node = self._from.node
        require_instance(name, str, "the name of a side output must be text")
        if self._from.side is not None or name not in node.sides:
            known = ", ".join(sorted(node.sides)) or "none"
            known += "; for late rows, aggregate with late_rows=True" if name == LATE else ""
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{node.operator_id} has no side output {name!r}; it has: {known}",
            )
        return Stream(self._pipeline, node, side=name)

    def changes(self) -> "Stream":
        """Take each row as a row of its own, also if it replaces an earlier one or takes one away.

        Running totals are emitted again whenever they change, and most sinks only append rows. With
        this, the sink gets every change, and its readers take the newest row of each key. Of rows
        that come and go ``_weight`` becomes a column like others: readers add it up.
        """
        return self._of(self._from._replace(as_changes=True), self._event_time)

    def to_retract(
        self, *, ttl: Duration | None = None, time: str | None = None, name: str | None = None
    ) -> "Stream":
        """Take earlier rows back when others replace them, so that both can be aggregated.

            latest = readings.key_by("device").last("latest").to_retract()
            latest.key_by("room").aggregate("per-room", agg.sum("power"))

        Rows that replace earlier ones become rows that come and go: the old one with ``_weight``
        -1 and the new one with 1. A row that equals the one it replaces is not emitted. State is
        the last row of each key: of windows until they are over, of others for ever, or with
        ``ttl`` for so long after the event time of the row. Then the key is forgotten, and its row
        is not taken back; rows further behind the watermark than ``ttl`` are dropped and counted.
        ``time``: the event time, by default the watermark's.

        Raises:
            ConfigurationError: no rows replace others, their key or their order is not known, or
                there is no event time.
        """
        return retracted(self, self._pipeline.name_for("to-retract", name), ttl=ttl, time=time)

    def union(self, *others: "Stream", name: str | None = None) -> "Stream":
        """Merge streams of one schema, in no particular order.

        A job can continue with more or fewer streams here. A union of a single stream is a place
        where more can join later.

        Raises:
            ConfigurationError: the schemas differ, or the streams belong to several pipelines.
        """
        for other in others:
            self._require_alike(other, "a union")
        operator = SelectColumns(self._pipeline.name_for("union", name), tuple(self.schema.names))
        inputs = tuple(s._from for s in (self, *others))  # noqa: SLF001 - one of us
        node = Node(self.schema, inputs, operator=operator, is_union=True)
        node.updates = self.updates.mixed()
        self._pipeline.add(node)
        known = [s._event_time for s in (self, *others)]  # noqa: SLF001 - one of us
        times = [event_time for event_time in known if event_time is not None]
        of_all = reduce(EventTime.joined, times) if times else None
        if of_all is not None and len(times) < len(known):
            of_all = of_all.if_named()
        return Stream(self._pipeline, node, event_time=of_all)

    def connect(self, *others: "Stream | KeyedStream", operator: MultiInputSpec) -> "Stream":
        """Give this stream and ``others`` to an operator with several inputs, in this order.

        Its event time is the least of all of them. The result has no event-time column that a
        window would take by default, because rows of one input can wait for rows of another: pass
        ``time=column`` to a window behind it.

        Raises:
            ConfigurationError: the operator has another number of inputs, the streams belong to
                several pipelines, or rows of one replace earlier ones.
        """
        streams = [self, *(o.rows() if isinstance(o, KeyedStream) else o for o in others)]
        wanted = "connect takes operator=, an operator with several inputs"
        require_methods(operator, ("operator_id", "output_schema"), wanted)
        for other in streams:
            self._require_same_pipeline(other, operator.operator_id)
            other.updates.require_taken_by(operator)
        require_input_count(operator, len(streams))
        check_operator_id(operator.operator_id)
        schemas = [stream.schema for stream in streams]
        node = Node(
            operator.output_schema(*schemas),
            tuple(s._from._replace(feeds=n) for n, s in enumerate(streams)),  # noqa: SLF001
            operator=operator,
            sides=side_outputs_of(operator, *schemas),
            updates=Updates.made_by(operator),
        )
        node.updates = Updates().behind(operator, node.schema, node.schema)
        return Stream(self._pipeline, self._pipeline.add(node))

    def join(  # noqa: PLR0913 - a configuration, by keyword
        self,
        other: "Stream",
        *,
        on: On,
        within: tuple[Duration, Duration] | None = None,
        window: Window | None = None,
        equal_windows: bool = False,
        ttl: Duration | None = None,
        unbounded: bool = False,
        how: How = "inner",
        time: Times = None,
        suffix: str = SUFFIX,
        name: str | None = None,
    ) -> "Stream":
        """Pair rows with equal keys whose times are close enough, or in the same window.

            persons.join(auctions, on={"id": "seller"}, within=("0 seconds", "10 seconds"))
            views.join(clicks, on="user", window=tumbling("1 minute"))
            views_per_hour.join(clicks_per_hour, on="user", equal_windows=True, how="full")

        ``within`` bounds the time of the other stream's row, less the time of this one's; a bound
        can be negative. Instead of the upper bound, a time column of this stream can say until when
        each of its rows has partners. With ``window`` the result has ``window_start`` and
        ``window_end``, and a row in several windows counts in each. With ``equal_windows`` both
        streams are results of the same windows, and those of one window and key are paired; the
        result is one of these windows again. ``on``: the key columns, by a mapping if their names
        differ. ``how``: ``left``, ``right`` and ``full`` also emit rows without partner, with
        nulls, once none can come any more. ``semi`` emits rows of this stream once, with their
        first partner, and ``anti`` those without one; both have only columns of this stream.
        ``time``: the event-time column, of both or of each; by default the one of ``watermark``.
        Columns of the other stream whose names are taken get the ``suffix``.

        Each row is kept until event time has passed all its possible partners. Null matches
        nothing. Rows behind the watermark, which is the lesser one of both streams, are dropped and
        counted; with ``window``, rows whose windows have ended.
        With ``ttl`` rows meet whatever their times, and each is kept so long after its own; with
        ``unbounded=True`` for ever. Then each batch emits what it changes: rows that come and go.

        Raises:
            ConfigurationError: keys, times or names do not fit, or a stream has no event time.
        """
        name = self._pipeline.name_for("join", name)
        require_instance(other, Stream, f"{name}: the other one must be a stream")
        options = JoinOptions(on, time, suffix)
        require_one_limit(name, within, window, equal_windows or None, ttl, unbounded or None)
        if equal_windows:
            return join_of_equal_windows(self, other, name, options, how=how)
        if ttl is not None or unbounded:
            return updating_join(self, other, name, options, ttl=ttl, how=how)
        return join(self, other, name, options, within=within, window=window, how=how)

    def as_of(  # noqa: PLR0913 - a configuration, by keyword
        self,
        other: "Stream",
        *,
        on: On,
        time: Times = None,
        direction: Direction = "backward",
        max_distance: Duration | None = None,
        how: AsOfHow = "left",
        suffix: str = SUFFIX,
        name: str | None = None,
    ) -> "Stream":
        """Give each row the last row of the other stream with equal keys, at or before its time.

            trades.as_of(quotes, on="symbol", max_distance="1 hour")

        ``direction="forward"``: the first row at or after its time instead. A row of the other
        stream that is further away than ``max_distance`` is none, and its key is forgotten; without
        it, the last row of each key is kept for ever, and ``forward`` is refused. ``inner`` drops
        rows without partner. Of several rows at one time the greatest is taken, compared by its
        columns in the order of the result. The other options are those of ``join``.

        A row is emitted when event time has passed it, or with ``forward`` its partner, because
        until then a closer one may come.

        Raises:
            ConfigurationError: keys, times or names do not fit, or a stream has no event time.
        """
        name = self._pipeline.name_for("as-of", name)
        require_instance(other, Stream, f"{name}: the other one must be a stream")
        options = JoinOptions(on, time, suffix)
        return as_of_join(
            self, other, name, options, how=how, direction=direction, max_distance=max_distance
        )

    def iterate(
        self,
        body: "Callable[[Stream], tuple[Stream | Sequence[Stream], Leaving]]",
        *,
        name: str | None = None,
    ) -> "Leaving":
        """Send rows through ``body`` again and again, until it lets them go.

        ``body`` is given the rows that enter the loop and those that come back. It returns what
        goes round again, one stream or several, and what leaves, a stream or a tuple of streams:

            def attempt(payments: Stream) -> tuple[Stream, Stream]:
                tried = payments.map(charge)
                return tried.filter(failed), tried.filter(settled)

            settled = payments.iterate(attempt, name="retry")

        There is no event time in a loop, and none leaves it: call ``watermark`` behind it. The
        loop ends when its input has ended and no row is left in it.

        Raises:
            ConfigurationError: what comes back has another schema, or is of another pipeline; or
                ``body`` does not return two.
        """
        head = LoopHead(self._pipeline.name_for("loop", name))
        require_function(body, f"{head.operator_id} takes a function of a stream")
        self.updates.require_taken_by(head)
        node = Node(self.schema, (self._from,), operator=head, updates=self.updates)
        feedback, leaving = pair_of(
            body(Stream(self._pipeline, self._pipeline.add(node))),
            f"the body of {head.operator_id} returns what goes round again, and what leaves: two,"
            " as in return again, done",
        )
        for stream in (feedback,) if isinstance(feedback, Stream) else feedback:
            self._require_alike(stream, f"loop {head.operator_id}")
            node.feedback.append(stream._from)  # noqa: SLF001 - one of us
        return leaving

    def _require_same_pipeline(self, other: "Stream", what: str) -> None:
        require_instance(other, Stream, f"{what} takes streams")
        if other._pipeline is not self._pipeline:  # noqa: SLF001 - one of us
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{what} is of streams of one pipeline, not of {self._pipeline.name} and "
                f"{other._pipeline.name}",  # noqa: SLF001 - one of us
            )

    def _require_alike(self, other: "Stream", what: str) -> None:
        """Verify that rows of both can be mixed."""
        self._require_same_pipeline(other, what)
        if not other.schema.equals(self.schema):
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA,
                f"{what} needs one schema, and {other.schema.names} is not {self.schema.names}"
                " with the same types: select or map them first",
            )
        if not other.updates.mixes_with(self.updates):
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{what} cannot mix rows that replace earlier ones with others: call .changes() on"
                " the stream of totals, or emit totals of windows",
            )

    def key_by(self, *columns: str) -> "KeyedStream":
        """Group rows by equal values in ``columns``."""
        if not columns:
            raise ConfigurationError(ErrorCode.INVALID_PIPELINE, "key_by needs at least one column")
        require_columns(self.schema, columns)
        return KeyedStream(self, columns)

    def sink(self, name: str, sink: Sink) -> "Pipeline":
        """Write the rows to ``sink``; whether it can take them is found when the job starts.

        For a sink that replaces and deletes rows by key, rows that come and go are kept as state,
        to know the row of each key.
        """
        check_operator_id(name)
        wanted = f'sink {name}: give it a sink, such as ParquetSink("folder")'
        require_methods(sink, ("check", "open", "committer", "describe"), wanted)
        rows, sink = folded(self, name, sink)
        target = SinkNode(name, sink, rows.updates)
        self._pipeline.add(Node(rows.schema, (rows._from,), sink=target))  # noqa: SLF001
        return self._pipeline

    def preview(
        self,
        n: int = ROWS_SHOWN,
        *,
        input_rows_max: int = INPUT_ROWS_MAX,
        wait_max: Duration = "10 seconds",
    ) -> pa.Table:
        """Return the first ``n`` rows of this stream, without a store and without Spark.

        The pipeline up to here runs in this process, with one worker; no sink of it is opened.
        Each source counts as ended when it has given ``input_rows_max`` rows, or ``wait_max`` after
        its first read, so the last windows may be incomplete. Paces of sources are left out.

        Raises:
            LaminarError: as ``Pipeline.run``; or no row came in time from operators still at work.
        """
        bounds = Bounds(n, input_rows_max, duration_ms(wait_max))
        return previewed(self._pipeline.nodes, self._from, bounds)

    def show(
        self,
        n: int = ROWS_SHOWN,
        *,
        input_rows_max: int = INPUT_ROWS_MAX,
        wait_max: Duration = "10 seconds",
    ) -> None:
        """Print the first ``n`` rows of this stream; see ``preview``."""
        rows = self.preview(n, input_rows_max=input_rows_max, wait_max=wait_max)
        say("\n".join(table_lines(rows)))

    def then(self, operator: OperatorSpec, by: Partitioning | None = None) -> "Stream":
        """Add an operator; ``by`` is how its rows are divided, if not like this stream's."""
        self.updates.require_taken_by(operator)
        schema = operator.output_schema(self.schema)
        come_from = self._from if by is None else self._from._replace(by=by)
        sides = side_outputs_of(operator, self.schema)
        updates = come_from.updates.behind(operator, self.schema, schema)
        node = Node(schema, (come_from,), operator=operator, sides=sides, updates=updates)
        stream = Stream(self._pipeline, self._pipeline.add(node))
        known = self._event_time
        return stream if known is None else stream.timed(known.through(self.schema, schema))

    def timed(self, event_time: EventTime | None) -> "Stream":
        """Replace the columns that the watermark applies to; for operators that change them."""
        return self._of(self._from, event_time)

    def divided(self, by: Partitioning) -> "Stream":
        """Divide the rows among subtasks in this way."""
        return self._of(self._from._replace(by=by), self._event_time)

    def _of(self, come_from: Input, event_time: EventTime | None) -> "Stream":
        stream = Stream(self._pipeline, come_from.node, event_time=event_time)
        stream._from = come_from
        return stream
