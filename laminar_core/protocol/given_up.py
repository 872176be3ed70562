"""Count the cleanup of checkpoints that were given up; too much of it delays the next one.

A declined checkpoint leaves work behind: workers finish or skip queued uploads, one part after the
other, and the driver deletes files. If checkpoints were given up faster than that is done, the work
would grow without bound, and the checkpoint that could succeed would wait behind all of it. So no
checkpoint starts while more given-up ones are left than may be under way (``coordinator``, I5).

Cleanup that is stuck must not prevent all attempts. A failed attempt is counted, and enough of them
end the generation; an attempt that never starts is not counted. So stuck cleanup delays checkpoints
only as long as one checkpoint may take, and is then ignored until it makes progress.
"""

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Left:
    """Given-up checkpoints at one place: a worker, or the driver."""

    count: int = 0
    moved_ms: int = 0
    """When the count last fell, or when it first became positive."""


class GivenUpWork:
    """At all places. Pure; one thread calls it, with one clock."""

    def __init__(self, patience_ms: int) -> None:
        self._patience_ms = patience_ms
        self._places: dict[Hashable, _Left] = {}

    def report(self, place: Hashable, count: int, now_ms: int) -> None:
        """Record how many given-up checkpoints still have cleanup left at ``place``."""
        left = self._places.setdefault(place, _Left())
        if count < left.count or not left.count:
            left.moved_ms = now_ms
        left.count = count

    def holding_up(self, now_ms: int) -> int:
        """Return the highest count of any place that still makes progress."""
        moving = (
            left.count
            for left in self._places.values()
            if now_ms - left.moved_ms < self._patience_ms
        )
        return max(moving, default=0)
