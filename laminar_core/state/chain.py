"""Which segments make up a state that is written as what changed, and when they are put together.

A *chain* is the segments of one operator subtask, oldest first. Every checkpoint of changes adds
one; without an end to that a restore would read all that was ever written. So a segment of which
every window has fired is dropped, and neighbours are merged into one, newest and smallest first,
as in a log-structured merge tree. The longer chains may be, the less is rewritten: 14 times what
came, at most, for the default over 4,096 checkpoints that have no key in common.
"""

from collections.abc import Sequence

from laminar_core.state.segment import SegmentRef

SEGMENTS_MAX = 8
"""Longer chains are compacted."""


def open_segments(
    chain: Sequence[SegmentRef], finished_window_us: int | None
) -> tuple[SegmentRef, ...]:
    """Leave out the segments of which every window starts at ``finished_window_us`` or before."""
    if finished_window_us is None:
        return tuple(chain)
    return tuple(
        segment
        for segment in chain
        if segment.newest_window_us is None or segment.newest_window_us > finished_window_us
    )


def plan_compaction(sizes_bytes: Sequence[int], segments_max: int) -> range | None:
    """Choose the segments to be merged, a run at the end of the chain; None if it is short enough.

    A segment that is as large as all after it together is left alone, unless it is the last but
    one.

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
