"""Segments: immutable files with some rows of one subtask's state.

The state of a subtask is one table, or several with different columns. A table is the union of its
segments, with rows of one key merged as its operator does it. A checkpoint with few changes names
the segments of its predecessor and adds a small one; a full one consists of new segments only.
"""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from laminar_core.records.record import Count, FileRef, TimeUs

TableName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,100}$")]
"""The name of a table of an operator's state; empty if it has one table."""


class SegmentRef(FileRef):
    """A reference to a segment, with facts for readers that avoid reading it.

    ``newest_window_us``: no row expires later; a segment whose rows have all expired need not be
    read. Rows of a window expire by its start, and others by ``_expires``, see ``state.expiry``.
    None: they stay, or some of them do.
    """

    row_count: Count
    key_groups: tuple[Count, Count] | None = Field(
        default=None, description="Half-open; None: those of the subtask."
    )
    newest_window_us: TimeUs | None = Field(default=None, description="Microseconds of event time.")
    table: TableName = Field(
        default="",
        exclude_if=lambda name: not name,  # Written as before by operators with one table.
        description="Which of the operator's tables; empty: its only one.",
    )


def by_table(segments: Iterable[SegmentRef]) -> dict[str, tuple[SegmentRef, ...]]:
    """Return the segments of each table, in their order; tables by name."""
    found: dict[str, list[SegmentRef]] = {}
    for segment in segments:
        found.setdefault(segment.table, []).append(segment)
    return {name: tuple(found[name]) for name in sorted(found)}


def total_bytes(segments: Iterable[SegmentRef]) -> int:
    """Return the bytes of all segments together."""
    return sum(segment.size_bytes for segment in segments)


def total_rows(segments: Iterable[SegmentRef]) -> int:
    """Return the rows of all segments together; one key may have several."""
    return sum(segment.row_count for segment in segments)
