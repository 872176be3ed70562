"""How many messages of a source were no rows, and what became of them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Self

from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.record import JsonObject

_PROPERTY = "bad_rows"
"""Name of the property of a source's part of a checkpoint; absent if there were none."""


@dataclass(frozen=True, slots=True)
class BadRowTotals:
    """Messages over the whole history of a source, or of all sources of a job."""

    letters: int = 0
    """Handed on to the side output ``letters``."""
    dropped: int = 0
    """Dropped, because the source is to drop bad rows."""
    skipped: int = 0
    """Left out because a person named them."""

    def __add__(self, other: "BadRowTotals") -> "BadRowTotals":
        """Return the totals of both together."""
        return BadRowTotals(
            self.letters + other.letters,
            self.dropped + other.dropped,
            self.skipped + other.skipped,
        )

    def __bool__(self) -> bool:
        """Whether there was any."""
        return bool(self.letters or self.dropped or self.skipped)

    def __str__(self) -> str:
        """Return the numbers that are not 0 as text, for a line of output."""
        numbers = {
            "letters": self.letters,
            "bad rows dropped": self.dropped,
            "bad rows skipped": self.skipped,
        }
        return ", ".join(f"{number:,} {what}" for what, number in numbers.items() if number)

    @classmethod
    def total(cls, parts: "Iterable[BadRowTotals]") -> "BadRowTotals":
        """Return the sum."""
        return sum(parts, start=BadRowTotals())

    @classmethod
    def of_properties(cls, properties: JsonObject) -> Self:
        """Return what a source's part of a checkpoint says."""
        found = properties.get(_PROPERTY, {})
        assert isinstance(found, dict)
        return cls(**{name: int(str(number)) for name, number in found.items()})

    def as_properties(self) -> JsonObject:
        """Return the inverse of ``of_properties``; empty without any bad row."""
        return {_PROPERTY: asdict(self)} if self else {}


NO_BAD_ROWS = BadRowTotals()


def bad_rows_of(manifest: CheckpointManifest) -> dict[str, BadRowTotals]:
    """Return, per source with any, the bad rows up to the checkpoint."""
    found: dict[str, BadRowTotals] = {}
    for entry in manifest.subtasks:
        if totals := BadRowTotals.of_properties(entry.properties):
            operator_id = entry.operator_id
            found[operator_id] = found.get(operator_id, BadRowTotals()) + totals
    return found
