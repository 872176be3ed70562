"""In no order of events does a worker begin too early or never, and the mutants are caught."""

import pytest

from verification.greetings import GREETING_MUTANTS, GREETING_WORLDS, explore_greetings


@pytest.mark.parametrize("name", GREETING_WORLDS)
def test_workers_begin_when_all_have_reached_each_other_and_not_before(name: str) -> None:
    world = GREETING_WORLDS[name]
    report = explore_greetings(world)
    assert report.violations == ()
    assert (report.begun > 0) is not bool(world.cut)


@pytest.mark.parametrize("name", GREETING_MUTANTS)
def test_a_world_without_one_of_the_rules_is_caught(name: str) -> None:
    assert explore_greetings(GREETING_MUTANTS[name]).violations
