"""The first rows of a stream, from real input, without a store and without Spark.

The part of the pipeline before the stream runs in this process, with one worker and a store in
memory. It reads a bounded number of rows, for a bounded time; then its sources count as ended, so
that windows emit what they have. Nothing is written, and the sinks of the pipeline are not opened.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from laminar_core.arguments import require_whole
from laminar_core.connectors.base import Discovery, Found, SourceBatch, SourceReader
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.plain import plain_schema
from laminar_core.connectors.stand_in import StandInReader, StandInSource
from laminar_core.driver.drill.stand_ins import CountingSink, CountingWriter
from laminar_core.driver.events import GenerationFailed, JobListener
from laminar_core.driver.listening import BackgroundListener, isolated
from laminar_core.driver.local_cluster import LocalCluster
from laminar_core.driver.options import JobOptions
from laminar_core.driver.restart import NoRestart
from laminar_core.driver.supervisor import Supervisor
from laminar_core.errors import (
    ErrorCode,
    JobFailedError,
    LaminarError,
    error_for,
)
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.pipeline.graph import Input, Node, plan_of
from laminar_core.pipeline.job import StreamingJob
from laminar_core.plan.plan import Forward, Plan, SinkNode, SourceNode
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.checkpoint_store import CheckpointStore

INPUT_ROWS_MAX = 10_000
"""Rows that are read of each source, unless another number is given."""

END_MAX_S = 5.0
"""How long operators may take to end once no more rows are read."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a preview returns, how many rows it reads of each source, and for how long."""

    rows: int
    input_rows: int
    wait_ms: float

    def __post_init__(self) -> None:
        require_whole(self.rows, 1, "the number of rows of a preview")
        require_whole(self.input_rows, 1, "input_rows_max")


def previewed(nodes: Sequence[Node], stream: Input, bounds: Bounds) -> pa.Table:
    """Return the first rows of ``stream``, in the order in which one worker emits them.

    Raises:
        ConfigurationError: the pipeline cannot run.
        DataError: input that the pipeline cannot use.
        JobFailedError: a function failed, or no row came although the time was over.
    """
    kept = _KeptRows(bounds.rows, plain_schema(stream.schema))
    clock = SystemClock()
    reading = _Reading(bounds, clock)
    plan = _bounded(plan_of(_with_sinks(nodes, stream, kept), max_parallelism=1), reading)
    failures: list[GenerationFailed] = []
    listener = BackgroundListener(
        isolated(lambda e: failures.append(e) if isinstance(e, GenerationFailed) else None)
    )
    supervisor = _supervisor(plan, clock, listener)
    kept.on_full = supervisor.cancel
    job = StreamingJob(supervisor, listener)
    try:
        job.result(bounds.wait_ms / 1000 + END_MAX_S)
    except TimeoutError:
        if not kept.row_count:
            raise _no_row(stream, bounds) from None
    except LaminarError as error:
        if failures and not kept.is_full:
            reason = f"the preview of {stream.node.operator_id} failed: {failures[-1].reason}"
            raise error_for(ErrorCode(failures[-1].code), reason) from error
        if not kept.is_full:
            raise
    finally:
        reading.stopped = True
        job.cancel()
    return kept.table()


def _supervisor(plan: Plan, clock: Clock, listener: JobListener) -> Supervisor:
    store = CheckpointStore(MemoryObjectStore("preview"), "preview")
    options = JobOptions(
        job="preview",
        store_uri=store.objects.uri,
        parallelism=1,
        checkpoint=CoordinatorConfig(interval_ms=None),
        restart=NoRestart(),
    )
    return Supervisor(LocalCluster(store, clock), plan, options, store, clock, listener)


def _no_row(stream: Input, bounds: Bounds) -> LaminarError:
    return JobFailedError(
        ErrorCode.NO_PROGRESS,
        f"{stream.node.operator_id} emitted no row in {bounds.wait_ms / 1000 + END_MAX_S:g} s, and "
        "an operator before it is still at work: allow it more time with wait_max, or less to do "
        "with input_rows_max",
    )


# --- the part of the pipeline -------------------------------------------------------------------


def _with_sinks(nodes: Sequence[Node], stream: Input, kept: "_KeptRows") -> list[Node]:
    """Return the nodes before the stream, with a sink for the stream and for each unread output.

    Rows of unread outputs are dropped. These are letters, and the main output of an operator if
    only its side output is previewed.
    """
    needed = [node for node in nodes if id(node) in _before(stream)]
    inputs = [one for node in needed for one in (*node.inputs, *node.feedback)]
    read = {(id(one.node), one.side) for one in (*inputs, stream)}
    unread = [
        Input(node, Forward(), side)
        for node in needed
        for side in (None, *(node.sides if node.source is not None else ()))
        if (id(node), side) not in read
    ]
    nothing = _KeptRows(0, pa.schema([]))
    sinks = [_sink(number, one, nothing) for number, one in enumerate(unread, 1)]
    return [*needed, *sinks, _sink(0, stream, kept)]


def _sink(number: int, rows: Input, kept: "_KeptRows") -> Node:
    name = f"{rows.node.operator_id}-previewed-{number}"
    sink = SinkNode(name, _KeepingSink(CollectSink(), kept), rows.updates)
    return Node(rows.schema, (rows,), sink=sink)


def _before(stream: Input) -> set[int]:
    """Return the ids of all nodes from which rows can come to the stream."""
    found: set[int] = set()
    waiting = [stream.node]
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found.add(id(node))
            waiting += [one.node for one in (*node.inputs, *node.feedback)]
    return found


def _bounded(plan: Plan, reading: "_Reading") -> Plan:
    def source(node: SourceNode | None) -> SourceNode | None:
        if node is None:
            return None
        return replace(node, source=_FirstRows(node.source, reading), rows_per_second=None)

    return replace(plan, vertices=tuple(replace(v, source=source(v.source)) for v in plan.vertices))


# --- what is read -------------------------------------------------------------------------------


class _Reading:
    """How much may be read of each source, for how long, and whether it has been stopped."""

    def __init__(self, bounds: Bounds, clock: Clock) -> None:
        self.input_rows_max = bounds.input_rows
        self.wait_ms = bounds.wait_ms
        self.clock = clock
        self.stopped = False


@dataclass(frozen=True, slots=True)
class _FirstRows(StandInSource):
    """The first rows of a source, which then has ended."""

    bounds: _Reading

    def discovery(self) -> Discovery:
        return _FirstStep(self.source.discovery())

    def open(self, splits: pa.Table) -> "_FirstRowsReader":
        return _FirstRowsReader(self.source.open(splits), splits, self.bounds)


class _FirstStep:
    """A discovery that ends with its first step."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self.interval_ms = discovery.interval_ms

    def step(self, state: JsonObject) -> Found:
        return replace(self._discovery.step(state), complete=True)


class _FirstRowsReader(StandInReader):
    """Ends after so many rows, or so long after the first poll of its first splits.

    The time of that poll counts, not that of the start: a slow start leaves no source unread.
    """

    def __init__(self, reader: SourceReader, splits: pa.Table, reading: _Reading) -> None:
        super().__init__(reader)
        self._reading = reading
        self._has_splits = splits.num_rows > 0
        self._left = reading.input_rows_max
        self._until_ms: float | None = None

    def poll(self, rows_max: int) -> SourceBatch | None:
        if self._is_over:
            return None
        if self._until_ms is None and self._has_splits:
            self._until_ms = self._reading.clock.monotonic_ms() + self._reading.wait_ms
        batch = self._reader.poll(min(rows_max, self._left))
        self._left -= 0 if batch is None else batch.message_count
        return batch

    def add(self, splits: pa.Table) -> None:
        super().add(splits)
        self._has_splits = self._has_splits or splits.num_rows > 0

    @property
    def finished(self) -> bool:
        return self._is_over or self._reader.finished

    @property
    def _is_over(self) -> bool:
        if self._until_ms is None:
            return self._reading.stopped
        is_late = self._reading.clock.monotonic_ms() >= self._until_ms
        return self._reading.stopped or self._left <= 0 or is_late


# --- what is kept -------------------------------------------------------------------------------


class _KeptRows:
    """The first rows of a stream; the worker's thread adds them."""

    def __init__(self, rows_max: int, schema: pa.Schema) -> None:
        self.row_count = 0
        self.on_full: Callable[[], object] = lambda: None
        self._rows_max = rows_max
        self._schema = schema
        self._lock = threading.Lock()
        self._batches: list[pa.RecordBatch] = []

    @property
    def is_full(self) -> bool:
        return self.row_count >= self._rows_max

    def add(self, batch: pa.RecordBatch) -> None:
        with self._lock:
            if self.is_full or not batch.num_rows:
                return
            first = batch.slice(0, self._rows_max - self.row_count).cast(self._schema)
            self._batches.append(first)
            self.row_count += first.num_rows
        if self.is_full:
            self.on_full()

    def table(self) -> pa.Table:
        with self._lock:
            return pa.Table.from_batches(self._batches, self._schema)


@dataclass(frozen=True, slots=True)
class _KeepingSink(CountingSink):
    """Keeps rows in this process."""

    kept: _KeptRows

    def open(self, context: SubtaskContext, schema: pa.Schema) -> "_KeepingWriter":
        del context, schema
        return _KeepingWriter(self.kept)


class _KeepingWriter(CountingWriter):
    def __init__(self, kept: _KeptRows) -> None:
        self._kept = kept

    def write(self, batch: pa.RecordBatch) -> None:
        self._kept.add(batch)
