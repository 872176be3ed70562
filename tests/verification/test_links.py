"""In no order of events does a channel lose a frame, repeat one or stand still; mutants do."""

import pytest

from verification.links import LINK_WORLDS, MUTANTS, explore_links


@pytest.mark.large
@pytest.mark.parametrize("name", LINK_WORLDS)
def test_whatever_is_lost_everything_arrives_once_and_in_order(name: str) -> None:
    report = explore_links(LINK_WORLDS[name])
    assert report.violations == ()
    assert report.states > 100


@pytest.mark.parametrize("name", MUTANTS)
def test_a_world_with_a_planted_fault_is_caught(name: str) -> None:
    assert explore_links(MUTANTS[name]).violations
