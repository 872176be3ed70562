"""Segments: immutable files with some rows of one subtask's state.

The state of a subtask is the union of its segments, with rows of one key merged as its operator
does it. A checkpoint with few changes names the segments of its predecessor and adds a small one; a
full one consists of new segments only.
"""

from collections.abc import Iterable

from pydantic import Field

from laminar_core.records.record import Count, FileRef, TimeUs


class SegmentRef(FileRef):
    """A reference to a segment, with facts for readers that avoid reading it.

    ``newest_window_us``: no row belongs to a window that starts later; a segment whose windows have
    all fired need not be read. None: rows belong to no window.
    """

    row_count: Count
    key_groups: tuple[Count, Count] | None = Field(
        default=None, description="Half-open; None: those of the subtask."
    )
    newest_window_us: TimeUs | None = Field(default=None, description="Microseconds of event time.")


def total_bytes(segments: Iterable[SegmentRef]) -> int:
    """Return the bytes of all segments together."""
    return sum(segment.size_bytes for segment in segments)


def total_rows(segments: Iterable[SegmentRef]) -> int:
    """Return the rows of all segments together; one key may have several."""
    return sum(segment.row_count for segment in segments)
