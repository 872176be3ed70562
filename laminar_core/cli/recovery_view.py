"""The report of a recovery as text."""

from collections.abc import Iterable, Iterator

from laminar_core.cli.views import print_table, size_text, wall_time
from laminar_core.driver.recovery.report import CheckpointReport, RecoveryReport, SinkReport
from laminar_core.host.terminal import say

_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


def print_recovery(report: RecoveryReport, owner: str | None) -> None:
    """Print the verdict, then continued state, withdrawn output, and all problems."""
    for line in _lines(report, owner):
        say(line)
    if report.operators:
        say()
        print_table(
            ("operator", "rows", "size", "state"),
            (
                (o.operator_id, f"{o.row_count:,}", size_text(o.size_bytes), o.problem or o.status)
                for o in report.operators
            ),
        )
    if report.sources:
        say()
        print_table(("source", "splits", "rows", "left", "state"), _sources(report))
    if report.sinks:
        say()
        print_table(("sink", "to commit", "visible up to", "what becomes of it"), _sinks(report))


def _lines(report: RecoveryReport, owner: str | None) -> Iterator[str]:
    checkpoint = report.checkpoint
    match report.verdict:
        case "restore" if checkpoint is not None:
            yield f"job {report.job} would continue from {_described(checkpoint)}"
        case "fresh":
            yield f"job {report.job} would start from nothing"
        case _:
            yield f"job {report.job} would be refused:"
            yield from (f"  {problem}" for problem in report.problems)
    if checkpoint is not None and checkpoint.workers != report.workers:
        yield f"its state is divided among {report.workers} workers, {checkpoint.workers} before"
    if report.reset is not None:
        yield from report.reset.lines()
    if report.rows_to_replay:
        yield f"{report.rows_to_replay:,} rows that the last run had read are read again"
    if report.redriven_ids:
        yield f"output of {_listed(report.redriven_ids)} would be committed (again) first"
    if report.committed_beyond_ids:
        repeated = any(sink.is_repeated for sink in report.sinks)
        becomes = "would be shown twice" if repeated else "would be withdrawn"
        yield f"output of {_listed(report.committed_beyond_ids)} {becomes}"
    yield from (f"changed: {line}" for line in report.evolved)
    yield from (f"accepted: {line}" for line in report.accepted)
    for rejected in report.rejected:
        yield f"not restored: checkpoint {rejected.checkpoint_id}, {rejected.reason}"
    if owner is not None:
        yield owner


def _described(checkpoint: CheckpointReport) -> str:
    completed = wall_time(checkpoint.completed_at_ms)
    inflight = f", {checkpoint.inflight_rows:,} rows in flight" if checkpoint.inflight_rows else ""
    return (
        f"checkpoint {checkpoint.checkpoint_id} of generation {checkpoint.generation} "
        f"({checkpoint.kind}, {checkpoint.mode}), completed {completed}, "
        f"{age(checkpoint.age_ms)} ago, {size_text(checkpoint.size_bytes)}{inflight}"
    )


def age(duration_ms: int) -> str:
    """Return a duration in its largest unit, rounded down.

    >>> age(7_500_000)
    '2 h'
    """
    units = ((_DAY_MS, "d"), (_HOUR_MS, "h"), (_MINUTE_MS, "min"), (_SECOND_MS, "s"))
    for unit_ms, name in units:
        if duration_ms >= unit_ms:
            return f"{duration_ms // unit_ms} {name}"
    return f"{duration_ms} ms"


def _sources(report: RecoveryReport) -> Iterable[tuple[str, ...]]:
    for source in report.sources:
        left = "without end" if source.rows_left is None else f"{source.rows_left:,}"
        yield (
            source.operator_id,
            f"{source.splits:,}",
            f"{source.rows_read:,}",
            left,
            source.problem or source.status,
        )


def _sinks(report: RecoveryReport) -> Iterable[tuple[str, ...]]:
    for sink in report.sinks:
        yield (
            sink.operator_id,
            f"{sink.to_commit:,}",
            "nothing" if sink.visible_id is None else str(sink.visible_id),
            sink.problem or "; ".join(_becomes(sink)),
        )


def _becomes(sink: SinkReport) -> Iterable[str]:
    if sink.visible_id is not None:
        becomes = "what came after it is withdrawn" if sink.is_withdrawn else "it stays"
        yield "it stays and is repeated" if sink.is_repeated else becomes
    if sink.expires_at_ms is not None:
        yield f"can be committed until {wall_time(sink.expires_at_ms)}"


def _listed(ids: tuple[int, ...]) -> str:
    return f"checkpoint {ids[0]}" if len(ids) == 1 else f"checkpoints {', '.join(map(str, ids))}"
