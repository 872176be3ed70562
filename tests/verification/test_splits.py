"""In no order of events is a found split lost or read twice, and the mutants are caught."""

import pytest

from verification.splits import MUTANTS, SPLIT_WORLDS, explore_splits


@pytest.mark.parametrize("name", SPLIT_WORLDS)
def test_at_every_cut_each_found_split_is_in_exactly_one_place(name: str) -> None:
    report = explore_splits(SPLIT_WORLDS[name])
    assert report.violations == ()
    assert report.cuts > 100


@pytest.mark.parametrize("name", MUTANTS)
def test_a_world_without_one_of_the_rules_is_caught(name: str) -> None:
    assert explore_splits(MUTANTS[name]).violations
