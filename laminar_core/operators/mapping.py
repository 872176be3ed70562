"""What of a checkpoint's state fits what runs now: a pure comparison by id.

State and offsets belong together. State that does not fit cannot be left out while sources go on
behind the rows that made it: that would lose these rows in silence (ERRATA 1.1). So there are two
ways: refuse, or, if the user asks for it, drop *all* state and read all sources from their
beginning. This module says what fits; it drops nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from laminar_core.operators.base import JsonObject
from laminar_core.records.manifest import fingerprint_of


@dataclass(frozen=True, slots=True)
class MappingReport:
    """By id: what maps to state of the checkpoint, and what does not."""

    mapped: tuple[str, ...] = ()
    """Defined as they were."""
    changed: tuple[tuple[str, str], ...] = ()
    """With the difference, in words."""
    dropped: tuple[str, ...] = ()
    """They have state, and nothing runs now that would take it."""
    new: tuple[str, ...] = ()
    """The checkpoint knows nothing of them."""

    @property
    def fits(self) -> bool:
        """Whether all of the state can be continued, and nothing else needs any."""
        return not (self.changed or self.dropped or self.new)

    @property
    def unmapped(self) -> tuple[str, ...]:
        """Everything that does not map."""
        return (*(name for name, _ in self.changed), *self.dropped, *self.new)

    def lines(self) -> list[str]:
        """What there is to say, one line each."""
        return [
            *(f"{name}: fits" for name in self.mapped),
            *(f"{name}: changed, {difference}" for name, difference in self.changed),
            *(f"{name}: has state, and is gone" for name in self.dropped),
            *(f"{name}: new, the checkpoint knows nothing of it" for name in self.new),
        ]

    def problems(self) -> str:
        """What does not fit, in one line."""
        return "; ".join(self.lines()[len(self.mapped) :])


def mapping_report(
    before: Mapping[str, JsonObject], now: Mapping[str, JsonObject], kept: frozenset[str]
) -> MappingReport:
    """Compare definitions. ``kept``: the ids that have state; the others may change or go."""
    both = sorted(before.keys() & now.keys())
    differs = {name for name in both if fingerprint_of(before[name]) != fingerprint_of(now[name])}
    return MappingReport(
        mapped=tuple(name for name in both if name not in differs or name not in kept),
        changed=tuple(
            (name, difference(before[name], now[name]))
            for name in both
            if name in differs and name in kept
        ),
        dropped=tuple(sorted((before.keys() & kept) - now.keys())),
        new=tuple(sorted(now.keys() - before.keys())),
    )


def change_back_or_reset(operator_id: str) -> str:
    """Advise on state that does not fit; under another name it would be refused, too."""
    return (
        f"change it back, or start anew with --reset-state {operator_id}, which drops all state "
        "and reads all sources from their beginning"
    )


def difference(before: JsonObject, now: JsonObject) -> str:
    """Say which entries of two definitions differ, and how."""
    differing = [
        f"{key} was {json.dumps(before.get(key))}, is {json.dumps(now.get(key))}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]
    return "; ".join(differing)
