"""A driver counts as silent after several looks over a long time, not after one."""

import pytest

from laminar_core.protocol.silence import LOOKS_MIN, NO_SILENCE, Silence


@pytest.mark.parametrize(
    ("duration_ms", "looks"), [(0, 0), (30_000, LOOKS_MIN), (10**9, LOOKS_MIN - 1)]
)
def test_it_may_be_shorter_than_the_limit_or_too_seldom_watched(
    duration_ms: float, looks: int
) -> None:
    assert not Silence(duration_ms, looks).exceeds(30_000)


def test_it_may_be_longer() -> None:
    assert Silence(30_001, LOOKS_MIN).exceeds(30_000)
    assert not NO_SILENCE.exceeds(0)
