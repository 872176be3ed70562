"""The text of each event, for people: on a terminal, in a notebook, in a log."""

from collections.abc import Iterator

from laminar_core.driver.events import (
    ApplicationEnded,
    ApplicationLeft,
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
    StandbyEnded,
    StandbyTakesOver,
    StandbyWaiting,
    StoreBack,
    StoreLost,
    ThresholdTooLow,
    WorkersRunning,
)

RESTORE_SHOWN_BYTES_MIN = 100_000_000
"""A smaller restore ends before its line could be read."""
_FILES_SHOWN = 3


def event_lines(event: JobEvent) -> Iterator[str]:
    """Yield the lines that tell of an event; none if it is only progress."""
    match event:
        case GenerationStarted():
            yield f"generation {event.generation} {_start(event)}"
            yield from event.reset
            for rejected in event.rejected:
                yield f"checkpoint {rejected.checkpoint_id} is not used: {rejected.reason}"
        case CheckpointCompleted() | CheckpointFailed() | CleanUpFailed() | ThresholdTooLow():
            yield from _checkpoint_lines(event)
        case FilesDamaged() | StoreLost() | StoreBack():
            yield from _store_lines(event)
        case (
            ApplicationEnded()
            | ApplicationLeft()
            | CommitDelayed()
            | NotEncrypted()
            | OperatorAtWork()
            | SinkWarning()
            | SplitsNotFound()
        ):
            yield from _warning_lines(event)
        case CommandAnswered():
            yield _command_line(event)
        case GenerationFailed(restart_in_ms=delay_ms):
            again = "" if delay_ms is None else f"; starting again in {delay_ms:.0f} ms"
            yield f"generation {event.generation} failed: {event.reason}{again}"
        case StandbyWaiting() | StandbyTakesOver() | StandbyEnded():
            yield _standby_line(event)
        case Finished():
            yield _finished_line(event)
        case RestoreProgressed(percent=100.0) if event.bytes_total >= RESTORE_SHOWN_BYTES_MIN:
            yield f"restored {event.files:,} files, {event.size_bytes / 1e6:,.1f} MB"
        case RestoreProgressed() | WorkersRunning() | DataFlowing() | ProgressMade():
            pass


def _command_line(event: CommandAnswered) -> str:
    done = f" in {event.savepoint}" if event.savepoint else ""
    why = f": {event.reason}" if event.reason else ""
    return f"{event.command} for {event.actor} {event.outcome}{done}{why}"


def _finished_line(event: Finished) -> str:
    late = f", {event.rows_late:,} rows were late" if event.rows_late else ""
    bad = f", {event.bad_rows}" if event.bad_rows else ""
    return (
        f"{event.outcome}: {event.rows_in:,} rows in, {event.rows_out:,} rows out, "
        f"{event.checkpoints} checkpoint{'' if event.checkpoints == 1 else 's'}{late}{bad}"
    )


def _standby_line(event: StandbyWaiting | StandbyTakesOver | StandbyEnded) -> str:
    match event:
        case StandbyWaiting():
            warm = "Spark is started" if event.is_warm else "Spark starts with the take-over"
            return f"standby waits: {event.reason} ({warm})"
        case StandbyTakesOver():
            return f"standby takes over: {event.reason}"
        case StandbyEnded():
            return f"standby ends: {event.reason}"


_Warning = (
    ApplicationEnded
    | ApplicationLeft
    | CommitDelayed
    | NotEncrypted
    | OperatorAtWork
    | SinkWarning
    | SplitsNotFound
)


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
        case SplitsNotFound():
            yield f"source {event.operator_id}: {event.problem}"
        case ApplicationEnded():
            yield (
                f"ended Spark application {event.application_id} of generation "
                f"{event.generation}, whose driver is dead"
            )
        case ApplicationLeft():
            yield (
                f"warning: Spark application {event.application_id} of generation "
                f"{event.generation} may still hold cores of {event.master}: {event.reason}"
            )
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


def restoring(event: RestoreProgressed) -> str:
    """Return how much of a checkpoint has been read, in a few words."""
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
