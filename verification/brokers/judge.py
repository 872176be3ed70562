"""Compares what readers of a topic see with what they should see. One judge for all cases."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Partitions = Mapping[int, Sequence[int]]
"""The numbers of the rows of each partition, in their order."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one case."""

    rows: int = 0
    """Rows that should be there."""
    lost: int = 0
    doubled: int = 0
    foreign: int = 0
    """Rows that were never written."""
    disordered: int = 0
    """Rows that stand behind a later row of their partition."""
    fired: int = 0
    """Faults that struck."""
    problem: str | None = None
    """An error that should not have come, or a refusal that did not come."""

    @property
    def is_exact(self) -> bool:
        """Whether every row is there once, in order, and nothing else happened."""
        wrong = self.lost + self.doubled + self.foreign + self.disordered
        return not wrong and self.problem is None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def judge(
    expected: Iterable[int], found: Partitions, fired: int = 0, problem: str | None = None
) -> Verdict:
    """Compare; each expected number is different, and increases within its partition."""
    right = set(expected)
    seen = Counter(number for rows in found.values() for number in rows)
    return Verdict(
        rows=len(right),
        lost=len(right - seen.keys()),
        doubled=sum(count - 1 for number, count in seen.items() if number in right),
        foreign=sum(count for number, count in seen.items() if number not in right),
        disordered=sum(map(_disordered, found.values())),
        fired=fired,
        problem=problem,
    )


def _disordered(rows: Sequence[int]) -> int:
    newest, behind = -1, 0
    for number in rows:
        behind += number < newest
        newest = max(newest, number)
    return behind
