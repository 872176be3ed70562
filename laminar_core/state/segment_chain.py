"""Chains of segments for incremental checkpoints, and when their segments are merged.

A *chain* is the segments of one table of an operator subtask, oldest first. Every incremental
checkpoint adds a *run*: one segment, or several with disjoint key groups if the run is large.
Without a limit, a restore would read all that was ever written. So a segment whose rows have all
expired is dropped, and neighbouring runs are merged into one, newest and smallest first, as in a
log-structured merge tree. The longer chains may be, the less is rewritten: at most 14 times the new
data for the default over 4,096 checkpoints without a common key.
"""

from collections.abc import Sequence
from itertools import pairwise

from laminar_core.records.segment import SegmentRef, total_bytes

SEGMENTS_MAX = 8
"""Chains of more runs are compacted."""

RUN_SEGMENT_BYTES_MIN = 1024 * 1024
"""A run continues in a new segment only after this size: small segments are better merged."""

MERGED_BYTES_MAX = 16 * 1024 * 1024
"""Limit for all segments that are merged together; larger sets are merged by ranges of key groups.
"""


def open_segments(chain: Sequence[SegmentRef], expired_us: int | None) -> tuple[SegmentRef, ...]:
    """Return the chain without the segments whose rows all expire at ``expired_us`` or before."""
    if expired_us is None:
        return tuple(chain)
    return tuple(
        segment
        for segment in chain
        if segment.newest_window_us is None or segment.newest_window_us > expired_us
    )


def runs_of(chain: Sequence[SegmentRef]) -> list[range]:
    """Group the segments into runs; returns their positions."""
    starts = [
        position
        for position, segment in enumerate(chain)
        if not position or not _goes_on(chain[position - 1], segment)
    ]
    return [range(*bounds) for bounds in pairwise([*starts, len(chain)])]


def _goes_on(before: SegmentRef, segment: SegmentRef) -> bool:
    if before.key_groups is None or segment.key_groups is None:
        return False
    apart = before.key_groups[1] <= segment.key_groups[0]
    return apart and before.size_bytes >= RUN_SEGMENT_BYTES_MIN


def merging_ranges(segments: Sequence[SegmentRef]) -> list[range] | None:
    """Cut key groups into ranges that can be merged one after the other; None: all at once."""
    parts = -(-total_bytes(segments) // MERGED_BYTES_MAX)
    owned = [segment.key_groups for segment in segments if segment.key_groups is not None]
    if parts <= 1 or len(owned) < len(segments):
        return None
    first, stop = min(start for start, _ in owned), max(end for _, end in owned)
    bounds = sorted({first + (stop - first) * part // parts for part in range(parts + 1)})
    return [range(*pair) for pair in pairwise(bounds)]


def plan_compaction(sizes_bytes: Sequence[int], segments_max: int) -> range | None:
    """Choose the runs to be merged, some at the end of the chain; None if it is short enough.

    One that is as large as all after it together is left alone, unless it is the last but one.

    >>> plan_compaction([100, 1, 1, 1, 1], 4)
    range(1, 5)
    """
    if len(sizes_bytes) <= segments_max:
        return None
    start, rest = 0, sum(sizes_bytes)
    while start < len(sizes_bytes) - 2:
        rest -= sizes_bytes[start]
        if sizes_bytes[start] < rest:
            break
        start += 1
    return range(start, len(sizes_bytes))


def replaced(
    chain: Sequence[SegmentRef], merged: Sequence[SegmentRef], by: Sequence[SegmentRef]
) -> tuple[SegmentRef, ...]:
    """Put ``by`` where the segments of ``merged`` are; they are neighbours.

    Some of them may have been dropped meanwhile. If all of them were, so is ``by``.
    """
    paths = {segment.path for segment in merged}
    there = [n for n, segment in enumerate(chain) if segment.path in paths]
    if not there:
        return tuple(chain)
    return (*chain[: there[0]], *by, *chain[there[-1] + 1 :])
