"""The present values of all metrics of a job. Both outputs read them from here, so they agree."""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from laminar_core.metrics.catalogue import DURATION_BOUNDS_S, METRICS, Metric
from laminar_core.metrics.changes import Change, Counted, Labels, Observed, Shown

SERIES_MAX = 1_000
"""Most series of one metric; further ones are left out, or a monitoring system would suffer."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The values that a histogram has taken."""

    counts: tuple[int, ...]
    """Values per bucket, not cumulative; the last bucket has no upper bound."""
    total: float = 0.0
    least: float = 0.0
    greatest: float = 0.0

    @property
    def count(self) -> int:
        """Number of all values."""
        return sum(self.counts)

    def with_value(self, value: float) -> "Distribution":
        """Return the distribution with one more value."""
        counts = list(self.counts)
        counts[bisect_left(DURATION_BOUNDS_S, value)] += 1
        first = self.count == 0
        return Distribution(
            tuple(counts),
            self.total + value,
            value if first else min(self.least, value),
            value if first else max(self.greatest, value),
        )


NO_VALUES = Distribution((0,) * (len(DURATION_BOUNDS_S) + 1))

Series = Mapping[Labels, float | Distribution]


class Board:
    """The values. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._series: dict[Metric, dict[Labels, float | Distribution]] = {m: {} for m in METRICS}

    def apply(self, changes: Iterable[Change]) -> None:
        """Carry the changes out, all at once for readers."""
        with self._lock:
            for change in changes:
                self._apply(change)

    def read(self) -> dict[Metric, Series]:
        """Return a copy of all values; a metric without a series has none."""
        with self._lock:
            return {metric: dict(series) for metric, series in self._series.items()}

    def _apply(self, change: Change) -> None:
        series = self._series[change.metric]
        match change:
            case Counted(_, amount, labels):
                before = series.get(labels, 0.0)
                assert not isinstance(before, Distribution)
                self._set(series, labels, before + amount)
            case Observed(_, value, labels):
                known = series.get(labels, NO_VALUES)
                assert isinstance(known, Distribution)
                self._set(series, labels, known.with_value(value))
            case Shown(_, values):
                series.clear()
                for labels, value in values.items():
                    self._set(series, labels, float(value))

    def _set(
        self,
        series: dict[Labels, float | Distribution],
        labels: Labels,
        value: float | Distribution,
    ) -> None:
        if labels in series or len(series) < SERIES_MAX:
            series[labels] = value
