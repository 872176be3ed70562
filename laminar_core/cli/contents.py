"""The contents of a checkpoint's files: for display, or one JSON object per row and mark."""

# Records of JSON have any shape.
# pyright: reportUnknownVariableType=false

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import cast

import click
import pyarrow as pa
from pydantic_core import to_json

from laminar_core.cli.views import event_time, size_text
from laminar_core.codec.inflight import InflightElement
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.terminal import say
from laminar_core.protocol.types import Batch, Idle, Watermark
from laminar_core.records.channel_entries import InflightEntry
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.segment import by_table
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.state_reading import read_rows

ROWS_AT_ONCE = 1_024
"""Rows become Python objects only as far as they are printed."""

BYTES_SHOWN = 32
"""Length of the longest value of bytes that is printed; sketches are longer. ``--json`` has all."""

Line = dict[str, object]


@dataclass(frozen=True, slots=True)
class Selection:
    """The files to read; None stands for all."""

    operator_id: str | None = None
    subtask_index: int | None = None
    input_id: int | None = None

    def check(self, manifest: CheckpointManifest) -> None:
        """Refuse a part that the checkpoint cannot have.

        Raises:
            ConfigurationError: no such operator, or no such subtask of it.
        """
        known = manifest.parallelism
        place = f"checkpoint {manifest.checkpoint_id} of {manifest.job}"
        if self.operator_id is not None and self.operator_id not in known:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{place} has no operator {self.operator_id}; its operators: {', '.join(known)}",
            )
        count = known[self.operator_id] if self.operator_id else max(known.values(), default=0)
        if self.subtask_index is not None and self.subtask_index >= count:
            owner = self.operator_id or "any operator"
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{place} has no subtask {self.subtask_index} of {owner}: they count from 0 to "
                f"{count - 1}",
            )

    def takes(self, entry: SubtaskEntry | InflightEntry) -> bool:
        """Return whether the file is selected."""
        return (
            self.operator_id in (None, entry.operator_id)
            and self.subtask_index in (None, entry.subtask_index)
            and self.input_id in (None, getattr(entry, "input_id", None))
        )


@dataclass(frozen=True, slots=True)
class Content:
    """One file: a title, its place as fields, and its lines."""

    title: str
    place: Line
    line_count: int
    lines: Iterator[Line]


def state_contents(
    store: CheckpointStore, manifest: CheckpointManifest, selection: Selection
) -> Iterator[Content]:
    """Yield the rows of the operators' state, subtask by subtask; files are read on demand."""
    for entry in filter(selection.takes, manifest.subtasks):
        tables = by_table(entry.segments) or {"": ()}
        for name, segments in tables.items():
            rows = read_rows(store.parts, manifest, entry, name)
            yield _state_content(entry, name, len(segments), rows)


def _state_content(
    entry: SubtaskEntry, name: str, file_count: int, rows: pa.Table | None
) -> Content:
    place: Line = {"operator_id": entry.operator_id, "subtask_index": entry.subtask_index}
    if name:
        place["table"] = name
    which = f" table {name}" if name else ""
    count = 0 if rows is None else rows.num_rows
    files = f" in {file_count} files" if file_count > 1 else ""
    title = f"{entry.operator_id} subtask {entry.subtask_index}{which}: {count:,} rows{files}"
    return Content(title, place, count, iter(()) if rows is None else _rows(rows))


def inflight_contents(
    store: CheckpointStore, manifest: CheckpointManifest, selection: Selection
) -> Iterator[Content]:
    """Yield the elements in flight, queue by queue; files are read on demand."""
    files = store.parts.inflight(manifest.inflight_files)
    for entry in filter(selection.takes, manifest.inflight_data):
        elements = files.read(entry)
        marks = sum(not isinstance(element, Batch) for element in elements)
        place: Line = {
            "operator_id": entry.operator_id,
            "subtask_index": entry.subtask_index,
            "direction": entry.direction,
            "input_id": entry.input_id,
            **entry.edge.model_dump(),
            "sender": entry.sender,
            "receiver": entry.receiver,
        }
        yield Content(_inflight_title(entry), place, entry.row_count + marks, _lines(elements))


def print_contents(contents: Iterable[Content], limit: int) -> None:
    """Print a heading per file, and below it the first ``limit`` lines."""
    for content in contents:
        say(content.title)
        for line in islice(content.lines, limit):
            say(f"  {_text(line)}")
        if (more := content.line_count - limit) > 0:
            say(f"  … and {more:,} more; --limit or --json prints them")


def print_contents_as_json(contents: Iterable[Content], limit: int | None) -> None:
    """Print one object per row, watermark or idle mark, with its place."""
    for content in contents:
        for line in islice(content.lines, limit):
            # Times in ISO 8601, bytes in base 64; infinity is no number in JSON.
            click.echo(
                to_json(
                    {**content.place, **line},
                    inf_nan_mode="strings",
                    bytes_mode="base64",
                    serialize_unknown=True,
                )
            )


def _inflight_title(entry: InflightEntry) -> str:
    edge = entry.edge
    loop = ", fed back" if edge.feedback else ""
    return (
        f"{entry.operator_id} subtask {entry.subtask_index}, {entry.direction} {entry.input_id} "
        f"(from {edge.upstream} {entry.sender} to {edge.downstream} {entry.receiver}, its input "
        f"edge {edge.input_index}{loop}): {entry.event_count:,} events, {entry.row_count:,} rows"
    )


def _lines(elements: Iterable[InflightElement]) -> Iterator[Line]:
    for position, element in enumerate(elements):
        match element:
            case Batch(batch):
                rows = _rows(pa.Table.from_batches([batch]))
                yield from ({"position": position, **row} for row in rows)
            case Watermark(time_us):
                yield {"position": position, "element": "watermark", "watermark_us": time_us}
            case Idle():
                yield {"position": position, "element": "idle"}


def _rows(table: pa.Table) -> Iterator[Line]:
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield {"element": "row", "row": row}


def value_text(value: object) -> str:
    """Return a value as people read it; of a sketch only the size, which says how full it is."""
    if isinstance(value, bytes) and len(value) > BYTES_SHOWN:
        return f"<{size_text(len(value))}>"
    return str(value)


def _text(line: Line) -> str:
    match line:
        case {"row": dict(row)}:
            return ", ".join(
                f"{name}={value_text(value)}" for name, value in cast("Line", row).items()
            )
        case {"watermark_us": int(time_us)}:
            return f"watermark {event_time(time_us)}"
        case _:
            return str(line["element"])
