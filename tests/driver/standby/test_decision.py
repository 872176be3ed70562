"""A standby decides from all that it can know of the newest generation."""

import pytest

from laminar_core.driver.standby.decision import (
    End,
    StandbyBounds,
    StandbyFacts,
    TakeOver,
    Wait,
    decide_standby,
)
from laminar_core.protocol.silence import LOOKS_MIN, Silence
from laminar_core.protocol.types import Generation

BOUNDS = StandbyBounds(silence_ms=10_000, start_ms=120_000, restart_ms=30_000)


def decide(**facts) -> Wait | TakeOver | End:
    return decide_standby(StandbyFacts(**{"generation": Generation(3), **facts}), BOUNDS)


def silent(duration_ms: float, looks: int = LOOKS_MIN) -> Silence:
    return Silence(duration_ms, looks)


def test_a_job_that_never_ran_is_not_started():
    assert decide(generation=None) == Wait("the job has never run")


@pytest.mark.parametrize("owner", ["running", "gone", "unknown"])
@pytest.mark.parametrize("outcome", ["finished", "stopped", "cancelled", "refused", "copied"])
def test_a_generation_that_ended_for_good_ends_the_standby(owner, outcome):
    decision = decide(owner=owner, outcome=outcome, silence=silent(10**9))
    assert isinstance(decision, End)
    assert decision.failed == (outcome == "refused")
    assert outcome in decision.reason


@pytest.mark.parametrize("owner", ["running", "gone", "unknown"])
def test_a_driver_that_gave_up_ends_the_standby(owner):
    decision = decide(owner=owner, outcome="failed", gave_up=True, outcome_reason="no memory")
    assert decision == End("generation 3 failed: no memory", failed=True)


@pytest.mark.parametrize("outcome", [None, "failed"])
def test_a_process_that_is_gone_is_followed_at_once(outcome):
    decision = decide(owner="gone", outcome=outcome)
    reason = "the driver of generation 3 is gone"
    assert decision == TakeOver(Generation(3), reason, owner_may_live=False)


@pytest.mark.parametrize("outcome", [None, "failed"])
def test_a_process_that_lives_is_left_alone_however_silent(outcome):
    decision = decide(owner="running", outcome=outcome, silence=silent(10**9), has_beaten=True)
    assert isinstance(decision, Wait)


@pytest.mark.parametrize(
    ("facts", "bound_ms"),
    [
        ({"has_beaten": True}, 10_000),
        ({"has_beaten": False}, 120_000),
        ({"has_beaten": True, "outcome": "failed"}, 40_000),
        ({"has_beaten": False, "outcome": "failed"}, 40_000),
    ],
    ids=["running", "starting", "restarting", "restarting a start"],
)
def test_a_process_that_nobody_sees_is_lost_once_its_silence_exceeds_its_bound(facts, bound_ms):
    assert isinstance(decide(**facts), Wait)
    assert isinstance(decide(**facts, silence=silent(bound_ms)), Wait)
    decision = decide(**facts, silence=silent(bound_ms + 1))
    assert isinstance(decision, TakeOver)
    assert (decision.expected, decision.owner_may_live) == (3, True)


def test_a_standby_that_was_suspended_does_not_take_its_absence_for_silence():
    waiting = decide(has_beaten=True, silence=silent(10**9, LOOKS_MIN - 1))
    assert isinstance(waiting, Wait)
