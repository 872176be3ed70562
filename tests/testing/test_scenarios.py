"""Every scenario can be built twice, and says whether it may be rescaled."""

import pytest

from laminar_core.testing.scenarios import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_equal_jobs_have_ledgers_of_their_own_and_one_fingerprint(name):
    one, two = SCENARIOS[name](2), SCENARIOS[name](2)
    assert one.plan.descriptions() == two.plan.descriptions()
    assert all(one.ledgers[sink] is not two.ledgers[sink] for sink in one.ledgers)
    assert all(one.expected.values())


def test_only_jobs_whose_answer_depends_on_the_workers_and_loops_are_not_rescaled():
    fixed = {name for name, build in SCENARIOS.items() if not build(2).rescales}
    assert fixed == {"broadcast", "broadcast-keyed", "loop", "enrich-loop"}
