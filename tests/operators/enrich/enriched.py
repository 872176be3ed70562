"""Enrichments for tests: their subtasks without a job around them, and a service by hand."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from laminar_core.host.clock import ManualClock
from laminar_core.operators.base import Side, SubtaskContext
from laminar_core.operators.enrich.spec import Enrich
from laminar_core.operators.enrich.subtask import EnrichSubtask, Limits
from laminar_core.protocol.types import Generation, Watermark
from laminar_core.testing.polled_calls import PolledCalls

INPUT = pa.schema([("n", pa.int64())])
ADDED = pa.schema([("double", pa.int64())])
LIMITS = {
    "concurrency": 3,
    "timeout_ms": 1_000,
    "attempts": 1,
    "rows_per_call": 1,
    "pending_rows_max": 8,
}


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=INPUT)


class Service:
    """A service that answers on request; each call is known by its first number."""

    def __init__(self) -> None:
        self.open: dict[int, asyncio.Future] = {}
        self.calls: list[list[int]] = []

    async def double(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = batch.column("n").to_pylist()
        self.calls.append(numbers)
        future = self.open[numbers[0]] = asyncio.get_running_loop().create_future()
        try:
            await future
        finally:
            self.open.pop(numbers[0], None)
        return pa.record_batch([pa.array([2 * n for n in numbers], pa.int64())], schema=ADDED)

    def answer(self, *numbers: int) -> None:
        for n in numbers:
            self.open[n].set_result(None)

    def fail(self, n: int, error: Exception) -> None:
        self.open[n].set_exception(error)


class Bench:
    """A subtask, its service and its clock."""

    def __init__(
        self,
        service: Any = None,
        on_error: Any = "fail",
        *,
        subtask: int = 0,
        parallelism: int = 1,
        **limits: Any,
    ) -> None:
        self.service = Service()
        self.clock = ManualClock()
        self.calls = PolledCalls(self.clock)
        context = SubtaskContext(
            "mine",
            subtask,
            parallelism,
            128,
            Generation(1),
            clock=self.clock,
            calls=self.calls,
        )
        spec = Enrich(
            "mine", service or self.service.double, ADDED, Limits(**{**LIMITS, **limits}), on_error
        )
        self.subtask: EnrichSubtask = spec.open(context, INPUT)

    def take(self, *numbers: int) -> list[Any]:
        return said(self.subtask.process(rows(*numbers)))

    def work(self) -> list[Any]:
        """Let it act as long as it is due now."""
        found: list[Any] = []
        while (due_ms := self.subtask.next_due_ms()) is not None and due_ms <= self.clock.now_ms():
            found += said(self.subtask.on_time(self.clock.now_ms()))
        return found

    def wait(self) -> list[Any]:
        """Let the clock go on to the next time at which it is due."""
        due_ms = self.subtask.next_due_ms()
        assert due_ms is not None
        self.clock.wait_ms(due_ms - self.clock.now_ms() + 1)
        return self.work()


def said(results: Iterable[Any]) -> list[Any]:
    """Return pairs of rows, watermarks as ``w7``, and failed rows with their reason."""
    found: list[Any] = []
    for result in results:
        if isinstance(result, Watermark):
            found.append(f"w{result.time_us}")
        elif isinstance(result, Side):
            found += [(result.output, *row.values()) for row in result.rows.to_pylist()]
        else:
            found += [tuple(row.values()) for row in result.to_pylist()]
    return found
