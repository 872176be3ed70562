"""One frame of ``laminar top``: a job as its heartbeat and its store describe it."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from laminar_core.cli.recovery_view import age
from laminar_core.cli.views import size_text
from laminar_core.driver.events import MissingSubtask
from laminar_core.driver.under_way import CheckpointUnderWay, under_way_of
from laminar_core.host.terminal import escaped
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.protocol.waiting import WaitsFor
from laminar_core.records.operator_numbers import OperatorNumbers, operators_of
from laminar_core.records.record import JsonObject
from laminar_core.records.source_numbers import sources_of
from laminar_core.store.job_status import CheckpointStatus, DriverStatus, JobStatus

HIGH_SHARE = 0.8
"""An operator that is busy or backpressured for this share of its time stands out."""
SUBTASKS_SHOWN = 8
_HEADINGS = ("operator", "rows/s in", "rows/s out", "busy", "backpressured", "queued", "")
_DESCRIBED = {
    WaitsFor.BARRIERS: "waits for the barrier",
    WaitsFor.IN_FLIGHT: "made its cut, and records data in flight until the barrier",
    WaitsFor.UPLOAD: "writes its state",
}


def frame(found: JobStatus, problem: str = "") -> RenderableType:
    """Return the frame for a job with a driver; ``problem``: why it is not newer."""
    driver = found.driver
    assert driver is not None, "a job that never ran has no frame"
    parts: list[RenderableType] = [Text(escaped(line)) for line in _head(found, driver)]
    if operators := operators_of(driver.progress):
        parts += [Text(), _table(operators), Text()]
    else:
        parts.append(Text("its driver has not reported operators yet"))
    parts += [Text(escaped(line)) for line in _sources(driver.progress)]
    parts.append(Text(_newest(found.checkpoint)))
    # The heartbeat may be older than the checkpoint that the store has.
    newest_id = 0 if found.checkpoint is None else found.checkpoint.checkpoint_id
    pending = under_way_of(driver.progress)
    parts += list(_pending([each for each in pending if each.checkpoint_id > newest_id]))
    if problem:
        parts.append(Text(escaped(problem), style="red"))
    return Group(*parts)


def _head(found: JobStatus, driver: DriverStatus) -> Iterator[str]:
    beat_ms = driver.heartbeat_age_ms
    seen = "no sign of life yet" if beat_ms is None else f"last sign of life {age(beat_ms)} ago"
    yield f"job {found.job}, generation {driver.generation}, {seen}"
    progress = driver.progress
    told = [
        f"{number:,} {name.replace('_', ' ')}"
        for name in ("rows_in", "rows_out", "rows_late")
        if isinstance(number := progress.get(name), int)
    ]
    if isinstance(rate := progress.get("rows_per_s"), int | float):
        told.append(f"{rate:,.0f} rows per s")
    watermark_us = progress.get("watermark_us")
    if isinstance(watermark_us, int) and watermark_us < WATERMARK_END_US:
        behind_ms = found.read_at_ms - watermark_us // 1000
        told.append(f"event time {age(max(behind_ms, 0))} behind")
    if told:
        yield ", ".join(told)


def _table(operators: dict[str, OperatorNumbers]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        justify = "left" if heading in (_HEADINGS[0], _HEADINGS[-1]) else "right"
        table.add_column(heading, justify=justify, no_wrap=True)
    slowest = _slowest(operators)
    for name, numbers in operators.items():
        table.add_row(
            Text(escaped(name)),
            _number(numbers.rows_in_per_s),
            _number(numbers.rows_out_per_s),
            _share(numbers.busy_share),
            _share(numbers.backpressured_share),
            _number(numbers.queued_batches),
            "holds others back" if name == slowest else "",
        )
    return table


def _slowest(operators: dict[str, OperatorNumbers]) -> str | None:
    """Return the busiest operator, if full queues stop another one."""
    if not any((each.backpressured_share or 0) > 1 - HIGH_SHARE for each in operators.values()):
        return None
    return max(operators, key=lambda name: operators[name].busy_share or 0.0)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _share(value: float | None) -> Text:
    if value is None:
        return Text()
    return Text(f"{value:.0%}", style="bold red" if value >= HIGH_SHARE else "")


def _sources(progress: JsonObject) -> Iterator[str]:
    for name, numbers in sources_of(progress).items():
        if numbers.lag_rows is not None:
            seconds = "" if numbers.lag_seconds is None else f" ({numbers.lag_seconds:,.0f} s)"
            yield f"source {name}: {numbers.lag_rows:,} rows{seconds} behind"


def _newest(checkpoint: CheckpointStatus | None) -> str:
    if checkpoint is None:
        return "no completed checkpoint"
    return (
        f"newest checkpoint {checkpoint.checkpoint_id}, {age(checkpoint.age_ms)} ago: "
        f"{checkpoint.mode}, {checkpoint.duration_ms:,.0f} ms, {size_text(checkpoint.size_bytes)} "
        f"({size_text(checkpoint.written_bytes)} new, "
        f"{size_text(checkpoint.inflight_bytes)} in flight)"
    )


def _pending(pending: list[CheckpointUnderWay]) -> Iterator[Text]:
    if not pending:
        yield Text("no checkpoint under way")
    for each in pending:
        yield Text(
            f"checkpoint {each.checkpoint_id} ({each.kind.value}), under way for "
            f"{age(int(each.age_ms))}, {each.acknowledged} of {each.workers} workers are done"
        )
        for subtask in each.missing[:SUBTASKS_SHOWN]:
            yield Text(escaped(f"  {_described(subtask)}"))
        more = each.missing_count - min(len(each.missing), SUBTASKS_SHOWN)
        if more > 0:
            yield Text(f"  and {more} more subtasks")


def _described(subtask: MissingSubtask) -> str:
    where = f"{subtask.vertex_id} {subtask.subtask_index}"
    if subtask.host:
        where += f" on {subtask.host}"
    if subtask.waits_for is None:
        return f"{where} is not done"
    if not subtask.channels:
        return f"{where} {_DESCRIBED[subtask.waits_for]}"
    names = ", ".join(f"{c.upstream} {c.sender}" for c in subtask.channels)
    others = subtask.channel_count - len(subtask.channels)
    more = f" and {others} more" if others > 0 else ""
    return f"{where} {_DESCRIBED[subtask.waits_for]} from {names}{more}"
