"""Decide which checkpoints, files and records are deleted. All are classified before any deletion.

**Never deleted**, whatever the policy:

R1  the newest restorable checkpoint, and anything newer, restorable or not;
R2  the checkpoint that the newest generation started from; and nothing at all while a claimed
    generation has not recorded its base;
R3  the newest checkpoint on the timeline that is known to be committed, and anything newer. A
    driver that could not learn whether it had published a checkpoint continues from the one before,
    so the newest manifest need not be the one whose files its next manifest names; but it commits
    only checkpoints that it continues from;
R4  a checkpoint with a pin or hold;
R5  a file that a remaining checkpoint names; and no shared file at all while a remaining manifest
    cannot be read, because the files that it names are unknown;
R6  a file that no manifest names, unless its generation is over, and an earlier run of retention
    has found it to be left over long enough ago;
R7  any object with a name that Laminar does not give;
R8  under a policy for announced generations: a checkpoint whose writer has not announced it.

A checkpoint is restorable if it is on the timeline, has no damage, and is not being deleted.
Policies count restorable checkpoints, not ids. A damaged checkpoint is deleted when it is older
than those that the policy counts.

Source: PROTOCOL section 12; ERRATA 3.11; FLINK-39439, FLINK-40384.
``tests/retention/test_decision_model.py`` checks R1 to R8 over random stores and policies.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId
from laminar_core.records.pin import Pin
from laminar_core.retention.facts import (
    CheckpointVerdict,
    Completed,
    FileVerdict,
    Incomplete,
    RetentionFacts,
    RetentionPlan,
    RetentionPolicy,
    Unreadable,
)
from laminar_core.retention.files import file_verdicts
from laminar_core.retention.view import (
    View,
    has_waited,
    is_over,
    is_too_old,
)

_ALL = 2**62
"""More checkpoints than there will ever be."""


def plan_retention(facts: RetentionFacts, policy: RetentionPolicy) -> RetentionPlan:
    """Classify everything in ``facts``. Deterministic: equal facts give an equal plan."""
    view = View.of(facts, policy)
    checkpoints = tuple(_checkpoint_verdicts(view))
    deleted = {v.checkpoint_id for v in checkpoints if v.action == "delete"}
    files = tuple(file_verdicts(view, deleted))
    return RetentionPlan(
        generation=facts.newest_generation,
        blocked=view.blocked,
        checkpoints=checkpoints,
        files=files,
        forgotten=tuple(_forgotten(view)),
        abandoned=tuple(_abandoned(view, files)),
        released=tuple(sorted(_released(view))),
    )


def left_overs_policy(policy: RetentionPolicy) -> RetentionPolicy:
    """Return a policy for unreferenced files only, under which all checkpoints count and stay.

    A checkpoint with an unreadable manifest stays, too, so that the files it may name stay (R5).
    """
    return RetentionPolicy(keep_last=_ALL, quarantine_min_ms=policy.quarantine_min_ms)


def without_checkpoints(plan: RetentionPlan) -> RetentionPlan:
    """Return the part of a plan under ``left_overs_policy`` that deletes no checkpoint.

    Checkpoints that a later generation abandoned, or whose deletion was decided before, are left to
    other runs.
    """
    gone = set(plan.deleted_ids)
    files = tuple(f for f in plan.files if f.checkpoint_id is None or f.checkpoint_id not in gone)
    deletes = any(file.action == "delete" for file in files)
    return replace(
        plan,
        checkpoints=tuple(v for v in plan.checkpoints if v.action != "delete"),
        files=files,
        forgotten=(),
        abandoned=plan.abandoned if deletes else (),
    )


# --- checkpoints ----------------------------------------------------------------------------------


def _checkpoint_verdicts(view: View) -> Iterator[CheckpointVerdict]:
    for checkpoint in sorted(view.facts.checkpoints, key=lambda c: c.checkpoint_id):
        match checkpoint:
            case Completed():
                yield _judge_completed(view, checkpoint)
            case Unreadable():
                yield _judge_unreadable(view, checkpoint)
            case Incomplete():
                pass  # No checkpoint: its files are judged one by one.


def _judge_completed(view: View, checkpoint: Completed) -> CheckpointVerdict:
    checkpoint_id = checkpoint.checkpoint_id
    kept = tuple(_reasons_to_keep(view, checkpoint_id)) + tuple(_wanted_here(view, checkpoint))
    marked = checkpoint_id in view.facts.marked
    reasons = kept if kept and not marked else (_reason_to_delete(view, checkpoint),)
    action = "keep" if kept and not marked else "delete"
    if action == "delete" and view.blocked is not None:
        action, reasons = "blocked", (*reasons, view.blocked)
    return CheckpointVerdict(
        checkpoint_id, action, reasons, checkpoint.size_bytes, checkpoint.completed_at_ms
    )


def _reasons_to_keep(view: View, checkpoint_id: CheckpointId) -> Iterator[str]:
    """R1 to R4: what no policy decides."""
    facts = view.facts
    if checkpoint_id == view.newest_id:
        yield "the newest that can be restored"
    elif checkpoint_id > view.newest_id:
        yield "newer than the newest that can be restored"
    yield from (
        f"generation {base.generation} started from it"
        for base in facts.bases
        if base.generation == facts.newest_generation and base.checkpoint_id == checkpoint_id
    )
    if checkpoint_id == view.floor_id:
        yield "the newest that is committed"
    elif checkpoint_id > view.floor_id:
        yield "it may not be committed yet"
    yield from (_pinned(pin) for pin in active_pins(facts.pins.get(checkpoint_id, ()), facts))


def active_pins(pins: Iterable[Pin], facts: RetentionFacts) -> Iterator[Pin]:
    """Yield the pins that have not expired.

    A clock that goes back makes a hold last longer, not shorter.
    """
    for pin in pins:
        if pin.expires_at_ms is None or pin.expires_at_ms > facts.now_ms:
            yield pin


def _pinned(pin: Pin) -> str:
    how = "pinned" if pin.expires_at_ms is None else "held"
    return f"{how} as {pin.name} by {pin.actor}: {pin.reason}"


def _wanted_here(view: View, checkpoint: Completed) -> Iterator[str]:
    checkpoint_id = checkpoint.checkpoint_id
    yield from view.wanted.get(checkpoint_id, ())
    if view.policy.only_announced and checkpoint.generation not in view.facts.announced:
        yield f"generation {checkpoint.generation} announced no deletion at its start"
    if _orphaned(view, checkpoint):
        return
    if checkpoint.is_savepoint and view.policy.keep_savepoints:
        yield "a savepoint"
    if checkpoint.damage is not None and checkpoint_id > view.counted_from_id:
        yield f"damaged, and newer than {view.counted_from_id}: it may be repaired"


def _orphaned(view: View, checkpoint: Completed) -> bool:
    return checkpoint.checkpoint_id not in view.current_ids


def _reason_to_delete(view: View, checkpoint: Completed) -> str:
    if checkpoint.checkpoint_id in view.facts.marked:
        return "its deletion was decided before"
    if _orphaned(view, checkpoint):
        return "a later generation continued without it: it is never restored"
    if checkpoint.damage is not None:
        return f"it cannot be restored: {checkpoint.damage}"
    if is_too_old(checkpoint.completed_at_ms, view.policy.max_age_ms, view.facts.now_ms):
        return "too old"
    return f"older than the last {view.policy.keep_last} that can be restored, and in no other tier"


def _judge_unreadable(view: View, checkpoint: Unreadable) -> CheckpointVerdict:
    checkpoint_id = checkpoint.checkpoint_id
    kept = tuple(_reasons_to_keep(view, checkpoint_id))
    if kept:
        return CheckpointVerdict(checkpoint_id, "report", (checkpoint.reason, *kept))
    marked = checkpoint_id in view.facts.marked
    if not marked and not _unreadable_may_go(view, checkpoint):
        return CheckpointVerdict(checkpoint_id, "report", (checkpoint.reason,))
    if view.blocked is not None:
        return CheckpointVerdict(checkpoint_id, "blocked", (checkpoint.reason, view.blocked))
    return CheckpointVerdict(checkpoint_id, "delete", (checkpoint.reason,))


def _unreadable_may_go(view: View, checkpoint: Unreadable) -> bool:
    return (
        view.policy.delete_unreadable
        and not view.policy.only_announced  # Whose it is cannot be read, either.
        and checkpoint.checkpoint_id < view.counted_from_id
        and has_waited(view, checkpoint.manifest_path)
    )


# --- what is remembered ---------------------------------------------------------------------------


def _forgotten(view: View) -> Iterator[CheckpointId]:
    """Only what has nothing stored any more; the newest are remembered."""
    facts, policy = view.facts, view.policy
    if view.blocked is not None:
        return
    stored = {file.checkpoint_id for file in facts.files}
    newest_commit_id = max(facts.committed, default=NO_CHECKPOINT)
    ended = [
        trace
        for trace in sorted(facts.traces, key=lambda t: t.checkpoint_id)
        if trace.checkpoint_id < min(view.newest_id, newest_commit_id)
        and trace.checkpoint_id not in stored
    ]
    beyond = 0 if policy.history_keep is None else max(0, len(ended) - policy.history_keep)
    for position, trace in enumerate(ended):
        at_ms = trace.ended_at_ms
        too_old = at_ms is not None and is_too_old(at_ms, policy.history_max_age_ms, facts.now_ms)
        if position < beyond or too_old:
            yield trace.checkpoint_id


def _abandoned(view: View, files: Iterable[FileVerdict]) -> Iterator[CheckpointId]:
    """Yield unfinished checkpoints of old generations, which tombstones must keep from completing.

    A suspended process might otherwise publish one after it has lost its files.
    """
    if any(file.action == "delete" for file in files):
        yield from sorted(
            c.checkpoint_id
            for c in view.facts.checkpoints
            if isinstance(c, Incomplete)
            and is_over(view.facts, c.generation)
            and c.checkpoint_id < view.newest_id
        )


def _released(view: View) -> Iterator[str]:
    if view.blocked is not None:
        return
    stored = {file.path for file in view.facts.files}
    stored.update(c.manifest_path for c in view.facts.checkpoints if isinstance(c, Unreadable))
    yield from (path for path in view.facts.quarantined if path not in stored)
