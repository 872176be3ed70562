"""Conclusions from the facts that all decisions share: restorable and kept checkpoints."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation
from laminar_core.retention.facts import (
    DAY_MS,
    HOUR_MS,
    Completed,
    RetentionFacts,
    RetentionPolicy,
)

_MONDAY_DAYS = 3
"""1970-01-01 was a Thursday: so many days later, weeks begin on Mondays."""


@dataclass(frozen=True, slots=True)
class View:
    """The facts, and what follows from them for every single decision."""

    facts: RetentionFacts
    policy: RetentionPolicy
    blocked: str | None
    newest_id: CheckpointId
    """The newest restorable one; 0 if there is none, and then everything is blocked."""
    floor_id: CheckpointId
    """The newest one that is known to be committed; 0: none is."""
    wanted: Mapping[CheckpointId, list[str]]
    """The checkpoints that the policy keeps, with the reasons."""
    counted_from_id: CheckpointId
    """The oldest of the last ``keep_last``; 0 while there are not that many."""
    current_ids: AbstractSet[CheckpointId]
    """The completed ones that no later generation continued without."""

    @classmethod
    def of(cls, facts: RetentionFacts, policy: RetentionPolicy) -> "View":
        """Draw the conclusions from the facts."""
        current = _current(facts)
        whole = _restorable(facts, current)
        count = max(policy.keep_last, policy.min_kept)
        return cls(
            facts=facts,
            policy=policy,
            blocked=_why_nothing_goes(facts, whole),
            newest_id=whole[0].checkpoint_id if whole else NO_CHECKPOINT,
            floor_id=_committed_floor(facts, current),
            wanted=_wanted(policy, whole, facts.now_ms),
            counted_from_id=(
                whole[count - 1].checkpoint_id if len(whole) >= count else NO_CHECKPOINT
            ),
            current_ids=frozenset(c.checkpoint_id for c in current),
        )


def restorable(facts: RetentionFacts) -> list[Completed]:
    """Return the checkpoints that a new generation could start from, newest first."""
    return _restorable(facts, _current(facts))


def _current(facts: RetentionFacts) -> list[Completed]:
    return [
        c
        for c in facts.checkpoints
        if isinstance(c, Completed) and on_timeline(c.checkpoint_id, c.generation, facts.bases)
    ]


def _restorable(facts: RetentionFacts, current: Iterable[Completed]) -> list[Completed]:
    found = [c for c in current if c.damage is None and c.checkpoint_id not in facts.marked]
    return sorted(found, key=lambda c: c.checkpoint_id, reverse=True)


def _why_nothing_goes(facts: RetentionFacts, restorable: Sequence[Completed]) -> str | None:
    newest = facts.newest_generation
    if newest is None:
        return "no generation of this job is recorded"
    if all(base.generation != newest for base in facts.bases):
        return (
            f"generation {newest} is claimed, and its base is not recorded yet: "
            "wait until it runs, or start the job again"
        )
    return None if restorable else "no checkpoint can be restored"


def _committed_floor(facts: RetentionFacts, current: Iterable[Completed]) -> CheckpointId:
    committed = (c.checkpoint_id for c in current if c.checkpoint_id in facts.committed)
    return max(committed, default=NO_CHECKPOINT)


# --- the policy -----------------------------------------------------------------------------------


def _wanted(
    policy: RetentionPolicy, restorable: Sequence[Completed], now_ms: int
) -> dict[CheckpointId, list[str]]:
    """Return the checkpoints that the policy keeps, with reasons.

    ``restorable`` is newest first.
    """
    wanted: dict[CheckpointId, list[str]] = {}
    for checkpoint, reason in _counted(policy, restorable):
        if not is_too_old(checkpoint.completed_at_ms, policy.max_age_ms, now_ms):
            wanted.setdefault(checkpoint.checkpoint_id, []).append(reason)
    for checkpoint in restorable[: policy.min_kept]:
        if checkpoint.checkpoint_id not in wanted:
            wanted[checkpoint.checkpoint_id] = [
                f"one of the newest {policy.min_kept}, which stay at any age"
            ]
    return wanted


def _counted(
    policy: RetentionPolicy, restorable: Sequence[Completed]
) -> Iterator[tuple[Completed, str]]:
    for checkpoint in restorable[: policy.keep_last]:
        yield checkpoint, f"one of the last {policy.keep_last} that can be restored"
    tiers = (
        ("hour", HOUR_MS, 0, policy.hourly),
        ("day", DAY_MS, 0, policy.daily),
        ("week", 7 * DAY_MS, _MONDAY_DAYS * DAY_MS, policy.weekly),
    )
    for name, length_ms, offset_ms, count in tiers:
        seen: set[int] = set()
        for checkpoint in restorable:
            bucket = (checkpoint.completed_at_ms + offset_ms) // length_ms
            if bucket not in seen and len(seen) < count:
                seen.add(bucket)
                yield checkpoint, f"the newest of its {name}"


def is_too_old(at_ms: int, max_age_ms: int | None, now_ms: int) -> bool:
    """Return whether a time is further back than allowed; times in the future are not."""
    return max_age_ms is not None and now_ms - at_ms > max_age_ms


def has_waited(view: View, path: str) -> bool:
    """Return whether an earlier run found the file to be left over, long enough ago."""
    seen_at_ms = view.facts.quarantined.get(path)
    return (
        seen_at_ms is not None and view.facts.now_ms - seen_at_ms >= view.policy.quarantine_min_ms
    )


def is_over(facts: RetentionFacts, generation: Generation | None) -> bool:
    """Return whether a newer generation exists, so that writes of this one no longer count."""
    newest = facts.newest_generation
    return generation is not None and newest is not None and generation < newest
