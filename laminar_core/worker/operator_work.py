"""Measure the operators of a worker: rows, expiry, work, time behind full outputs, queues."""

from collections.abc import Callable, Iterable, Iterator

from laminar_core.link.messages import OperatorWork
from laminar_core.worker.task import Task


def work_of(tasks: Iterable[Task], busy_ms: Callable[[str], float]) -> dict[str, OperatorWork]:
    """Return the totals of each operator, source and sink; ``busy_ms`` is by operator.

    Operators of one vertex call each other directly, so full outputs stop all of them: they have
    the same backpressure, and only the first one has a queue.
    """
    found: dict[str, OperatorWork] = {}
    for task in tasks:
        full_ms = task.room.full_ms()
        for operator_id, rows_in, rows_out in _rows(task):
            found[operator_id] = OperatorWork(
                rows_in=rows_in,
                rows_out=rows_out,
                busy_ms=busy_ms(operator_id),
                backpressured_ms=full_ms,
            )
        for operator_id, operator in task.parts.operators:
            if expired := getattr(operator, "expired_row_count", 0):
                work = found[operator_id]
                found[operator_id] = work.model_copy(update={"rows_expired": expired})
        if task.parts.inputs and (first := next(_rows(task), None)) is not None:
            queued = sum(channel.batches_queued for channel in task.parts.inputs)
            found[first[0]] = found[first[0]].model_copy(update={"queued_batches": queued})
    return found


def _rows(task: Task) -> Iterator[tuple[str, int, int]]:
    """Yield id, rows in and rows out; a source takes none, and a sink passes none on."""
    passed, parts = task.rows_passed, task.parts
    if parts.source_id is not None:
        yield parts.source_id, 0, passed[0]
    for position, (operator_id, _) in enumerate(parts.operators):
        yield operator_id, passed[position], passed[position + 1]
    if parts.sink_id is not None:
        yield parts.sink_id, passed[-1], 0
