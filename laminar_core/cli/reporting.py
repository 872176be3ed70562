"""Display a run: one JSON object per event, or a progress bar and a line per event."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol, Self

import click
import pyarrow as pa
from pydantic_core import to_json
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from laminar_core.driver.events import (
    CheckpointCompleted,
    CheckpointFailed,
    CleanUpFailed,
    CommandAnswered,
    CommitDelayed,
    DataFlowing,
    FilesDamaged,
    Finished,
    GenerationFailed,
    GenerationStarted,
    JobEvent,
    NotEncrypted,
    OperatorAtWork,
    ProgressMade,
    RestoreProgressed,
    SinkWarning,
    SplitsNotFound,
    StoreBack,
    StoreLost,
    ThresholdTooLow,
    WorkersRunning,
)
from laminar_core.errors import LaminarError

ROWS_SHOWN = 20
RESTORE_SHOWN_BYTES_MIN = 100_000_000
"""A smaller restore ends before its line could be read."""
_FILES_SHOWN = 3


class Reporter(Protocol):
    """Displays the events of a job; ``on_event`` is called from several threads."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def on_event(self, event: JobEvent) -> None:
        """Show one event."""
        ...

    def rows(self, sink: str, table: pa.Table) -> None:
        """Show the rows that a sink collected."""
        ...

    def failed(self, error: LaminarError) -> None:
        """Show why the job ended."""
        ...


class JsonReporter:
    """One object per line on standard output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def on_event(self, event: JobEvent) -> None:
        """Print the event as JSON."""
        click.echo(event.model_dump_json())

    def rows(self, sink: str, table: pa.Table) -> None:
        """Print one object per row."""
        for row in table.to_pylist():
            line = {"event": "row", "sink": sink, "row": row}
            # Times in ISO 8601, bytes in base 64; infinity is no number in JSON.
            click.echo(to_json(line, inf_nan_mode="strings", bytes_mode="base64"))

    def failed(self, error: LaminarError) -> None:
        """Print code and message."""
        click.echo(json.dumps({"event": "failed", "code": error.code.value, "message": str(error)}))


class TextReporter:
    """Lines on standard error, with a bar below them on a terminal."""

    def __init__(self, *, show_bar: bool | None) -> None:
        # Decided once: while Spark starts, standard error is a pipe in front of the terminal.
        on_terminal = sys.stderr.isatty() or None
        self._console = Console(stderr=True, highlight=False, force_terminal=on_terminal)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.completed:,.0f} rows"),
            BarColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not (self._console.is_terminal if show_bar is None else show_bar),
        )
        self._task: TaskID = self._bar.add_task("rows", total=None, rate="starting")

    def __enter__(self) -> Self:
        with suppress(OSError):  # Standard error may be a full disk, or closed.
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar.disable:  # Rich before 14.3 would print an empty line.
            return
        with suppress(OSError):
            self._bar.stop()

    def on_event(self, event: JobEvent) -> None:
        """Update the progress bar, or print a line."""
        if isinstance(event, RestoreProgressed):
            self._bar.update(self._task, rate=_restoring(event))
        if isinstance(event, ProgressMade):
            self._bar.update(
                self._task,
                completed=event.rows_in,
                total=event.rows_total,
                rate=f"{event.rows_per_s:,.0f} rows/s",
            )
            return
        for line in _lines(event):
            self._console.print(line, markup=False, soft_wrap=True)

    def rows(self, sink: str, table: pa.Table) -> None:
        """Print the first rows on standard output."""
        click.echo(f"{sink}: {table.num_rows:,} rows")
        for row in table.slice(0, ROWS_SHOWN).to_pylist():
            click.echo("  " + ", ".join(f"{name}={value}" for name, value in row.items()))
        if table.num_rows > ROWS_SHOWN:
            click.echo(f"  … and {table.num_rows - ROWS_SHOWN:,} more; --json prints all")

    def failed(self, error: LaminarError) -> None:
        """Do nothing: the command line prints the error as it exits."""


def _lines(event: JobEvent) -> Iterator[str]:
    match event:
        case GenerationStarted():
            yield f"generation {event.generation} {_start(event)}"
            yield from event.reset
            for rejected in event.rejected:
                yield f"checkpoint {rejected.checkpoint_id} is not used: {rejected.reason}"
        case CheckpointCompleted() | CheckpointFailed() | CleanUpFailed() | ThresholdTooLow():
            yield from _checkpoint_lines(event)
        case SplitsNotFound():
            yield f"source {event.operator_id}: {event.problem}"
        case FilesDamaged() | StoreLost() | StoreBack():
            yield from _store_lines(event)
        case CommitDelayed() | NotEncrypted() | OperatorAtWork() | SinkWarning():
            yield from _warning_lines(event)
        case CommandAnswered():
            done = f" in {event.savepoint}" if event.savepoint else ""
            why = f": {event.reason}" if event.reason else ""
            yield f"{event.command} for {event.actor} {event.outcome}{done}{why}"
        case GenerationFailed(restart_in_ms=delay_ms):
            again = "" if delay_ms is None else f"; starting again in {delay_ms:.0f} ms"
            yield f"generation {event.generation} failed: {event.reason}{again}"
        case Finished():
            late = f", {event.rows_late:,} rows were late" if event.rows_late else ""
            bad = f", {event.bad_rows}" if event.bad_rows else ""
            yield (
                f"{event.outcome}: {event.rows_in:,} rows in, {event.rows_out:,} rows out, "
                f"{event.checkpoints} checkpoint{'' if event.checkpoints == 1 else 's'}{late}{bad}"
            )
        case RestoreProgressed(percent=100.0) if event.bytes_total >= RESTORE_SHOWN_BYTES_MIN:
            yield f"restored {event.files:,} files, {event.size_bytes / 1e6:,.1f} MB"
        case RestoreProgressed() | WorkersRunning() | DataFlowing() | ProgressMade():
            pass


_Warning = CommitDelayed | NotEncrypted | OperatorAtWork | SinkWarning


def _warning_lines(event: _Warning) -> Iterator[str]:
    match event:
        case NotEncrypted():
            yield (
                "warning: a reader of the cluster's network can connect as a worker, because "
                f"Spark sends their key unencrypted: set {' and '.join(event.missing)} to true "
                "(docs/security.md), or require it with --require-encryption"
            )
        case CommitDelayed():
            yield (
                f"the output of checkpoint {event.checkpoint_id} is not committed yet and is tried "
                f"again: {event.reason}"
            )
        case SinkWarning():
            yield f"warning: sink {event.sink}: {event.warning}"
        case OperatorAtWork():
            yield (
                f"operator {event.operator_id} of worker {event.worker} has been at work on one "
                f"batch for {event.busy_ms / 1000:.0f} s"
            )


_CheckpointEvent = CheckpointCompleted | CheckpointFailed | CleanUpFailed | ThresholdTooLow


def _checkpoint_lines(event: _CheckpointEvent) -> Iterator[str]:
    match event:
        case CheckpointCompleted():
            size = f"{event.size_bytes / 1e6:.1f} MB, {event.written_bytes / 1e6:.1f} MB new"
            kind = "" if event.kind == "periodic" else f" ({event.kind.value})"
            waiting = f", {event.inflight_rows:,} rows in flight" if event.inflight_rows else ""
            yield (
                f"checkpoint {event.checkpoint_id}{kind} completed in {event.duration_ms:.0f} ms, "
                f"{size}, {event.mode}{waiting}"
            )
        case CheckpointFailed():
            yield f"checkpoint {event.checkpoint_id} {event.outcome}: {event.reason}"
        case CleanUpFailed():
            yield (
                f"what checkpoint {event.checkpoint_id} left could not be deleted: {event.reason}"
            )
        case ThresholdTooLow():
            yield (
                f"{event.checkpoints} checkpoints in a row waited {event.alignment_timeout_ms} ms "
                "and overtook then: with --unaligned they need not wait, with a longer "
                "--alignment-timeout fewer rows are in flight"
            )


def _restoring(event: RestoreProgressed) -> str:
    return f"restoring {event.percent:.0f} % of {event.bytes_total / 1e6:,.1f} MB"


def _store_lines(event: FilesDamaged | StoreLost | StoreBack) -> Iterator[str]:
    match event:
        case FilesDamaged():
            yield from _damage_lines(event)
        case StoreLost():
            yield f"the store is lost: {event.reason}"
        case StoreBack():
            yield "the store is back, and the job continues"


def _damage_lines(event: FilesDamaged) -> Iterator[str]:
    named = ", ".join(f"{file.path} ({file.problem})" for file in event.files[:_FILES_SHOWN])
    more = len(event.files) - _FILES_SHOWN
    yield f"stored files are damaged: {named}" + (f" and {more} more" if more > 0 else "")
    if event.checkpoint_ids:
        ids = ", ".join(map(str, event.checkpoint_ids))
        yield f"  checkpoints that need them cannot be restored: {ids}"
    if event.rewritten_operators:
        operators = ", ".join(event.rewritten_operators)
        yield f"  {operators} writes its whole state with the next checkpoint"


def _start(event: GenerationStarted) -> str:
    checkpoint_id, before = event.restored_checkpoint_id, event.restored_workers
    if before is not None:
        return (
            f"continues checkpoint {checkpoint_id} of {_workers(before)} with {event.parallelism}"
        )
    start = "the beginning" if checkpoint_id is None else f"checkpoint {checkpoint_id}"
    return f"starts from {start}, {_workers(event.parallelism)}"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
