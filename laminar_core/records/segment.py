"""A segment: some rows of one subtask's state in a file that never changes.

The state of a subtask is all its segments together, put together the way its operator merges rows
of one key. A checkpoint of few changes names the segments of the one before it and adds a small
one; a full one consists of new segments only.
"""

from collections.abc import Iterable

from pydantic import Field

from laminar_core.records.record import Count, FileRef, TimeUs


class SegmentRef(FileRef):
    """A segment, and what is known of it without reading it.

    ``newest_window_us``: no row belongs to a window that starts later; a segment of which every
    window has fired need not be read. None: rows of no window.
    """

    row_count: Count
    key_groups: tuple[Count, Count] | None = Field(
        default=None, description="Half-open; None: those of the subtask."
    )
    newest_window_us: TimeUs | None = Field(default=None, description="Microseconds of event time.")


def total_bytes(segments: Iterable[SegmentRef]) -> int:
    """Bytes of all segments together."""
    return sum(segment.size_bytes for segment in segments)


def total_rows(segments: Iterable[SegmentRef]) -> int:
    """Rows of all segments together; of one key there may be several."""
    return sum(segment.row_count for segment in segments)
