"""Checkpoints as text."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import click
from pydantic import ByteSize
from pydantic_core import to_json

from laminar_core.host.terminal import say
from laminar_core.records.channel_entries import AlignmentEntry, InflightEntry
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.store.summaries import CheckpointSummary
from laminar_core.store.verification import VerifyReport

ROWS_SHOWN = 20
"""Rows of a file or a table that are printed unless more are asked for."""

VALUE_LENGTH_MAX = 72
"""Longest text of one property; ``--json`` prints it whole."""

_START = datetime(1970, 1, 1, tzinfo=UTC)


def print_summaries(
    summaries: Iterable[CheckpointSummary], remarks: Mapping[int, Sequence[str]] | None = None
) -> None:
    """Print one line per checkpoint; ``remarks`` by id are appended."""
    more = remarks or {}
    print_table(
        (
            *("id", "outcome", "kind", "mode", "triggered"),
            *("ms", "size", "written", "in-flight", "generation", "remarks"),
        ),
        (_row(summary, more.get(summary.checkpoint_id, ())) for summary in summaries),
    )


def print_manifest(manifest: CheckpointManifest) -> None:
    """Print the facts of a checkpoint: its time, its size, its event time, and its parts."""
    parent_id = manifest.parent_checkpoint_id
    say(
        f"checkpoint {manifest.checkpoint_id} of {manifest.job}: {manifest.kind.value}, "
        f"{manifest.mode}, generation {manifest.generation}, parent {parent_id or 'none'}"
    )
    say(
        f"triggered {wall_time(manifest.triggered_at_ms)}, complete after "
        f"{manifest.duration_ms:.0f} ms, {size_text(manifest.size_bytes)} "
        f"({size_text(manifest.written_bytes)} new), written by {manifest.code_version}"
    )
    for vertex_id, time in _event_times(manifest):
        say(f"event time of {vertex_id}: {time}")
    for line in _slowest_channels(manifest):
        say(line)
    say()
    print_table(
        ("operator", "subtask", "files", "rows", "size", "written", "sync ms", "async ms"),
        (_part(entry) for entry in manifest.subtasks),
    )
    if manifest.inflight_data:
        say()
        print_table(
            ("operator", "subtask", "queue in flight", "from", "to", "events", "rows", "size"),
            (_queue(entry) for entry in manifest.inflight_data),
        )
    if properties := list(_properties(manifest.subtasks)):
        say()
        print_table(("operator", "property", "value, by subtask if they differ"), properties)


def print_report(report: VerifyReport) -> None:
    """Print whether a checkpoint is intact, and which files are not."""
    size_bytes = sum(part.size_bytes for part in report.parts)
    verdict = "damaged" if report.problem else "intact"
    files = "1 file" if len(report.parts) == 1 else f"{len(report.parts)} files"
    say(f"checkpoint {report.checkpoint_id} is {verdict}: {files}, {size_text(size_bytes)}")
    for part in report.parts:
        if part.problem:
            say(f"  {part.problem}")


def _row(summary: CheckpointSummary, more: Sequence[str]) -> tuple[str, ...]:
    remarks = [
        *more,
        "deleted by retention" if summary.deleted else "",
        "output withdrawn" if summary.withdrawn else "committed" if summary.committed else "",
        "orphan" if summary.orphan else "",
        "damaged" if summary.damaged and not summary.deleted else "",
        summary.problem or summary.reason,
    ]
    return (
        str(summary.checkpoint_id),
        "unreadable" if summary.problem else summary.outcome,
        summary.kind or "",
        summary.mode or "",
        wall_time(summary.triggered_at_ms),
        "" if summary.duration_ms is None else f"{summary.duration_ms:.0f}",
        "" if summary.size_bytes is None else size_text(summary.size_bytes),
        "" if summary.written_bytes is None else size_text(summary.written_bytes),
        "" if summary.inflight_bytes is None else size_text(summary.inflight_bytes),
        "" if summary.generation is None else str(summary.generation),
        ", ".join(remark for remark in remarks if remark),
    )


def _part(entry: SubtaskEntry) -> tuple[str, ...]:
    return (
        entry.operator_id,
        str(entry.subtask_index),
        str(len(entry.segments)),
        f"{entry.row_count:,}",
        size_text(entry.size_bytes),
        size_text(entry.written_bytes),
        f"{entry.sync_ms:.2f}",
        f"{entry.async_ms:.1f}",
    )


def _queue(entry: InflightEntry) -> tuple[str, ...]:
    edge = entry.edge
    return (
        entry.operator_id,
        str(entry.subtask_index),
        f"{entry.direction} {entry.input_id}",
        f"{edge.upstream} {entry.sender}{' (fed back)' if edge.feedback else ''}",
        f"{edge.downstream} {entry.receiver}",
        f"{entry.event_count:,}",
        f"{entry.row_count:,}",
        size_text(entry.size_bytes),
    )


def _event_times(manifest: CheckpointManifest) -> Iterator[tuple[str, str]]:
    """Per vertex that has inputs, how far the slowest of its subtasks is."""
    found: dict[str, list[int | None]] = {}
    for entry in manifest.alignment:
        if entry.channels:
            found.setdefault(entry.vertex_id, []).append(entry.watermark_us)
    for vertex_id, times_us in found.items():
        known = [time_us for time_us in times_us if time_us is not None]
        yield vertex_id, event_time(min(known)) if len(known) == len(times_us) else "not yet known"


def _slowest_channels(manifest: CheckpointManifest) -> Iterator[str]:
    """Per vertex, the channel that its slowest subtask waited for longest."""
    slowest: dict[str, AlignmentEntry] = {}
    for entry in manifest.alignment:
        before = slowest.get(entry.vertex_id)
        if entry.slowest_channels and (before is None or entry.alignment_ms > before.alignment_ms):
            slowest[entry.vertex_id] = entry
    for vertex_id, entry in slowest.items():
        channel = entry.slowest_channels[0]
        when = "was overtaken"
        if channel.barrier_ms is not None:
            when = f"brought its barrier {channel.barrier_ms:.0f} ms after the first"
        yield (
            f"alignment of {vertex_id} {entry.subtask_index}: {entry.alignment_ms:.0f} ms, "
            f"{channel.upstream} {channel.sender} {when}"
        )


def event_time(time_us: int) -> str:
    """Return microseconds of event time as a date, or words for times outside any calendar."""
    try:
        return (_START + timedelta(microseconds=time_us)).strftime("%Y-%m-%d %H:%M:%S.%f")
    except OverflowError:
        return "the end of the input" if time_us > 0 else "before all time"


def _properties(entries: Sequence[SubtaskEntry]) -> Iterator[tuple[str, str, str]]:
    """(operator, name, value), the operator's name on its first line only."""
    values: dict[str, dict[str, list[str]]] = {}
    for entry in entries:
        for name, value in entry.properties.items():
            known = values.setdefault(entry.operator_id, {}).setdefault(name, [])
            known.append(json.dumps(value, ensure_ascii=False))
    for operator_id, properties in values.items():
        shown = operator_id
        for name, texts in properties.items():
            together = texts[0] if len(set(texts)) == 1 else " | ".join(texts)
            yield shown, name, _shortened(together)
            shown = ""


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 1]}…"


def size_text(size_bytes: int) -> str:
    """Return a size as people read it; it can be given to an option as it is.

    >>> size_text(117), size_text(3 << 20)
    ('117B', '3.0MiB')
    """
    return ByteSize(size_bytes).human_readable()


def wall_time(at_ms: int | None) -> str:
    """Return milliseconds since 1970 as a date in UTC; empty for None."""
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """See ``tables.print_table``."""
    from laminar_core.cli import tables  # noqa: PLC0415 - JSON needs no Rich

    tables.print_table(headings, rows)


def print_json(value: object) -> None:
    """Print a value of data classes, dictionaries and lists; much faster than ``json``."""
    click.echo(to_json(value, indent=1, ensure_ascii=True))
