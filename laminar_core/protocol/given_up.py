"""What is left to do for checkpoints that were given up, and how long that holds up the next one.

A checkpoint that is declined leaves work behind: workers finish and skip what is queued, one part
after the other, and the driver deletes files. If checkpoints are given up faster than that is done,
it grows without a bound, and the one that could succeed waits behind all of it. So nothing starts
while more of them are left than checkpoints may be under way (``coordinator``, I5).

Work that stands still must not end all attempts: an attempt that fails is counted, and at some
point ends the generation; one that never starts is not. So work without progress is waited for as
long as a checkpoint may take, and is then left out until some of it is done.
"""

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Left:
    """At one place."""

    count: int = 0
    moved_ms: int = 0
    """When some of it was done, or when it came to be."""


class GivenUpWork:
    """At all places. Pure; one thread calls it, with one clock."""

    def __init__(self, patience_ms: int) -> None:
        self._patience_ms = patience_ms
        self._places: dict[Hashable, _Left] = {}

    def report(self, place: Hashable, count: int, now_ms: int) -> None:
        """At ``place`` so many given-up checkpoints are not over."""
        left = self._places.setdefault(place, _Left())
        if count < left.count or not left.count:
            left.moved_ms = now_ms
        left.count = count

    def holding_up(self, now_ms: int) -> int:
        """At the place that has most, without those where nothing moves."""
        moving = (
            left.count
            for left in self._places.values()
            if now_ms - left.moved_ms < self._patience_ms
        )
        return max(moving, default=0)
