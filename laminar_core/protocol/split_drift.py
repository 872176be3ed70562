"""Decide which splits are too far ahead in event time, and are read no further for now.

The *slowest* split is the one with the least event time of all that can be read. Splits that are
idle, blocked or done do not count, and neither does one without a row: their rows may not come for
long. So the slowest split of a job is never held, and a held split waits for it alone.
"""

from collections.abc import Hashable, Iterable, Mapping

Reader = tuple[Hashable, Hashable]
"""A source and a worker."""


def held_splits(
    newest_us: Mapping[int, int], slowest_us: Iterable[int | None], max_drift_us: int
) -> frozenset[int]:
    """Return the splits that are more than ``max_drift_us`` ahead of the slowest.

    ``slowest_us``: event times of the slowest split here and elsewhere; None if there is none.
    """
    known = [time_us for time_us in slowest_us if time_us is not None]
    if not known:
        return frozenset()
    limit_us = min(known) + max_drift_us
    return frozenset(split_id for split_id, time_us in newest_us.items() if time_us > limit_us)


class SlowestReaders:
    """Combines what the readers of a job report about their slowest splits."""

    def __init__(self) -> None:
        self._slowest_us: dict[Reader, int | None] = {}

    def report(self, source: Hashable, worker: Hashable, slowest_us: int | None) -> None:
        """Take the event time of a reader's slowest split; None if it has none."""
        self._slowest_us[source, worker] = slowest_us

    @property
    def target_us(self) -> int | None:
        """The event time of the slowest split of all readers; None if fewer than two have one.

        A reader that is alone knows its own splits better than reports do.
        """
        known = [time_us for time_us in self._slowest_us.values() if time_us is not None]
        return min(known) if len(known) > 1 else None
