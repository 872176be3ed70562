"""Process functions for tests, and their subtasks without a job around them."""

# ruff: noqa: ARG002, RUF012 - classes as users write them

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from laminar_core.host.clock import ManualClock
from laminar_core.operators.base import Side, Snapshot, StateTable, SubtaskContext
from laminar_core.operators.process.spec import ProcessRows
from laminar_core.operators.process.subtask import ProcessSubtask
from laminar_core.operators.process.values import ValueState
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.state.chunks import MemoryBackend, StateBackend
from laminar_core.state.expiry import unexpired

SECOND_US = 1_000_000
TIME = pa.timestamp("us", tz="UTC")
INPUT = pa.schema([("key", pa.string()), ("ts", TIME), ("value", pa.int64())])
NOTED = pa.schema([("key", pa.string()), ("what", pa.string()), ("number", pa.int64())])


def rows(*values: tuple[str, float, int]) -> pa.RecordBatch:
    """Rows of key, second and value."""
    return pa.RecordBatch.from_pylist(
        [{"key": k, "ts": int(at * SECOND_US), "value": v} for k, at, v in values], schema=INPUT
    )


def noted(keys: pa.Array, what: str, numbers: Any) -> pa.RecordBatch:
    columns = [keys, pa.array([what] * len(keys)), pa.array(numbers, pa.int64())]
    return pa.record_batch(columns, schema=NOTED)


class Remember:
    """Adds the values of each key up; says the sum five seconds after the last row, and forgets."""

    state = {"total": ValueState(pa.int64()), "last": ValueState(pa.int64())}
    schema = NOTED

    def process(self, rows, keys, state, timers):
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, keys.of_row, rows.column("value").to_numpy())
        state["total"].put(keys, known(state["total"].get(keys)) + sums)
        last_us = np.maximum(known(state["last"].get(keys)), keys.times_us)
        state["last"].put(keys, last_us)
        timers.set(keys, last_us + 5 * SECOND_US)

    def on_timer(self, due, keys, state, timers):
        del timers
        due_us = due.column("due").cast(pa.int64()).to_numpy()
        fired = keys.take(known(state["last"].get(keys)) + 5 * SECOND_US == due_us)
        yield noted(fired.column("key"), "total", state["total"].get(fired))
        for values in state.values():
            values.put(fired, pa.nulls(len(fired)))


def known(numbers: pa.Array) -> np.ndarray:
    """Numbers, with 0 where there is none."""
    return numbers.fill_null(0).to_numpy()


class Forgetful:
    """Counts the rows of a key until ten seconds pass without one; says the count each time."""

    state = {"count": ValueState(pa.int64(), ttl="10 seconds")}
    schema = NOTED

    def process(self, rows, keys, state, timers):
        for key, mine in keys.each(rows):
            state["count"][key] = (state["count"][key] or 0) + mine.num_rows
            yield noted(key.column("key"), "count", [state["count"][key]])


class Reminders:
    """Sets a timer by the clock a second later, and says when it fired."""

    state: dict[str, ValueState] = {}
    schema = NOTED

    def process(self, rows, keys, state, timers):
        timers.set_clock(keys, timers.now_us + SECOND_US)

    def on_clock_timer(self, due, keys, state, timers):
        return noted(keys.column("key"), "fired", due.column("due").cast(pa.int64()))


def opened(
    process: Any,
    subtask: int = 0,
    parallelism: int = 1,
    clock: ManualClock | None = None,
    backend: StateBackend | None = None,
) -> ProcessSubtask:
    context = SubtaskContext(
        "mine",
        subtask,
        parallelism,
        128,
        Generation(1),
        backend=backend or MemoryBackend(),
        clock=clock or ManualClock(0),
    )
    return ProcessRows("mine", ("key",), process, "ts").open(context, INPUT)


def said(results: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the emitted rows, and the values of late ones."""
    found: list[tuple[Any, ...]] = []
    for result in results:
        if isinstance(result, Side):
            found += [(result.output, v) for v in result.rows.column("value").to_pylist()]
        else:
            found += [tuple(row.values()) for row in result.to_pylist()]
    return found


def cut(subtask: ProcessSubtask, *, changes: bool = False) -> Snapshot:
    """Take a snapshot, of everything or of what changed."""
    take = subtask.snapshot_changes if changes else subtask.snapshot
    snapshot = take(CheckpointId(1))()
    return replace(snapshot, tables=tuple(snapshot.tables))


def readable(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots as a restore gets them: without what had expired in them."""
    return [
        replace(
            snapshot,
            tables=tuple(
                StateTable(t.name, unexpired(t.name, t.rows, snapshot.expired_us.get(t.name)))
                for t in snapshot.tables
            ),
        )
        for snapshot in snapshots
    ]
