"""One measured figure."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Literal, Self


@dataclass(frozen=True, slots=True)
class Result:
    """``target`` None: measured for comparison, nothing is demanded."""

    name: str
    value: float
    unit: str
    better: Literal["higher", "lower"]
    target: float | None = None
    values: tuple[float, ...] = ()
    """The value of each round, if there were several and ``value`` is their median."""

    @classmethod
    def of_rounds(
        cls,
        name: str,
        values: Iterable[float],
        unit: str,
        better: Literal["higher", "lower"],
        target: float | None = None,
    ) -> Self:
        """Return the median of the rounds, with all of them."""
        rounds = tuple(values)
        return cls(name, median(rounds), unit, better, target, rounds)

    @property
    def met(self) -> bool | None:
        """Whether the value meets the target; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.better == "higher" else self.value <= self.target

    def as_dict(self) -> dict[str, object]:
        """Return the result as JSON-compatible values."""
        return {**asdict(self), "met": self.met}


def median_seconds(action: Callable[[], object], repeats: int) -> float:
    """Return the median duration of ``action`` after one call that does not count."""
    action()
    return statistics.median(_seconds(action) for _ in range(repeats))


def _seconds(action: Callable[[], object]) -> float:
    started = perf_counter()
    action()
    return perf_counter() - started


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
