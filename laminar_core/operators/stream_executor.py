"""Several aggregate queries over one stream, with all their state as bytes.

    executor = StreamExecutor(
        [
            AggregateQuery("totals", ("merchant",), (agg.sum("amount"),)),
            AggregateQuery("minutes", ("merchant",), (agg.count(),),
                           window=windows.tumbling("1 minute"), time_column="paid_at"),
        ],
        schema,
    )
    for query_id, batch in executor.process(payments): ...
    for query_id, batch in executor.on_watermark(watermark_us): ...
    state = executor.checkpoint_state()

Queries without a window are *running*: each batch emits the new totals of the keys in it. Those
with one keep state per window and group and *emit on window close*, once.

``checkpoint_state`` must be called at the same point of the stream at which the offsets of its
sources are taken, never by a timer of its own (ERRATA 1.6, 1.7). A pipeline needs none of this: its
operators take part in checkpoints by themselves.

Invariants, tried by ``tests/operators/test_stream_executor_model.py``:
    I1  cut anywhere, restore, continue: the results equal those of an executor without a cut
    I2  bytes that were changed are refused, whatever was changed
    I3  state is never dropped without saying so
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, NoReturn

import pyarrow as pa

from laminar_core.aggregates.accumulators import (
    accumulators_of,
    require_known_versions,
)
from laminar_core.codec.envelope import CODECS, Codec
from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    IncompatibleStateError,
    ProtocolError,
)
from laminar_core.operators.aggregation import WindowAggregator
from laminar_core.operators.base import (
    JsonObject,
    OperatorSubtask,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
)
from laminar_core.operators.columns import require_distinct
from laminar_core.operators.executor_codec import QueryPart, decode_parts, encode_parts
from laminar_core.operators.keyed import integers
from laminar_core.operators.mapping import MappingReport, mapping_report
from laminar_core.operators.queries import AggregateQuery
from laminar_core.operators.running import RunningAggregator
from laminar_core.operators.updating_totals import UpdatingTotals
from laminar_core.protocol.types import CheckpointId, Generation

OnChanged = Literal["refuse", "reset"]

_ANY_CHECKPOINT = CheckpointId(1)


class QueryResult(NamedTuple):
    """Rows emitted by a query."""

    query_id: str
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The result of a restore. ``mapping`` reports which queries fit the checkpoint.

    ``sources_must_rewind``: nothing was restored, because some query did not fit and a reset was
    requested. All sources have to be read from their beginning, because rows before the checkpoint
    are in no state any more.
    """

    restored: tuple[str, ...] = ()
    mapping: MappingReport = field(default_factory=MappingReport)
    sources_must_rewind: bool = False


Keeper = RunningAggregator | UpdatingTotals | WindowAggregator


class _QueryState:
    """One query at work: filter, combine, keep."""

    def __init__(
        self, query: AggregateQuery, input_schema: pa.Schema, context: SubtaskContext
    ) -> None:
        query.check()
        self.query = query
        self.definition = query.definition(input_schema, context.max_parallelism)
        filtering, combining, keeping = query.filtering(), query.combining(), query.keeping()
        self._stateless: list[OperatorSubtask] = []
        if filtering is not None:
            self._stateless.append(filtering.open(context, input_schema))
        self._stateless.append(combining.open(context, input_schema))
        combined = combining.output_schema(input_schema)
        self._keeper: RunningAggregator | UpdatingTotals | WindowAggregator = keeping.open(
            context, combined
        )

    def process(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take a batch; return what follows."""
        batches = [batch]
        for subtask in self._stateless:
            batches = [after for before in batches for after in subtask.process(before)]
        return [result for combined in batches for result in self._keeper.process(combined)]

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Advance event time at once; completed results are computed as they are consumed."""
        return self._keeper.on_watermark(watermark_us)

    def pin(self) -> PendingSnapshot:
        """Hold on to the state as it is now."""
        return self._keeper.snapshot(_ANY_CHECKPOINT)

    def part(self, snapshot: Snapshot) -> QueryPart:
        """The state as it is written."""
        tables = list(snapshot.rows())
        rows = pa.concat_tables(tables) if tables else None
        return QueryPart(self.query.query_id, self.definition, snapshot.properties, rows)

    def check_versions(self, rows: pa.Table | None) -> None:
        """Check that the rows' accumulators have the versions known here.

        Raises:
            IncompatibleStateError: the state of a function has another version.
        """
        if rows is not None:
            needed = accumulators_of(self.query.aggregates)
            require_known_versions(rows.schema.metadata, needed)

    def restore(self, parts: Sequence[QueryPart], *, others_were_empty: bool) -> None:
        """Start from parts that were written, and from those that had nothing to write."""
        snapshots = [Snapshot.of([] if p.rows is None else [p.rows], p.facts) for p in parts]
        if others_were_empty:
            snapshots += self._empty_snapshots(parts)
        self._keeper.restore(snapshots)

    def _empty_snapshots(self, parts: Sequence[QueryPart]) -> Iterator[Snapshot]:
        """Of the key groups that no part has: the facts of a subtask that has seen nothing."""
        written = [range(*integers(part.facts["key_groups"])) for part in parts]
        facts = self.pin()().properties
        for group in range(*integers(facts["key_groups"])):
            if not any(group in groups for groups in written):
                yield Snapshot(properties={**facts, "key_groups": [group, group + 1]})


class IncrementalAggState(_QueryState):
    """A running aggregate: one row of accumulators per group."""


class IncrementalEowcState(_QueryState):
    """Emit on window close: one row of accumulators per window and group."""


class StreamExecutor:
    """Queries by id, in the order given. One thread calls it.

    ``context``: the share of the keys that this executor owns, if there are several; its batches
    must then have been exchanged by the keys of its queries. After an error, restore.
    """

    def __init__(
        self,
        queries: Sequence[AggregateQuery],
        input_schema: pa.Schema,
        *,
        context: SubtaskContext | None = None,
        codec: Codec = "none",
    ) -> None:
        context = context or SubtaskContext("stream_executor", 0, 1, 128, Generation(1))
        if codec not in CODECS:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION, f"codec must be one of {', '.join(CODECS)}, got {codec!r}"
            )
        require_distinct([q.query_id for q in queries], "give one of the queries another id")
        self._states: dict[str, _QueryState] = {}
        for query in queries:
            kind = IncrementalAggState if query.window is None else IncrementalEowcState
            self._states[query.query_id] = kind(query, input_schema, context)
        self._codec: Codec = codec
        self._has_started = False
        self.last_restore = RestoreReport()

    def process(self, batch: pa.RecordBatch) -> list[QueryResult]:
        """Pass a batch to every query; return the emitted rows.

        Raises:
            DataError: rows without event time, or a sum that leaves its type.
        """
        self._has_started = True
        return [
            QueryResult(query_id, result)
            for query_id, state in self._states.items()
            for result in state.process(batch)
        ]

    def on_watermark(self, watermark_us: int) -> Iterator[QueryResult]:
        """Advance event time of every query; yield the results of windows that close.

        The state advances at once; the results are computed as they are consumed.
        """
        self._has_started = True
        closed = [(name, state.on_watermark(watermark_us)) for name, state in self._states.items()]
        return (QueryResult(name, batch) for name, batches in closed for batch in batches)

    # --- checkpoints ----------------------------------------------------------------------------

    def checkpoint_state(self) -> bytes | None:
        """Serialise the state of all queries; None if there is none at all.

        An error fails the checkpoint that this is for; nothing is left out (ERRATA 1.4).
        """
        return self.pin_state()()

    def pin_state(self) -> Callable[[], bytes | None]:
        """Hold on to the state at once; the function returned serialises it, in any thread."""
        pinned = [(state, state.pin()) for state in self._states.values()]
        codec = self._codec

        def finish() -> bytes | None:
            parts = [state.part(pending()) for state, pending in pinned]
            return encode_parts(parts, codec) if any(map(_has_state, parts)) else None

        return finish

    def restore_state(
        self, *states: bytes | memoryview | None, on_changed: OnChanged = "refuse"
    ) -> int:
        """Restore from the result of ``checkpoint_state``; return the number of restored queries.

        None means that there was no state, which the checkpoint must record explicitly: if the
        record itself is missing, the checkpoint is damaged (ERRATA 1.3). If the number of executors
        has changed, pass the states of all executors whose key groups overlap this one's.

        Queries are found by id. If one was changed, added or removed, the restore is refused. With
        ``on_changed="reset"`` *nothing* is restored instead; ``last_restore`` then reports which
        queries would have fitted, and that all sources must be read from their beginning (ERRATA
        1.1).

        Raises:
            CorruptCheckpointError: the bytes are damaged. Fall back to an older checkpoint.
            IncompatibleStateError: queries differ, or the state of a function has an unknown
                version (OPERATORS_CHANGED).
        """
        if self._has_started:
            raise ProtocolError(
                ErrorCode.ILLEGAL_EVENT,
                "restore_state must be called before the first row is processed",
            )
        decoded = [decode_parts(state) for state in states if state is not None]
        if not decoded:
            self.last_restore = RestoreReport()
            return 0
        mapping = self._mapping(decoded)
        if not mapping.fits:
            if on_changed == "refuse":
                self._refuse(mapping, decoded)
            self.last_restore = RestoreReport((), mapping, sources_must_rewind=True)
            return 0
        self._has_started = True
        for query_id, state in self._states.items():
            parts = [part for of in decoded for part in of if part.query_id == query_id]
            state.restore(parts, others_were_empty=None in states)
        self.last_restore = RestoreReport(tuple(self._states), mapping)
        return len(self._states)

    def _mapping(self, decoded: Sequence[Sequence[QueryPart]]) -> MappingReport:
        now = {query_id: state.definition for query_id, state in self._states.items()}
        reports = [
            mapping_report(
                {part.query_id: part.definition for part in parts},
                now,
                frozenset(part.query_id for part in parts),
            )
            for parts in decoded
        ]
        return next((report for report in reports if not report.fits), reports[0])

    def _refuse(self, mapping: MappingReport, decoded: Sequence[Sequence[QueryPart]]) -> NoReturn:
        for part in (part for parts in decoded for part in parts):
            if part.query_id in self._states:
                self._states[part.query_id].check_versions(part.rows)
        raise IncompatibleStateError(
            ErrorCode.OPERATORS_CHANGED,
            f"the queries differ from those of the checkpoint: {mapping.problems()}; change them"
            ' back, or drop all state and read all sources anew with on_changed="reset"',
        )


def _has_state(part: QueryPart) -> bool:
    """Whether anything has come: rows that are kept, event time, or late rows."""
    facts: JsonObject = part.facts
    return (
        part.rows is not None
        or facts.get("watermark_us") is not None
        or bool(facts.get("late_row_count"))
    )
