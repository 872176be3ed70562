"""Generations that start from savepoints, among others that do not: the timeline stays one."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.protocol.recovery import commits_to_redrive, on_timeline
from laminar_core.protocol.recovery_facts import Base, RestoreFacts
from laminar_core.protocol.types import CheckpointId, Generation
from tests.protocol.test_recovery_model import CLOSED, File, Manifest, Store, restore
from tests.sampling import drawn

ACTORS = 4


@dataclass
class Disk(Store):
    """A store, and savepoints somewhere else: copies of checkpoints, by number."""

    savepoints: list[int] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)
    """By the id of the copy, the checkpoint that its savepoint was made of."""
    floors: dict[int, int] = field(default_factory=dict)
    """By generation; of those whose base is a copy."""
    staged: set[File] = field(default_factory=set)
    """Pre-committed, and not visible yet."""

    def show(self, files: frozenset[File]) -> bool:
        """Commit; False if some of it was discarded, and with it the one who commits."""
        if not files <= self.staged | self.visible:
            return False
        self.staged -= files
        self.visible |= files
        return True

    def discard_uncommitted(self, generation: int) -> None:
        self.staged = {(writer, number) for writer, number in self.staged if writer >= generation}

    def known_bases(self) -> tuple[Base, ...]:
        return tuple(
            Base(
                Generation(g),
                None if base is None else CheckpointId(base),
                CheckpointId(self.floors[g]) if g in self.floors else None,
            )
            for g, base in sorted(self.bases.items())
            if base != CLOSED
        )

    def withdraw_after(self, input_read: int, generation: int) -> None:
        self.visible = {
            (writer, number)
            for writer, number in self.visible
            if number <= input_read or writer >= generation
        }


@dataclass(frozen=True)
class Rules:
    """Which steps an import takes; every change from the default is a mistake."""

    has_floor: bool = True
    records_base_first: bool = True
    withdraws: bool = True
    discards_first: bool = True
    looks_at_timeline: bool = True
    finishes_what_was_broken_off: bool = True


RIGHT = Rules()


def run(disk: Disk, rules: Rules, wanted: int | None) -> Iterator[None]:
    """One generation; every ``yield`` is a place where it may sleep, for ever.

    ``wanted``: start from one of the savepoints that are there before the claim.
    """
    savepoint = (
        disk.savepoints[wanted % len(disk.savepoints)] if wanted and disk.savepoints else None
    )
    generation = disk.newest() + 1
    yield
    if generation in disk.claims:
        return
    disk.claims.add(generation)
    yield
    for older in sorted(disk.claims - disk.bases.keys()):
        if older < generation:
            disk.bases.setdefault(older, CLOSED)
            yield
    if savepoint is None and rules.finishes_what_was_broken_off:
        savepoint = broken_off(disk)
    if savepoint is not None:
        chosen = yield from bring_in(disk, rules, generation, savepoint)
    else:
        chosen = yield from choose(disk, rules, generation)
    if chosen is not None:
        yield from work(disk, generation, chosen)


def broken_off(disk: Disk) -> int | None:
    started = disk.known_bases()
    if not started or started[-1].floor is None or started[-1].checkpoint_id in disk.manifests:
        return None
    return started[-1].floor


def bring_in(disk: Disk, rules: Rules, generation: int, savepoint: int):
    """Returns the checkpoint to work from; None if the generation is over."""
    cut = disk.manifests[savepoint]
    timeline = on_timeline(CheckpointId(savepoint), Generation(cut.generation), disk.known_bases())
    if rules.looks_at_timeline and not timeline:
        return None
    yield
    copy = max(disk.triggers) + 1
    disk.triggers[copy] = generation
    yield
    writes = [
        lambda: record_base(disk, generation, copy, savepoint if rules.has_floor else None),
        lambda: publish(disk, Manifest(generation, savepoint, cut.input_read, cut.files), copy),
    ]
    disk.copies[copy] = savepoint
    for write in writes if rules.records_base_first else reversed(writes):
        if not write():
            return None
        yield
    if disk.newest() > generation:
        return None
    yield from settle(disk, rules, generation, copy)
    return copy


def record_base(disk: Disk, generation: int, base: int | None, floor: int | None = None) -> bool:
    if generation in disk.bases:
        return False  # Closed: a later generation was faster.
    disk.bases[generation] = base
    if floor is not None:
        disk.floors[generation] = floor
    return True


def publish(disk: Disk, manifest: Manifest, checkpoint_id: int) -> bool:
    disk.manifests[checkpoint_id] = manifest
    return True


def settle(disk: Disk, rules: Rules, generation: int, copy: int) -> Iterator[None]:
    """Commit as the checkpoint that the savepoint was made of, and take back what came after it."""
    manifest = disk.manifests[copy]
    assert disk.show(manifest.files), "what is before the savepoint is lost"
    yield
    steps = [
        lambda: disk.discard_uncommitted(generation),  # Who slept until now commits no more.
        lambda: disk.withdraw_after(manifest.input_read, generation),
    ]
    for step in steps if rules.discards_first else reversed(steps):
        if rules.withdraws:
            step()
        yield
    disk.records.add(copy)
    yield


def choose(disk: Disk, rules: Rules, generation: int):
    facts = RestoreFacts(frozenset(), disk.known_bases())
    yield
    facts = replace(facts, committed=frozenset(map(CheckpointId, disk.records)))
    yield
    facts = replace(facts, candidates=frozenset(map(CheckpointId, disk.triggers)))
    chosen, facts = yield from restore(disk, facts)
    if not record_base(disk, generation, chosen):
        return None
    yield
    redrive = () if chosen is None else commits_to_redrive(facts, CheckpointId(chosen))
    for checkpoint_id in redrive:
        if checkpoint_id in disk.copies:
            yield from settle(disk, rules, generation, checkpoint_id)
            continue
        assert disk.show(disk.manifests[checkpoint_id].files), "decided output is lost"
        yield
        disk.records.add(checkpoint_id)
        yield
    disk.discard_uncommitted(generation)
    yield
    return chosen or 0


def work(disk: Disk, generation: int, parent: int) -> Iterator[None]:
    """Three checkpoints, each reading one more input; each may become a savepoint."""
    input_read = disk.manifests[parent].input_read if parent else 0
    for _ in range(3):
        input_read += 1
        files: frozenset[File] = frozenset({(generation, input_read)})
        checkpoint_id = max(disk.triggers, default=0) + 1
        yield
        while checkpoint_id in disk.triggers:
            checkpoint_id += 1
        disk.triggers[checkpoint_id] = generation
        yield
        disk.staged |= files
        publish(disk, Manifest(generation, parent or None, input_read, files), checkpoint_id)
        yield
        if disk.newest() > generation:
            return
        disk.savepoints.append(checkpoint_id)
        yield
        if not disk.show(files):
            return
        yield
        disk.records.add(checkpoint_id)
        yield
        parent = checkpoint_id


def check(schedule: list[tuple[int, int]], preferences: list[int], rules: Rules) -> None:
    """Let generations take ``(who, steps)`` in turn; then recover once more, undisturbed."""
    disk = Disk()
    generations = [run(disk, rules, preference) for preference in preferences]
    for who, steps in schedule:
        for _ in range(steps):
            next(generations[who], None)
    for _ in run(disk, rules, None):
        pass
    newest = disk.manifests[max(disk.records)]
    inputs = sorted(number for _, number in disk.visible)
    assert inputs == list(range(1, newest.input_read + 1)), "output is missing, or there twice"


SCHEDULES = st.lists(st.tuples(st.integers(0, ACTORS - 1), st.integers(1, 40)), max_size=14)
PREFERENCES = st.lists(st.integers(0, 5), min_size=ACTORS, max_size=ACTORS)


@settings(max_examples=drawn(1_000), deadline=None, derandomize=True)
@given(SCHEDULES, PREFERENCES)
def test_whoever_sleeps_when_the_output_is_that_of_one_timeline(schedule, preferences):
    """Goal: the invariants of ``protocol.recovery`` hold with floors.

    Method: as in ``test_recovery_model``; some generations go back to savepoints. In the end every
    input up to the newest checkpoint is visible once.
    """
    check(schedule, preferences, RIGHT)


@pytest.mark.parametrize(
    "rules",
    [
        Rules(has_floor=False),
        Rules(records_base_first=False),
        Rules(withdraws=False),
        Rules(discards_first=False),
        Rules(looks_at_timeline=False),
        Rules(finishes_what_was_broken_off=False),
    ],
    ids=str,
)
def test_every_rule_is_needed(rules):
    """Goal: the model above can fail. Method: break one rule, search with a fixed seed."""
    chance = random.Random(1)
    for _ in range(30_000):
        schedule = [(chance.randrange(ACTORS), chance.randint(1, 40)) for _ in range(14)]
        preferences = [chance.randrange(6) for _ in range(ACTORS)]
        try:
            check(schedule, preferences, rules)
        except AssertionError:
            return
    pytest.fail(f"no interleaving breaks {rules}")
