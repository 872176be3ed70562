"""The output of each sink as a checkpoint describes it: rows, event time, columns and place.

The runtime of sinks writes it into the properties of their subtasks. Only the number of rows and
the event time are restored; older checkpoints have only the rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import cast

import pyarrow as pa

from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.record import JsonObject

ROWS_WRITTEN = "rows_written"
"""Property: rows in all, with those of earlier generations."""
WATERMARK_US = "output_watermark_us"
"""Property: event time that has reached the sink; no later row is older. Absent: none yet."""
IDLE = "output_idle"
"""Property: no row has come for so long that this subtask holds event time back no more."""
ENDED = "output_ended"
"""Property: the input of this subtask has ended."""
COLUMNS = "output_columns"
"""Property of the first subtask: pairs of the name and the Arrow type of each column."""

Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EventTimeReached:
    """Event time of some output: no later row is older than ``watermark_us``; None: unknown.

    ``ended``: no row comes at all any more.
    """

    watermark_us: int | None
    ended: bool = False
    idle: bool = False


@dataclass(frozen=True, slots=True)
class SinkOutput:
    """The output of one sink at the cut, over all subtasks."""

    operator_id: str
    rows: int
    time: EventTimeReached
    columns: Columns = ()
    """Empty: unknown."""
    uri: str | None = None


def columns_of(schema: pa.Schema) -> Columns:
    """Return the columns as they are recorded.

    >>> columns_of(pa.schema({"merchant": pa.string()}))
    (('merchant', 'string'),)
    """
    return tuple((field.name, str(field.type)) for field in schema)


def outputs_of(manifest: CheckpointManifest) -> tuple[SinkOutput, ...]:
    """Return the output of each sink, in the order of the manifest."""
    parts: dict[str, list[JsonObject]] = {}
    for entry in manifest.subtasks:
        if ROWS_WRITTEN in entry.properties and entry.operator_id not in manifest.carried:
            parts.setdefault(entry.operator_id, []).append(entry.properties)
    return tuple(
        SinkOutput(
            sink,
            sum(_whole(each.get(ROWS_WRITTEN)) or 0 for each in found),
            combined(map(_time_of, found)),
            next((columns for each in found if (columns := _columns_in(each))), ()),
            uri_of(manifest.operators_description.get(sink, {})),
        )
        for sink, found in parts.items()
    )


def combined(parts: Iterable[EventTimeReached]) -> EventTimeReached:
    """Return the event time of all parts together: the slowest that is not idle decides.

    >>> combined([EventTimeReached(7), EventTimeReached(3, idle=True)]).watermark_us
    7
    """
    there = list(parts)
    open_ = [part for part in there if not part.ended]
    if not open_:
        known = [part.watermark_us for part in there if part.watermark_us is not None]
        return EventTimeReached(max(known, default=None), ended=bool(there))
    awake = [part for part in open_ if not part.idle] or open_
    times = [part.watermark_us for part in awake]
    lowest = None if None in times else min(cast("list[int]", times))
    return EventTimeReached(lowest, idle=all(part.idle for part in open_))


def uri_of(description: Mapping[str, object]) -> str | None:
    """Return where a sink writes, by its description; None if it does not say.

    >>> uri_of({"connector": "parquet", "path": "/data/out"})
    'file:///data/out'
    >>> uri_of({"connector": "kafka", "topic": "totals"})
    'kafka:///totals'
    """
    match description:
        case {"uri": str(uri)}:
            return uri
        case {"path": str(path)} if PurePath(path).is_absolute():
            return PurePath(path).as_uri()
        case {"connector": "kafka", "topic": str(topic)}:
            return f"kafka:///{topic}"
        case _:
            return None


def _time_of(properties: JsonObject) -> EventTimeReached:
    return EventTimeReached(
        _whole(properties.get(WATERMARK_US)),
        ended=properties.get(ENDED) is True,
        idle=properties.get(IDLE) is True,
    )


def _columns_in(properties: JsonObject) -> Columns:
    listed = properties.get(COLUMNS)
    found: list[tuple[str, str]] = []
    for each in listed if isinstance(listed, list) else ():
        match each:
            case [str(name), str(kind)]:
                found.append((name, kind))
            case _:
                return ()
    return tuple(found)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
