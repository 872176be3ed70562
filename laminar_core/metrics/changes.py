"""Changes of metrics that follow from an event."""

from collections.abc import Mapping
from dataclasses import dataclass

from laminar_core.metrics.catalogue import Metric

Labels = tuple[str, ...]
"""The values of the labels of a metric, in their order."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter grows."""

    metric: Metric
    amount: float
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """A histogram takes a value."""

    metric: Metric
    value: float
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """A gauge has these values and no others: a series that is missing here ends."""

    metric: Metric
    values: Mapping[Labels, float]


Change = Counted | Observed | Shown
