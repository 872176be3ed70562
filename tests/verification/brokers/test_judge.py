"""The judge counts what is lost, doubled, foreign or out of order."""

import pytest

from verification.brokers.judge import judge


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({0: [0, 2], 1: [1, 3]}, {}),
        ({0: [0, 2], 1: [1]}, {"lost": 1}),
        ({0: [0, 2, 2], 1: [1, 3, 1]}, {"doubled": 2, "disordered": 1}),
        ({0: [2, 0], 1: [1, 3]}, {"disordered": 1}),
        ({0: [0, 2, 9], 1: [1, 3]}, {"foreign": 1}),
        ({}, {"lost": 4}),
    ],
)
def test_everything_that_is_wrong_is_counted(found, wrong) -> None:
    verdict = judge(range(4), found, fired=1)
    counted = {name: count for name, count in verdict.as_dict().items() if count}
    assert counted == {"rows": 4, "fired": 1, **wrong}
    assert verdict.is_exact is (not wrong)


def test_an_error_that_should_not_have_come_is_not_exact() -> None:
    assert not judge((), {}, problem="oops").is_exact
