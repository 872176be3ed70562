"""Compare a checkpoint's state with the operators that run now: a pure comparison by id.

State and offsets belong together. If state that does not fit were dropped while sources continue
after the rows that produced it, these rows would be lost silently (ERRATA 1.1). So there are two
ways: refuse, or, if the user requests it, drop *all* state and read all sources from their
beginning. This module only compares.
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
    """Operators with an unchanged definition."""
    changed: tuple[tuple[str, str], ...] = ()
    """Operators with a changed definition, each with a description of the difference."""
    dropped: tuple[str, ...] = ()
    """They have state, and nothing runs now that would take it."""
    new: tuple[str, ...] = ()
    """The checkpoint knows nothing of them."""

    @property
    def fits(self) -> bool:
        """Whether all state can be continued, and no operator lacks state."""
        return not (self.changed or self.dropped or self.new)

    @property
    def unmapped(self) -> tuple[str, ...]:
        """The names that do not fit."""
        return (*(name for name, _ in self.changed), *self.dropped, *self.new)

    def lines(self) -> list[str]:
        """Return a report with one line per operator."""
        return [
            *(f"{name}: fits" for name in self.mapped),
            *(f"{name}: changed, {difference}" for name, difference in self.changed),
            *(f"{name}: has state, but is not in the pipeline" for name in self.dropped),
            *(f"{name}: new, not in the checkpoint" for name in self.new),
        ]

    def problems(self) -> str:
        """Return the problems in one line."""
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
    """Return advice for state that does not fit; renaming the operator would be refused, too."""
    return (
        f"change it back, or start anew with --reset-state {operator_id}, which drops all state "
        "and reads all sources from their beginning"
    )


def difference(before: JsonObject, now: JsonObject) -> str:
    """Describe the entries in which two definitions differ."""
    differing = [
        f"{key} was {json.dumps(before.get(key))}, is {json.dumps(now.get(key))}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]
    return "; ".join(differing)
