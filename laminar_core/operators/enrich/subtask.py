"""The running instance of an enrichment: rows and watermarks wait in a queue for their answers.

A watermark waits behind the rows that came before it, so event time does not overtake rows. At a
cut the rows in the queue are the state, whether they were called or not; so no cut waits for a
call, and a call may be made again after a restore.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import comparable, plain_column
from laminar_core.aggregates.row_groups import as_array
from laminar_core.codec.dictionaries import encoded
from laminar_core.errors import ConfigurationError, ErrorCode, JobFailedError
from laminar_core.objectstore.retries import RetryPolicy
from laminar_core.operators.base import (
    Emitted,
    JsonObject,
    PendingSnapshot,
    Side,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.emitted import require_emitted
from laminar_core.operators.keyed import number
from laminar_core.operators.process.changes import least_of_all
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Watermark
from laminar_core.units import is_whole

FAILED = "failed"
"""The side output of rows whose calls failed."""
ERROR = "error"
"""Its column with the reason."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one subtask. ``rows_per_call``: a call gets at most so many."""

    concurrency: int
    timeout_ms: float
    attempts: int
    rows_per_call: int
    pending_rows_max: int

    def problem(self) -> str:
        """Return which of them is no positive whole number; empty if all are."""
        for name in ("concurrency", "attempts", "rows_per_call", "pending_rows_max"):
            limit = getattr(self, name)
            if not is_whole(limit) or limit < 1:
                return f"needs {name}, a whole number of at least 1, not {limit!r}"
        return ""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The new columns of some rows, or why there are none."""

    rows: pa.RecordBatch | None
    error: str = ""


@dataclass(slots=True, eq=False)
class _Waiting:
    """Rows of one call."""

    rows: pa.RecordBatch
    answer: "Future[_Answer] | None" = None
    """None: the call has not begun."""


class EnrichSubtask:
    """One subtask. At most ``pending_rows_max`` rows wait, and what one unit of work adds."""

    def __init__(
        self,
        context: SubtaskContext,
        function: Callable[[pa.RecordBatch], Awaitable[pa.RecordBatch]],
        input_schema: pa.Schema,
        output_schema: pa.Schema,
        limits: Limits,
        on_error: str,
    ) -> None:
        self.pending_row_count = 0
        """Number of rows that wait for their answers, or for the answers of rows before them."""
        self.failed_row_count = 0
        """Number of rows so far whose calls failed for good."""
        self._context = context
        self._function = function
        self._input_schema = input_schema
        self._output_schema = output_schema
        self._added = pa.schema(list(output_schema)[len(input_schema) :])
        self._limits = limits
        self._on_error = on_error
        self._what = f"enrich {context.operator_id!r}"
        self._queue: deque[_Waiting | Watermark] = deque()
        self._not_begun: deque[_Waiting] = deque()
        self._running: list[Future[_Answer]] = []
        self._received_us: int | None = None
        self._passed_us: int | None = None
        """The newest watermark before which no row waits."""
        seed = f"{context.operator_id} {context.subtask_index}"
        self._random = Random(seed)  # noqa: S311 - only spreads repeated calls

    # --- rows and time --------------------------------------------------------------------------

    def process(self, batch: pa.RecordBatch) -> Iterator[Emitted]:
        """Call for the rows, and yield rows that have been answered."""
        self._enqueue(batch)
        yield from self._answered()

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Let event time wait behind the rows that came before it."""
        if watermark_us != WATERMARK_END_US:
            self._received_us = watermark_us
            if self._queue and isinstance(self._queue[-1], Watermark):
                self._queue.pop()
            if self._queue:
                self._queue.append(Watermark(watermark_us))
        return ()

    def output_watermark(self, watermark_us: int) -> int | None:
        """Return the newest watermark before which no row waits."""
        if not self._queue:
            self._passed_us = watermark_us
        return self._passed_us

    @property
    def has_pending(self) -> bool:
        """Whether rows wait, and so the end of the input has to."""
        return bool(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether so many rows wait that no further ones are to be taken."""
        return self.pending_row_count >= self._limits.pending_rows_max

    def next_due_ms(self) -> float | None:
        """Return a time that has passed if there is an answer to take, or a call to begin."""
        if not self._queue:
            return None
        if self._can_begin() or self._is_answered(self._queue[0]):
            return 0.0
        return self._context.calls.next_due_ms()

    def on_time(self, now_ms: float) -> Iterator[Emitted]:
        """Yield rows that have been answered, in their order, and event time behind them."""
        del now_ms
        self._context.calls.turn()
        return self._answered()

    # --- calls ----------------------------------------------------------------------------------

    def _enqueue(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, self._limits.rows_per_call):
            waiting = _Waiting(batch.slice(start, self._limits.rows_per_call))
            self._queue.append(waiting)
            self._not_begun.append(waiting)
        self.pending_row_count += batch.num_rows

    def _can_begin(self) -> bool:
        running = sum(not answer.done() for answer in self._running)
        return bool(self._not_begun) and running < self._limits.concurrency

    def _begin_calls(self) -> None:
        self._running = [answer for answer in self._running if not answer.done()]
        while self._not_begun and len(self._running) < self._limits.concurrency:
            waiting = self._not_begun.popleft()
            waiting.answer = self._context.calls.start(self._call(waiting.rows))
            if not waiting.answer.done():
                self._running.append(waiting.answer)

    @staticmethod
    def _is_answered(first: _Waiting | Watermark) -> bool:
        return isinstance(first, Watermark) or (first.answer is not None and first.answer.done())

    def _answered(self) -> Iterator[Emitted]:
        self._begin_calls()
        while self._queue and self._is_answered(self._queue[0]):
            first = self._queue.popleft()
            if isinstance(first, Watermark):
                self._passed_us = first.time_us
                yield first
            else:
                assert first.answer is not None, "it is answered"
                self.pending_row_count -= first.rows.num_rows
                yield self._result(first.rows, first.answer.result())
            self._begin_calls()

    async def _call(self, rows: pa.RecordBatch) -> _Answer:
        """Call the user's function until it answers; runs beside the worker's loop."""
        policy = RetryPolicy()
        failures = 0
        while True:
            try:
                async with asyncio.timeout(self._limits.timeout_ms / 1000):
                    return _Answer(await self._function(rows))
            except BaseException as error:
                is_usual = isinstance(error, Exception)
                if isinstance(error, GeneratorExit) or (not is_usual and _is_ending()):
                    raise
                failures += 1
                if failures == self._limits.attempts:
                    return _Answer(None, self._said(error))
            wait_ms = self._random.uniform(0, policy.wait_bound_ms(failures))
            await asyncio.sleep(wait_ms / 1000)

    def _said(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError) and not str(error):
            return f"no answer in {self._limits.timeout_ms:g} ms"
        return f"{type(error).__name__}: {error}".partition("\n")[0]

    def _result(self, rows: pa.RecordBatch, answer: _Answer) -> pa.RecordBatch | Side:
        if answer.error:
            return self._without_answer(rows, answer.error)
        added = require_emitted(answer.rows, self._added, f"{self._what} was answered")
        if added.num_rows != rows.num_rows:
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA,
                f"{self._what} was answered {added.num_rows} rows for {rows.num_rows}: answer one"
                " for each, in the same order",
            )
        return self._joined(rows, added.columns)

    def _without_answer(self, rows: pa.RecordBatch, error: str) -> pa.RecordBatch | Side:
        self.failed_row_count += rows.num_rows
        if self._on_error == "null":
            nulls = [pa.nulls(rows.num_rows, field.type) for field in self._added]
            return self._joined(rows, nulls)
        if self._on_error == "side":
            reasons = pa.array([error] * rows.num_rows, pa.string())
            return Side(FAILED, rows.append_column(ERROR, reasons))
        raise JobFailedError(
            ErrorCode.WORKER_FAILED,
            f"{self._what} failed at attempt {self._limits.attempts} of"
            f" {self._limits.attempts}: {error}",
        )

    def _joined(self, rows: pa.RecordBatch, added: Sequence[pa.Array]) -> pa.RecordBatch:
        return pa.record_batch([*rows.columns, *added], schema=self._output_schema)

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the rows that wait; answers are forgotten with them."""
        del checkpoint_id
        waiting = [one.rows for one in self._queue if isinstance(one, _Waiting)]
        properties: JsonObject = {
            "received_us": self._received_us,
            "passed_us": self._passed_us,
            "failed_row_count": self.failed_row_count,
            "subtask_index": self._context.subtask_index,
        }
        schema = self._input_schema

        def finish_snapshot() -> Snapshot:
            if not waiting:
                return Snapshot((), properties)
            rows = pa.Table.from_batches(waiting, schema)
            plain = {name: plain_column(rows.column(name)) for name in schema.names}
            return Snapshot((StateTable("", pa.table(plain)),), properties)

        return finish_snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Continue the queues of all old subtasks; each new one takes the rows of some of them.

        Event time goes on from where the slowest one was, because later rows can be from any.
        """
        context = self._context
        for snapshot in snapshots:
            before = number(snapshot.properties["subtask_index"])
            if before % context.parallelism != context.subtask_index:
                continue
            self.failed_row_count += number(snapshot.properties["failed_row_count"])
            for table in snapshot.tables:
                size = min(self._limits.rows_per_call, *map(_rows_max, self._input_schema.types))
                for batch in table.rows.to_batches(max_chunksize=size):
                    self._enqueue(_encoded(batch, self._input_schema))
        self._received_us = _least(snapshots, "received_us")
        self._passed_us = _least(snapshots, "passed_us")
        if self._queue and self._received_us is not None:
            self._queue.append(Watermark(self._received_us))


def _is_ending() -> bool:
    """Return whether this call is cancelled from outside, and not by what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _rows_max(of: pa.DataType) -> int:
    """Return how many rows fit into a batch for certain, each with a value of its own."""
    index_type = of.index_type if pa.types.is_dictionary(of) else pa.int64()
    return int(np.iinfo(index_type.to_pandas_dtype()).max)


def _encoded(plain: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Encode plain columns as they came: no null is in a dictionary, and no value twice."""
    columns: list[pa.Array] = []
    for field in schema:
        column = plain.column(field.name)
        if pa.types.is_dictionary(field.type):
            found = encoded(as_array(comparable(pa.chunked_array([column]))))
            columns.append(
                pa.DictionaryArray.from_arrays(
                    found.indices.cast(field.type.index_type),
                    found.dictionary.cast(field.type.value_type),
                    ordered=field.type.ordered,
                )
            )
        else:
            columns.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _least(snapshots: Sequence[Snapshot], name: str) -> int | None:
    times_us = [snapshot.properties[name] for snapshot in snapshots]
    return least_of_all([time_us if isinstance(time_us, int) else None for time_us in times_us])
