"""Slow is not dead, stopped is dead, and a loop that hangs is neither."""

import pytest

from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.liveness import AT_WORK_REPORTED_MS, Liveness
from laminar_core.errors import ErrorCode
from laminar_core.link.messages import Alive

DEADLINES = Deadlines(silence_ms=30_000, progress_ms=600_000)


@pytest.fixture
def liveness() -> Liveness:
    found = Liveness(DEADLINES)
    for worker in (0, 1):
        found.heard(worker, 0)
    return found


def sign(operator_ms: float, operator_id: str = "slow", step_ms: float | None = None) -> Alive:
    return Alive(
        generation=1,
        worker=1,
        operator_id=operator_id,
        operator_ms=operator_ms,
        step_ms=operator_ms if step_ms is None else step_ms,
    )


def test_a_worker_that_is_slow_lives(liveness: Liveness) -> None:
    for second in range(1, 600):
        for worker in (0, 1):
            liveness.heard(worker, second * 1000.0)
        liveness.take(sign(second * 1000.0))
        assert liveness.lost(second * 1000.0) is None


def test_one_from_which_nothing_comes_is_dead(liveness: Liveness) -> None:
    liveness.heard(0, 30_001)
    assert liveness.lost(30_000) is None
    lost = liveness.lost(31_000)
    assert lost is not None
    assert (lost.code, lost.idle_ms) == (ErrorCode.WORKER_LOST, 31_000)
    assert lost.reason == "worker 1: no sign of life for 31 s"


def test_one_that_hangs_is_named_with_its_operator(liveness: Liveness) -> None:
    liveness.take(sign(600_001, step_ms=600_003))
    lost = liveness.lost(1_000)
    assert lost is not None
    assert (lost.code, lost.idle_ms) == (ErrorCode.NO_PROGRESS, 600_003)
    assert lost.reason == (
        "worker 1: operator 'slow' has been at work for 600 s, and the batch for 600 s; if it does "
        "not hang, give it more time (--progress-timeout)"
    )


def test_a_step_that_hangs_outside_the_operators_ends_it_too(liveness: Liveness) -> None:
    liveness.take(sign(600_001, operator_id=""))
    lost = liveness.lost(1_000)
    assert lost is not None
    assert "worker 1: the worker itself has been at work" in lost.reason


def test_a_step_that_is_over_is_forgotten(liveness: Liveness) -> None:
    liveness.take(sign(600_001))
    liveness.take(Alive(generation=1, worker=1))
    assert liveness.lost(1_000) is None


def test_an_operator_is_reported_when_it_is_slow_and_then_ever_more_rarely(
    liveness: Liveness,
) -> None:
    seconds = [s for s in range(1, 100) if liveness.take(sign(s * 1000.0))]
    assert seconds == [10, 20, 40, 80]
    assert not liveness.take(sign(AT_WORK_REPORTED_MS - 1))  # The next batch begins anew.
    assert liveness.take(sign(AT_WORK_REPORTED_MS))
    assert liveness.take(sign(AT_WORK_REPORTED_MS + 1, "other"))
    assert not liveness.take(sign(1e6, ""))
