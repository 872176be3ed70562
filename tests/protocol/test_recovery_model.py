"""Invariants I1 to I4 of ``protocol.recovery``, over interleavings of several generations."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.protocol.recovery import (
    ReadManifest,
    Refuse,
    RestoreFrom,
    StartFresh,
    VerifyFiles,
    commits_to_redrive,
    decide_restore,
)
from laminar_core.protocol.recovery_facts import (
    Absent,
    Base,
    Readable,
    RestoreFacts,
    RestoreRequest,
)
from laminar_core.protocol.types import CheckpointId, Generation
from tests.sampling import drawn

CLOSED = -1
"""Stands for a base that a later generation closed."""

File = tuple[int, int]
"""Pre-committed output: (generation that wrote it, input that it covers)."""


@dataclass(frozen=True)
class Manifest:
    generation: int
    parent: int | None
    input_read: int
    files: frozenset[File]


@dataclass
class Store:
    """The durable state. Each method is one atomic step of the real store, or less."""

    claims: set[int] = field(default_factory=set)
    bases: dict[int, int | None] = field(default_factory=dict)
    triggers: dict[int, int] = field(default_factory=dict)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    visible: set[File] = field(default_factory=set)
    records: set[int] = field(default_factory=set)

    def newest(self) -> int:
        return max(self.claims, default=0)

    def commit(self, checkpoint_id: int) -> None:
        """Make output visible; the same file again changes nothing."""
        self.visible |= self.manifests[checkpoint_id].files
        times = Counter(number for _, number in self.visible)
        assert max(times.values()) == 1, f"output of one input is there twice: {self.visible}"


@dataclass(frozen=True)
class Rules:
    """Which steps a generation takes; every change from the default is a mistake."""

    closes_older: bool = True
    checks_after_publishing: bool = True
    lists_after_claiming: bool = True
    records_base: bool = True
    honours_timeline: bool = True


RIGHT = Rules()


def run(store: Store, rules: Rules, given_up: frozenset[int]) -> Iterator[None]:
    """One generation; every ``yield`` is a place where it may sleep, for ever.

    ``given_up`` says which of its checkpoints are declined though the manifest was written (the
    answer of the store got lost); the next one carries their output.
    """
    generation = store.newest() + 1
    facts = None if rules.lists_after_claiming else listed(store, rules)
    yield
    if generation in store.claims:
        return
    store.claims.add(generation)
    yield
    if rules.closes_older:
        for older in sorted(store.claims - store.bases.keys() - {generation}):
            if older < generation:
                store.bases.setdefault(older, CLOSED)
                yield
    if facts is None:
        facts = yield from listed_slowly(store, rules)
    chosen, facts = yield from restore(store, facts)
    if rules.records_base:
        if generation in store.bases:
            return  # Closed: a later generation was faster.
        store.bases[generation] = chosen
    yield
    if chosen is not None:
        for checkpoint_id in commits_to_redrive(facts, CheckpointId(chosen)):
            yield from commit(store, checkpoint_id)
    yield from work(store, rules, generation, chosen, given_up)


def listed(store: Store, rules: Rules) -> RestoreFacts:
    return list(_steps(store, rules))[-1]


def listed_slowly(store: Store, rules: Rules):
    steps = _steps(store, rules)
    facts = next(steps)
    for more in steps:
        yield
        facts = more
    return facts


def _steps(store: Store, rules: Rules) -> Iterator[RestoreFacts]:
    """Bases, commit records and checkpoints, one after the other, as the real store lists them."""
    bases = tuple(
        Base(Generation(g), None if base is None else CheckpointId(base))
        for g, base in sorted(store.bases.items())
        if base != CLOSED and rules.honours_timeline
    )
    yield RestoreFacts(frozenset(), bases)
    committed = frozenset(CheckpointId(c) for c in store.records)
    yield RestoreFacts(frozenset(), bases, committed)
    candidates = frozenset(CheckpointId(c) for c in store.triggers)
    yield RestoreFacts(candidates, bases, committed)


def restore(store: Store, facts: RestoreFacts):
    """Answer the questions of the decision; return what is restored, and the facts."""
    while True:
        match decide_restore(facts, RestoreRequest()):
            case ReadManifest(checkpoint_id):
                fact = fact_of(store.manifests.get(checkpoint_id))
                facts = replace(facts, manifests={**facts.manifests, checkpoint_id: fact})
                yield
            case VerifyFiles(checkpoint_id):
                facts = replace(facts, damage={**facts.damage, checkpoint_id: None})
                yield
            case RestoreFrom(checkpoint_id, committed_beyond=beyond):
                assert not beyond, "output would come again"
                return checkpoint_id, facts
            case StartFresh():
                return None, facts
            case Refuse(reason):
                raise AssertionError(reason)


def fact_of(manifest: Manifest | None) -> Absent | Readable:
    if manifest is None:
        return Absent()
    parent = None if manifest.parent is None else CheckpointId(manifest.parent)
    return Readable(Generation(manifest.generation), parent)


def commit(store: Store, checkpoint_id: int) -> Iterator[None]:
    store.commit(checkpoint_id)
    yield
    store.records.add(checkpoint_id)
    yield


def work(
    store: Store, rules: Rules, generation: int, parent: int | None, given_up: frozenset[int]
) -> Iterator[None]:
    """Three checkpoints, each reading one more input."""
    input_read = 0 if parent is None else store.manifests[parent].input_read
    carried: frozenset[File] = frozenset()
    for attempt in range(3):
        input_read += 1
        carried |= {(generation, input_read)}
        checkpoint_id = max(store.triggers, default=0) + 1
        yield
        while checkpoint_id in store.triggers:
            checkpoint_id += 1
        store.triggers[checkpoint_id] = generation
        yield
        if not rules.checks_after_publishing and store.newest() > generation:
            return
        yield
        store.manifests[checkpoint_id] = Manifest(generation, parent, input_read, carried)
        yield
        if attempt in given_up:
            continue
        if rules.checks_after_publishing and store.newest() > generation:
            return
        yield
        yield from commit(store, checkpoint_id)
        parent, carried = checkpoint_id, frozenset()


def check(schedule: list[tuple[int, int]], given_up: list[frozenset[int]], rules: Rules) -> None:
    """Let generations take ``(who, steps)`` in turn; then recover once more, undisturbed."""
    store = Store()
    generations = [run(store, rules, choice) for choice in given_up]
    for who, steps in schedule:
        for _ in range(steps):
            next(generations[who], None)
    for _ in run(store, rules, frozenset()):
        pass
    newest = store.manifests[max(store.records)]
    inputs = sorted(number for _, number in store.visible)
    assert inputs == list(range(1, newest.input_read + 1)), "output is missing"


ACTORS = 4
SCHEDULES = st.lists(st.tuples(st.integers(0, ACTORS - 1), st.integers(1, 30)), max_size=14)
GIVEN_UP = st.lists(st.frozensets(st.integers(0, 2), max_size=1), min_size=ACTORS, max_size=ACTORS)


@settings(max_examples=drawn(1_500), deadline=None, derandomize=True)
@given(SCHEDULES, GIVEN_UP)
def test_whoever_sleeps_when_every_output_is_visible_once_and_none_is_missing(schedule, given_up):
    """Goal: I1 to I4.

    Method: four generations take steps as Hypothesis says and may stop anywhere, for ever; each
    becomes a zombie when a later one claims the job. ``Store.commit`` checks after every step that
    no input is covered twice; a last generation runs undisturbed and must find all output there.
    """
    check(schedule, given_up, RIGHT)


@pytest.mark.parametrize(
    "rules",
    [
        Rules(closes_older=False),
        Rules(checks_after_publishing=False),
        Rules(lists_after_claiming=False),
        Rules(records_base=False),
        Rules(honours_timeline=False),
    ],
    ids=str,
)
def test_every_rule_is_needed(rules):
    """Goal: the model above can fail. Method: break one rule, search with a fixed seed."""
    chance = random.Random(1)
    for _ in range(60_000):
        schedule = [(chance.randrange(ACTORS), chance.randint(1, 30)) for _ in range(14)]
        given_up = [frozenset({chance.randrange(3)}) for _ in range(ACTORS)]
        try:
            check(schedule, given_up, rules)
        except AssertionError:
            return
    pytest.fail(f"no interleaving breaks {rules}")
