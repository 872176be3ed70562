"""Decide which driver may own a job, and which checkpoint it continues from.

Several drivers may believe that they own a job: one hangs, another takes over, the first wakes up
(a *zombie*). The store is the only thing they share, and creating an object that is absent is the
only atomic step. These rules keep one history of the job, whatever the interleaving.

**Order of steps.** A new generation *g*

1. creates ``generations/{g}.json``, the claim;
2. closes every older generation that has a claim but no base: it creates that base itself, so that
   the older one can no longer start;
3. lists the checkpoints and chooses one;
4. creates ``{g}.base.json`` with the chosen id, None for a fresh start;
5. commits again what ``commits_to_redrive`` says, and only then runs.

A publisher of generation *h* creates the manifest, in ascending order of ids, and *then* checks
that no newer generation is claimed. Only if there is none does it commit. Ids are reserved by
create-if-absent, so no two generations use one id.

**The timeline rule.** A manifest *m* of generation *h* is on the timeline if and only if every
generation *g > h* that has a base has ``base(g) >= m``. (A closed base constrains nothing.)
Whatever is off the timeline is the orphan of a zombie: never restored, never committed.

**Invariants.**

I1  *What a generation sees of older generations is final.* After step 2 of *g* each older base is
    there or closed, for ever: both are create-only.
I2  *What may have been committed is seen by every later generation.* If the check of *h* found no
    claim of *g*, the manifest was created before the claim, and step 3 of *g* is after the claim.
I3  *The past does not change.* Let *g* choose *b*, and let *m*, of an older generation *h*, be a
    manifest that *g* did not see: created after the claim of *g*. Then *m* is off the timeline.
    If *b* is of *h*, then ``b < m``, because *h* publishes in ascending order. If *b* is of an
    older generation than *h*, then ``b <= base(h) < m``, because *h* reserves ids above all that
    it saw. Either way ``base(g) < m``. If *b* is of a later generation than *h*, that one did not
    see *m* either, and put it off the timeline. A fresh start puts off everything older.
I4  *No two timelines are committed.* A publisher commits after its check, step 5 commits the chosen
    checkpoint and ancestors of it. By I2 the former, by I1 and I3 the latter are on the timeline as
    every later generation sees it, so nothing else ever covers the same input again.

**Deletion.** In step 2 a generation also gives up every plan of retention that is not decided yet;
in step 3 it leaves alone what a decided one deletes. A process that deletes writes the plan, looks
for a newer generation, and only then decides. ``store.retention_log`` says why no generation starts
from what is deleted.

**Savepoints.** A generation that starts from a savepoint copies it into a checkpoint of its own,
which is then its base. What it leaves behind is everything above the *floor*, the checkpoint that
the savepoint was made of, and not what is above the copy. So in all of the above ``base(g)`` is the
floor for generations older than *g*, and the copy for *g* itself: it wrote it, and reserved its id.

One case is not decided here: a checkpoint that was committed and is damaged afterwards. Falling
back behind it repeats its output; ``committed_beyond`` names such ids, for the sink to take back.

``tests/protocol/test_recovery_model.py`` checks I1 to I4 over interleavings of four generations,
and that each step left out, or done in another order, breaks them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from laminar_core.protocol.recovery_facts import (
    Absent,
    Base,
    BeingDeleted,
    Readable,
    RestoreFacts,
    RestoreRequest,
    Unreadable,
)
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation

OwnerSigns = Literal["ended", "gone", "silent", "running", "beating"]
"""``gone`` and ``running``: its process, seen from the same machine. ``silent`` and ``beating``:
its heartbeat, watched from another machine."""


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The newest generation, as the driver that wants to take over observes it."""

    generation: Generation
    described: str
    signs: OwnerSigns


@dataclass(frozen=True, slots=True)
class Claim:
    """Try to create the claim of this generation. The attempt may lose against another driver."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class RefuseClaim:
    """Do not claim: the job has a live owner."""

    reason: str


def decide_claim(predecessor: Predecessor | None, *, take_over: bool) -> Claim | RefuseClaim:
    """Decide whether a driver may claim the job after ``predecessor`` (None: the first ever).

    This is courtesy, not safety: it spares a live job from being fenced by accident. What keeps
    two owners apart is the claim itself.
    """
    if predecessor is None:
        return Claim(Generation(1))
    if predecessor.signs in {"running", "beating"} and not take_over:
        return RefuseClaim(f"it is owned by {predecessor.described}, which is alive")
    return Claim(Generation(predecessor.generation + 1))


def why_unexpected(newest: Generation | None, expected: Generation | None) -> str | None:
    """Return why a claim must fail that expects ``expected`` as newest generation, or None.

    ``expected`` 0 stands for a job that never ran, None for no expectation. A claim takes the
    number after ``expected``, which exists once: of several drivers that expect the same, one
    starts.

    >>> why_unexpected(Generation(4), Generation(3))
    'its newest generation is 4, not 3 as expected'
    """
    if expected is None or expected == (newest or 0):
        return None
    if newest is None:
        return f"it never ran, and generation {expected} was expected to be its newest"
    was = f"{expected} as expected" if expected else "none as expected"
    return f"its newest generation is {newest}, not {was}"


def on_timeline(checkpoint_id: CheckpointId, generation: Generation, bases: Iterable[Base]) -> bool:
    """Apply the timeline rule to manifest ``checkpoint_id``, written by ``generation``.

    >>> on_timeline(CheckpointId(7), Generation(1), [Base(Generation(2), CheckpointId(6))])
    False
    """
    return all(
        base.newest_kept is not None and base.newest_kept >= checkpoint_id
        for base in bases
        if base.generation > generation
    )


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """A question: the caller must add the manifest of this checkpoint to the facts."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class VerifyFiles:
    """A question: the caller must verify all files of this checkpoint.

    Expensive, so it comes last.
    """

    checkpoint_id: CheckpointId


Cause = Literal["never-completed", "damaged", "orphan", "being-deleted"]
"""Why a checkpoint cannot be restored. ``orphan``: off the timeline. Only ``damaged`` means a loss.
"""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A completed checkpoint that is not restored."""

    checkpoint_id: CheckpointId
    reason: str
    cause: Cause = "damaged"

    @property
    def orphan(self) -> bool:
        """Whether the checkpoint is off the timeline, so that it was never a candidate."""
        return self.cause == "orphan"


@dataclass(frozen=True, slots=True)
class RestoreFrom:
    """Continue from this checkpoint.

    ``committed_beyond`` lists later checkpoints whose output is already visible. It will be
    produced again, so the sink withdraws it first. Empty unless a checkpoint was damaged or an
    older one was requested.
    """

    checkpoint_id: CheckpointId
    rejected: tuple[Rejected, ...] = ()
    committed_beyond: tuple[CheckpointId, ...] = ()


@dataclass(frozen=True, slots=True)
class StartFresh:
    """Start empty: no checkpoint ever completed, or a fresh start was requested."""

    rejected: tuple[Rejected, ...] = ()
    committed_beyond: tuple[CheckpointId, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """State exists, or existed, and cannot be used. Never start empty in silence."""

    reason: str
    rejected: tuple[Rejected, ...] = ()
    cause: Cause = "damaged"


Question = ReadManifest | VerifyFiles
Decision = RestoreFrom | StartFresh | Refuse


def decide_restore(facts: RestoreFacts, request: RestoreRequest) -> Decision | Question:
    """Choose the newest checkpoint that is on the timeline and whole, or ask for a missing fact.

    The caller answers a question by adding the fact, and calls again. If a particular checkpoint
    was requested, no other is chosen.
    """
    wanted = facts.candidates if request.checkpoint_id is None else {request.checkpoint_id}
    rejected: list[Rejected] = []
    for checkpoint_id in sorted(wanted, reverse=True):
        match _judge(facts, request, checkpoint_id):
            case ReadManifest() | VerifyFiles() as question:
                return question
            case Rejected() as verdict:
                rejected.append(verdict)
            case "absent" | "too new":
                continue
            case "usable":
                beyond = _committed_beyond(facts, checkpoint_id)
                return RestoreFrom(checkpoint_id, _with_lost(facts, rejected, beyond), beyond)
    if request.checkpoint_id is not None:
        return _refuse_wanted(facts, request.checkpoint_id, tuple(rejected))
    if request.before_ms is not None:
        return _refuse_before(tuple(rejected))
    return _without_checkpoint(facts, tuple(rejected), allow_fresh=request.allow_fresh)


def commits_to_redrive(facts: RestoreFacts, restored_id: CheckpointId) -> tuple[CheckpointId, ...]:
    """Return the checkpoints whose output must be committed (again) before the job runs, in order.

    These are the restored one and its ancestors back to the newest with a commit record. An
    ancestor without a record may have been committed all the same, so committing is idempotent. A
    checkpoint between them that is not an ancestor was given up after its manifest was written.
    ``facts`` are those with which ``decide_restore`` chose ``restored_id``.
    """
    lineage = _uncommitted_lineage(facts, restored_id)
    assert isinstance(lineage, tuple), f"{restored_id} was not chosen: {lineage}"
    return lineage


def _judge(
    facts: RestoreFacts, request: RestoreRequest, checkpoint_id: CheckpointId
) -> Question | Rejected | Literal["absent", "too new", "usable"]:
    fact = facts.manifests.get(checkpoint_id)
    if fact is None:
        return ReadManifest(checkpoint_id)
    if isinstance(fact, Absent):
        return "absent"
    if isinstance(fact, BeingDeleted):
        return Rejected(checkpoint_id, "it is being deleted by retention", "being-deleted")
    if not _may_be_on_timeline(facts, checkpoint_id, fact.generation):
        reason = f"a generation after {fact.generation}, its own, continued without it"
        return Rejected(checkpoint_id, reason, "orphan")
    if isinstance(fact, Unreadable):
        return Rejected(checkpoint_id, fact.reason)
    if request.before_ms is not None and fact.completed_at_ms >= request.before_ms:
        return "too new"
    return _judge_files(facts, checkpoint_id)


def _judge_files(
    facts: RestoreFacts, checkpoint_id: CheckpointId
) -> Question | Rejected | Literal["usable"]:
    if checkpoint_id not in facts.damage:
        return VerifyFiles(checkpoint_id)
    if damage := facts.damage[checkpoint_id]:
        return Rejected(checkpoint_id, damage)
    lineage = _uncommitted_lineage(facts, checkpoint_id)
    return "usable" if isinstance(lineage, tuple) else lineage


def _uncommitted_lineage(
    facts: RestoreFacts, checkpoint_id: CheckpointId
) -> ReadManifest | tuple[CheckpointId, ...]:
    """The checkpoint and its uncommitted ancestors, ascending.

    Commits happen in order, so behind a committed ancestor all are. Behind one that is lost the
    search ends as well: a snapshot carries all output that is not known to be committed, so the
    descendants have it.
    """
    lineage: list[CheckpointId] = []
    ancestor: CheckpointId | None = checkpoint_id
    while ancestor is not None and ancestor not in facts.committed:
        fact = facts.manifests.get(ancestor)
        if fact is None:
            return ReadManifest(ancestor)
        if not isinstance(fact, Readable):
            break
        lineage.append(ancestor)
        ancestor = fact.parent_id
    return tuple(reversed(lineage))


def _may_be_on_timeline(
    facts: RestoreFacts, checkpoint_id: CheckpointId, generation: Generation | None
) -> bool:
    return generation is None or on_timeline(checkpoint_id, generation, facts.bases)


def _committed_beyond(facts: RestoreFacts, checkpoint_id: CheckpointId) -> tuple[CheckpointId, ...]:
    return tuple(sorted(c for c in facts.committed if c > checkpoint_id))


def _with_lost(
    facts: RestoreFacts, rejected: list[Rejected], beyond: tuple[CheckpointId, ...]
) -> tuple[Rejected, ...]:
    """Add the checkpoints whose output was committed but whose manifest is gone."""
    lost = [
        Rejected(checkpoint_id, "its output was committed, and its manifest is gone")
        for checkpoint_id in beyond
        if checkpoint_id not in facts.candidates
        or isinstance(facts.manifests.get(checkpoint_id), Absent)
    ]
    return tuple(sorted([*rejected, *lost], key=lambda r: -r.checkpoint_id))


def _refuse_wanted(
    facts: RestoreFacts, wanted_id: CheckpointId, rejected: tuple[Rejected, ...]
) -> Refuse:
    if rejected:
        reason, cause = rejected[0].reason, rejected[0].cause
    elif wanted_id in facts.committed:
        reason, cause = "its output was committed, and its manifest is gone", "damaged"
    else:
        reason, cause = "it never completed", "never-completed"
    return Refuse(f"checkpoint {wanted_id} cannot be restored: {reason}", rejected, cause)


def _refuse_before(rejected: tuple[Rejected, ...]) -> Refuse:
    damaged = [verdict for verdict in rejected if verdict.cause == "damaged"]
    if not damaged:
        return Refuse("no checkpoint was completed before that time", rejected, "never-completed")
    newest = damaged[0]
    return Refuse(
        "no checkpoint that was completed before that time can be restored "
        f"(of those that cannot be read the newest is {newest.checkpoint_id}, {newest.reason})",
        rejected,
    )


def _without_checkpoint(
    facts: RestoreFacts, rejected: tuple[Rejected, ...], *, allow_fresh: bool
) -> StartFresh | Refuse:
    lost = _evidence_of_state(facts, rejected)
    if lost and not allow_fresh:
        return Refuse(lost, rejected)
    return StartFresh(rejected, _committed_beyond(facts, NO_CHECKPOINT) if lost else ())


def _evidence_of_state(facts: RestoreFacts, rejected: tuple[Rejected, ...]) -> str | None:
    """Return the evidence that the current timeline had a checkpoint; None: it never had one."""
    damaged = [verdict for verdict in rejected if verdict.cause == "damaged"]
    if damaged:
        newest = damaged[0]
        return (
            f"none of {len(damaged)} checkpoints can be restored "
            f"(newest: {newest.checkpoint_id}, {newest.reason})"
        )
    started = max(facts.bases, key=lambda base: base.generation, default=None)
    if started is not None and started.checkpoint_id is not None:
        return f"checkpoint {started.checkpoint_id}, which the last run started from, is gone"
    fresh_since = started.generation if started is not None else 0
    if facts.newest_commit_by is not None and facts.newest_commit_by >= fresh_since:
        return f"checkpoint {max(facts.committed)} was committed and is gone"
    return None
