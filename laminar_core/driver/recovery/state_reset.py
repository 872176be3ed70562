"""Start without state on the user's request: state and offsets are dropped together.

``--reset-state OPERATOR`` does not take one operator's state out of a checkpoint and read on behind
the rows that produced it. It drops the state of *all* operators and reads all sources from their
beginning, as a fresh start does; earlier output is withdrawn (ERRATA 1.1). The user names the
operators that cause the reset, so that no state is dropped by accident: if another operator does
not fit either, the job is refused.

``partial_reset`` resets a part that does not hang together with the rest.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from laminar_core.driver.recovery.compatibility import kept_state
from laminar_core.driver.recovery.inserting import arranged
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.operators.mapping import MappingReport, mapping_report
from laminar_core.plan.plan import Plan
from laminar_core.protocol.recovery import RestoreFrom, StartFresh
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import Choice


@dataclass(frozen=True, slots=True)
class Reset:
    """The state of a checkpoint that is not continued from, and how it fits the pipeline."""

    checkpoint_id: int
    operators: tuple[str, ...]
    """The operators that the user named."""
    mapping: MappingReport

    def lines(self) -> list[str]:
        """Return a report with one line per fact."""
        named = ", ".join(self.operators)
        first = f"checkpoint {self.checkpoint_id} is left behind to reset {named}:"
        return [f"{first} all state is dropped, all sources start anew", *self.mapping.lines()]


def mapping_of(manifest: CheckpointManifest, plan: Plan) -> MappingReport:
    """Return which operators of the pipeline fit the state of the checkpoint."""
    before, now = arranged(manifest, plan).operators_description, plan.descriptions()
    return mapping_report(before, now, frozenset(kept_state(manifest)))


def reset(choice: Choice, plan: Plan, operators: Collection[str]) -> tuple[Choice, Reset | None]:
    """Start from nothing instead of from the checkpoint that was chosen, if there is one.

    Raises:
        ConfigurationError: neither pipeline nor checkpoint has such an operator (INVALID_OPTION).
        IncompatibleStateError: another operator does not fit either (OPERATORS_CHANGED).
    """
    if choice.manifest is None or not isinstance(choice.decision, RestoreFrom):
        return choice, None
    manifest, mapping = choice.manifest, mapping_of(choice.manifest, plan)
    known = {*plan.operator_ids(), *manifest.operators_description}
    if unknown := sorted(set(operators) - known):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"there is no operator {', '.join(unknown)} to reset; there are: "
            f"{', '.join(sorted(known))}",
        )
    others = {*(name for name, _ in mapping.changed), *mapping.dropped} - set(operators)
    if others:
        raise IncompatibleStateError(
            ErrorCode.OPERATORS_CHANGED,
            f"{', '.join(sorted(others))} do not fit checkpoint {manifest.checkpoint_id} either, "
            f"and a reset drops all state: name them, too ({mapping.problems()})",
        )
    fresh = StartFresh(choice.decision.rejected, choice.decision.committed_beyond)
    left = Reset(manifest.checkpoint_id, tuple(sorted(operators)), mapping)
    return replace(choice, decision=fresh, manifest=None, redrive=()), left
