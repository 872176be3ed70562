"""Rules R1 to R7 of ``retention.decision``, over random stores and policies."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.recovery_facts import Base
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.pin import Pin
from laminar_core.retention.decision import plan_retention
from laminar_core.retention.facts import (
    DAY_MS,
    HOUR_MS,
    Completed,
    Incomplete,
    RetentionFacts,
    RetentionPlan,
    RetentionPolicy,
    StoredFile,
    Trace,
    Unreadable,
)
from tests.sampling import drawn

NOW_MS = 100 * DAY_MS
EXAMPLES = 200

policies = st.builds(
    RetentionPolicy,
    keep_last=st.integers(1, 4),
    hourly=st.integers(0, 3),
    daily=st.integers(0, 2),
    weekly=st.integers(0, 2),
    max_age_ms=st.none() | st.integers(0, 3 * DAY_MS),
    min_kept=st.integers(1, 3),
    keep_savepoints=st.booleans(),
    only_announced=st.booleans(),
    delete_unreadable=st.booleans(),
    delete_left_overs=st.booleans(),
    quarantine_min_ms=st.sampled_from([1, HOUR_MS]),
    history_keep=st.none() | st.integers(0, 3),
    history_max_age_ms=st.none() | st.integers(0, DAY_MS),
)


class Story:
    """Generations that go on from where an earlier one was, and what they left."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.checkpoints, self.files, self.bases, self.traces = [], [], [], []
        self.number, self.clock_ms = 0, NOW_MS - 4 * DAY_MS
        self.chain: list[str] = []
        for number in range(1, draw(st.integers(1, 4)) + 1):
            self.tell_generation(Generation(number))

    def tell_generation(self, generation: Generation) -> None:
        known = [c.checkpoint_id for c in self.checkpoints if isinstance(c, Completed)]
        base = self.draw(st.none() | st.sampled_from(known)) if known else None
        self.bases.append(Base(generation, base))
        self.chain = []
        for n in range(self.draw(st.integers(0, 2))):
            self.share(f"shared/{generation}-{n}", generation)
        for _ in range(self.draw(st.integers(0, 4))):
            self.tell_checkpoint(generation)

    def share(self, path: str, generation: Generation) -> str:
        self.files.append(StoredFile(path, 7, "shared", generation=generation))
        return path

    def tell_checkpoint(self, generation: Generation) -> None:
        draw = self.draw
        self.number += 1
        self.clock_ms += draw(st.integers(-HOUR_MS, DAY_MS))
        checkpoint_id = CheckpointId(self.number)
        part = StoredFile(f"checkpoints/{self.number}/part", 5, "part", checkpoint_id)
        if draw(st.integers(0, 5)):
            self.files.append(part)
        match draw(st.sampled_from(["whole", "whole", "whole", "torn", "incomplete", "gone"])):
            case "whole":
                new = self.share(f"shared/{generation}-of-{self.number}", generation)
                self.chain = [path for path in self.chain if draw(st.booleans())] + [new]
                self.checkpoints.append(self.completed(checkpoint_id, generation, part.path))
            case "torn":
                path = f"checkpoints/{self.number}/manifest.json"
                self.checkpoints.append(Unreadable(checkpoint_id, "torn", path))
            case "incomplete":
                writer = draw(st.sampled_from([generation, None]))
                self.checkpoints.append(Incomplete(checkpoint_id, writer))
            case "gone":
                at_ms = draw(st.none() | st.just(self.clock_ms))
                self.traces.append(Trace(checkpoint_id, at_ms))

    def completed(self, checkpoint_id: CheckpointId, generation: Generation, own: str) -> Completed:
        return Completed(
            checkpoint_id=checkpoint_id,
            generation=generation,
            completed_at_ms=self.clock_ms,
            files=dict.fromkeys([own, *self.chain], 5),
            is_savepoint=self.draw(st.integers(0, 9)) == 0,
            damage=self.draw(st.sampled_from([None, None, None, "rotten"])),
        )


@st.composite
def stores(draw) -> RetentionFacts:
    story = Story(draw)
    story.files.append(StoredFile("checkpoints/notes.txt", 1, "unknown"))
    ids = st.sampled_from([CheckpointId(n) for n in range(1, story.number + 2)])
    paths = st.sampled_from([f.path for f in story.files] + ["shared/vanished"])
    starts = draw(st.integers(0, 9)) > 0
    by_chance = draw(st.booleans())
    return RetentionFacts(
        now_ms=NOW_MS,
        newest_generation=story.bases[-1].generation,
        bases=tuple(story.bases if starts else story.bases[:-1]),
        checkpoints=tuple(story.checkpoints),
        announced=frozenset(draw(st.sets(st.sampled_from([Generation(1), Generation(2)])))),
        committed=frozenset(draw(st.sets(ids)) if by_chance else range(1, story.number)),
        marked=frozenset(draw(st.sets(ids, max_size=1))),
        pins={
            checkpoint_id: (Pin("p", "me", "why", draw(st.none() | st.integers(0, 2 * NOW_MS))),)
            for checkpoint_id in draw(st.sets(ids, max_size=2))
        },
        files=tuple(story.files),
        traces=tuple(story.traces),
        quarantined=dict.fromkeys(draw(st.sets(paths)), NOW_MS - HOUR_MS),
    )


def place_of(checkpoint: Completed) -> tuple[CheckpointId, Generation]:
    return checkpoint.checkpoint_id, checkpoint.generation


def restorable(facts: RetentionFacts) -> list[Completed]:
    """Newest first, told once more in other words."""
    return [
        c
        for c in reversed(facts.checkpoints)
        if isinstance(c, Completed)
        and c.damage is None
        and c.checkpoint_id not in facts.marked
        and on_timeline(c.checkpoint_id, c.generation, facts.bases)
    ]


def check_everything_is_classified_once_and_a_blocked_plan_does_nothing(facts, policy):
    plan = plan_retention(facts, policy)
    counted = [c for c in facts.checkpoints if not isinstance(c, Incomplete)]
    assert Counter(v.checkpoint_id for v in plan.checkpoints) == Counter(
        c.checkpoint_id for c in counted
    )
    stored = {f.path for f in facts.files}
    assert Counter(v.path for v in plan.files if v.path in stored) == Counter(stored)
    assert all(v.action == "quarantine" for v in plan.files if v.path not in stored)
    assert all(verdict.reasons for verdict in plan.checkpoints)
    assert all(verdict.reason for verdict in plan.files)
    started = {base.generation for base in facts.bases}
    if not restorable(facts) or facts.newest_generation not in started:
        assert plan.blocked
    if plan.blocked:
        assert plan.is_empty


def check_no_checkpoint_goes_that_somebody_needs(facts, policy):
    plan = plan_retention(facts, policy)
    whole = restorable(facts)
    deleted = set(plan.deleted_ids)
    base = {b.checkpoint_id for b in facts.bases if b.generation == facts.newest_generation}
    sound = {c.checkpoint_id: c for c in facts.checkpoints if isinstance(c, Completed)}
    committed = [
        c
        for c in sound
        if c in facts.committed and on_timeline(c, sound[c].generation, facts.bases)
    ]
    for checkpoint_id in deleted - facts.marked:
        assert checkpoint_id < whole[0].checkpoint_id  # R1
        assert checkpoint_id not in base  # R2
        assert checkpoint_id < max(committed, default=0)  # R3
        pins = facts.pins.get(checkpoint_id, ())
        assert all(p.expires_at_ms is not None and p.expires_at_ms <= NOW_MS for p in pins)  # R4
        gone = sound.get(checkpoint_id)
        if gone and policy.keep_savepoints and on_timeline(*place_of(gone), facts.bases):
            assert not gone.is_savepoint
        if policy.only_announced:
            assert gone is not None  # R8
            assert gone.generation in facts.announced  # R8
    if deleted & facts.marked:
        assert whole  # What was decided before is finished, but not while nothing is whole.


def check_restorable_ones_are_counted_not_ids(facts, policy):
    plan = plan_retention(facts, policy)
    whole = restorable(facts)
    deleted = set(plan.deleted_ids)
    young = [
        c
        for c in whole
        if policy.max_age_ms is None or NOW_MS - c.completed_at_ms <= policy.max_age_ms
    ]
    wanted = {c.checkpoint_id for c in whole[: policy.min_kept]}
    wanted |= {c.checkpoint_id for c in whole[: policy.keep_last] if c in young}
    for length_ms, offset_ms, count in (
        (HOUR_MS, 0, policy.hourly),
        (DAY_MS, 0, policy.daily),
        (7 * DAY_MS, 3 * DAY_MS, policy.weekly),
    ):
        newest: dict[int, Completed] = {}
        for c in whole:
            newest.setdefault((c.completed_at_ms + offset_ms) // length_ms, c)
        tier = sorted(newest.values(), key=lambda c: -c.checkpoint_id)[:count]
        wanted |= {c.checkpoint_id for c in tier if c in young}
    assert not wanted & deleted
    unprotected = {
        v.checkpoint_id
        for v in plan.checkpoints
        if v.action == "keep" and all(r.startswith(("one of", "the newest of")) for r in v.reasons)
    }
    assert unprotected <= wanted  # Nothing is kept by a rule that does not keep it.


def check_no_file_goes_that_something_names_or_may_name(facts, policy):
    plan = plan_retention(facts, policy)
    deleted = set(plan.deleted_ids)
    stay = [c for c in facts.checkpoints if c.checkpoint_id not in deleted]
    named = {path for c in stay if isinstance(c, Completed) for path in c.files}
    going = {
        path
        for c in facts.checkpoints
        if isinstance(c, Completed) and c.checkpoint_id in deleted
        for path in c.files
    }
    files = {f.path: f for f in facts.files}
    over = {c.checkpoint_id: c.generation for c in facts.checkpoints if isinstance(c, Incomplete)}
    for verdict in plan.quarantined_files:
        if (seen := files.get(verdict.path)) is not None:  # Else it is a manifest.
            writer = over[seen.checkpoint_id] if seen.kind == "part" else seen.generation
            assert writer is not None  # R6
            assert writer < facts.newest_generation
    for verdict in plan.deleted_files:
        file = files[verdict.path]
        assert file.path not in named  # R5
        assert file.kind != "unknown"  # R7
        if file.kind == "shared":
            assert not any(isinstance(c, Unreadable) for c in stay)  # R5
        if file.path in going or file.checkpoint_id in deleted:
            continue
        writer = over[file.checkpoint_id] if file.kind == "part" else file.generation
        assert writer is not None  # R6
        assert writer < facts.newest_generation
        assert NOW_MS - facts.quarantined[file.path] >= policy.quarantine_min_ms
        assert policy.delete_left_overs
    for checkpoint_id in deleted:
        left = {f.path for f in facts.files if f.checkpoint_id == checkpoint_id} - named
        assert left <= {v.path for v in plan.deleted_files}


def check_only_old_traces_are_forgotten(facts, policy):
    plan = plan_retention(facts, policy)
    traces = {t.checkpoint_id: t for t in facts.traces}
    for checkpoint_id in plan.forgotten:
        assert checkpoint_id in traces
        assert checkpoint_id < max(facts.committed)
        assert checkpoint_id not in {f.checkpoint_id for f in facts.files}
    if policy.history_max_age_ms is None and policy.history_keep is not None:
        assert len(traces) - len(plan.forgotten) >= min(policy.history_keep, len(traces))
    if policy.history_max_age_ms is None and policy.history_keep is None:
        assert plan.forgotten == ()


def check_a_second_plan_finds_nothing_more_to_delete(facts, policy):
    plan = plan_retention(facts, policy)
    again = plan_retention(carried_out(facts, plan), policy)
    assert (again.deleted_ids, again.released) == ((), ())
    kept = {v.checkpoint_id for v in plan.checkpoints} - set(plan.deleted_ids)
    assert {v.checkpoint_id for v in again.checkpoints} == kept
    late = {v.path for v in again.deleted_files}
    freed = {f.path for f in facts.files if f.kind == "shared"}
    assert late <= freed  # Shared files that only a checkpoint named which could not be read.


@settings(max_examples=drawn(EXAMPLES), deadline=None)
@given(stores(), policies)
def test_the_rules_hold_for_every_store_and_policy(facts, policy):
    check_everything_is_classified_once_and_a_blocked_plan_does_nothing(facts, policy)
    check_no_checkpoint_goes_that_somebody_needs(facts, policy)
    check_restorable_ones_are_counted_not_ids(facts, policy)
    check_no_file_goes_that_something_names_or_may_name(facts, policy)
    check_only_old_traces_are_forgotten(facts, policy)
    check_a_second_plan_finds_nothing_more_to_delete(facts, policy)


def carried_out(facts: RetentionFacts, plan: RetentionPlan) -> RetentionFacts:
    """The store after the plan."""
    gone = {v.path for v in plan.deleted_files}
    traces = [Trace(c) for c in plan.deleted_ids]
    kept = [t for t in facts.traces if t.checkpoint_id not in plan.forgotten]
    seen = {v.path: facts.now_ms for v in plan.quarantined_files}
    before = {p: at for p, at in facts.quarantined.items() if p not in gone | set(plan.released)}
    return replace(
        facts,
        checkpoints=tuple(c for c in facts.checkpoints if c.checkpoint_id not in plan.deleted_ids),
        files=tuple(f for f in facts.files if f.path not in gone),
        traces=(*kept, *traces),
        quarantined=before | seen,
        marked=facts.marked | frozenset(plan.deleted_ids),
    )
