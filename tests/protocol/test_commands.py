"""Commands are carried out once, in order, by whom they are for, in time; C1 to C4."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.protocol.commands import (
    Answer,
    Begin,
    CommandFacts,
    ModeChange,
    ModeRefused,
    decide_commands,
    decide_mode,
)
from laminar_core.protocol.types import Generation

NOW_MS = 1_000
G1, G2, G3 = Generation(1), Generation(2), Generation(3)
FOR_2 = CommandFacts(number=1, addressed_to=G2, expires_ms=NOW_MS + 1)


def decide(command: CommandFacts, generation: Generation = G2) -> Begin | Answer | None:
    return next(iter(decide_commands([command], generation, NOW_MS)), None)


def verdict(command: CommandFacts, generation: Generation = G2) -> str | None:
    decision = decide(command, generation)
    return decision.verdict if isinstance(decision, Answer) else None


class TestDecisions:
    def test_what_is_for_this_generation_and_in_time_is_begun(self):
        assert decide(FOR_2) == Begin(1)

    def test_what_is_for_an_older_generation_is_refused(self):
        assert verdict(FOR_2, G3) == "refused"

    def test_what_is_for_a_later_generation_is_left_to_it(self):
        assert decide(FOR_2, G1) is None

    def test_what_comes_too_late_expires(self):
        assert verdict(replace(FOR_2, expires_ms=NOW_MS)) == "expired"

    def test_what_was_begun_in_time_does_not_expire(self):
        assert decide(replace(FOR_2, expires_ms=NOW_MS, begun_by=G2)) == Begin(1)

    def test_what_an_earlier_generation_had_begun_is_answered_as_interrupted(self):
        assert verdict(replace(FOR_2, begun_by=G2), G3) == "interrupted"

    def test_what_a_later_generation_has_begun_is_left_to_it(self):
        assert decide(replace(FOR_2, begun_by=G3)) is None

    def test_what_is_under_way_is_left_alone(self):
        assert decide(replace(FOR_2, begun_by=G2, started=True)) is None

    def test_what_cannot_be_read_is_refused_with_the_reason(self):
        decision = decide(CommandFacts(number=1, problem="no JSON"))
        assert decision == Answer(1, "refused", "no JSON")

    def test_the_order_is_that_of_the_numbers(self):
        commands = [replace(FOR_2, number=n) for n in (3, 1, 2)]
        assert decide_commands(commands, G2, NOW_MS) == (Begin(1), Begin(2), Begin(3))


@dataclass
class Driver:
    """One generation, between its steps: it has read, or it has begun."""

    generation: Generation
    plan: list[Begin | Answer] = field(default_factory=list)
    started: set[int] = field(default_factory=set)


@dataclass
class World:
    """The store, and what was done."""

    commands: dict[int, CommandFacts]
    begun: dict[int, Generation] = field(default_factory=dict)
    results: dict[int, tuple[Generation, str]] = field(default_factory=dict)
    done: list[tuple[int, Generation]] = field(default_factory=list)

    def read(self, driver: Driver) -> None:
        facts = [
            replace(command, begun_by=self.begun.get(n), started=n in driver.started)
            for n, command in self.commands.items()
            if n not in self.results
        ]
        driver.plan = list(decide_commands(facts, driver.generation, NOW_MS))

    def act(self, driver: Driver) -> None:
        """The next create, which somebody else may have been faster with, and what follows."""
        decision = driver.plan.pop(0)
        n = decision.number
        if isinstance(decision, Answer) and decision.verdict == "interrupted":
            self.results.setdefault(n, (driver.generation, decision.verdict))
        elif self.begun.setdefault(n, driver.generation) != driver.generation:
            return  # Somebody else was faster: it is read again.
        elif isinstance(decision, Answer):
            self.results.setdefault(n, (driver.generation, decision.verdict))
        else:
            driver.started.add(n)
            self.done.append((n, driver.generation))

    def finish(self, driver: Driver) -> None:
        for n in driver.started:
            self.results.setdefault(n, (driver.generation, "completed"))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 1)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["read", "act", "finish"])), max_size=60),
)
def test_invariants_hold_whoever_is_awake(commands, schedule):
    world = World(
        {
            n: CommandFacts(n, Generation(generation), NOW_MS + early)
            for n, (generation, early) in enumerate(commands, 1)
        }
    )
    drivers = [Driver(generation) for generation in (G1, G2, G3)]
    for index, step in schedule:
        driver = drivers[index]
        if step == "read":
            world.read(driver)
        elif step == "finish":
            world.finish(driver)
        elif driver.plan:
            world.act(driver)
    done = [number for number, _ in world.done]
    assert len(done) == len(set(done)), "C1: done twice"
    for number, generation in world.done:
        command = world.commands[number]
        assert command.addressed_to == generation, "C3: for somebody else"
        assert command.expires_ms > NOW_MS, "C3: too late"
    for number, (generation, outcome) in world.results.items():
        if outcome == "interrupted":
            assert world.begun[number] < generation, "C2: interrupted without having begun"
        if outcome in ("refused", "expired"):
            late = [g for n, g in world.done if n == number]
            assert not late, "said not to be done, and done"
    for driver in drivers:
        mine = [n for n, generation in world.done if generation == driver.generation]
        assert mine == sorted(mine), "C4: out of order"


class TestModes:
    @pytest.mark.parametrize(
        ("requested", "timeout_ms"),
        [("aligned", None), ("unaligned", 0), ("default", 30_000), (5_000, 5_000), (0, 0)],
    )
    def test_they_are_timeouts(self, requested, timeout_ms):
        assert decide_mode(requested, 30_000, 1) == ModeChange(timeout_ms)

    def test_overlapping_checkpoints_only_align(self):
        assert isinstance(decide_mode("unaligned", None, 2), ModeRefused)
        assert isinstance(decide_mode(100, None, 2), ModeRefused)
        assert decide_mode("aligned", None, 2) == ModeChange(None)
        assert decide_mode("default", None, 2) == ModeChange(None)
