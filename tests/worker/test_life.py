"""Signs of life come from a thread of their own and say what the loop is doing."""

import threading

import pytest

from laminar_core.errors import ErrorCode, FencedError
from laminar_core.host.clock import ManualClock
from laminar_core.link.messages import Alive, decode_to_coordinator
from laminar_core.worker.life import Activity, SignsOfLife, living


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def activity(clock: ManualClock) -> Activity:
    return Activity(clock)


def test_a_loop_that_waits_is_at_nothing(activity: Activity) -> None:
    assert activity.sign(3, 1) == Alive(generation=3, worker=1)
    activity.begin_step()
    activity.enter("slow")
    activity.rest()
    assert activity.sign(3, 1) == Alive(generation=3, worker=1)


def test_a_step_and_its_operator_are_timed_apart(activity: Activity, clock: ManualClock) -> None:
    activity.begin_step()
    activity.enter("first")
    clock.wait_ms(100)
    activity.enter("second")
    clock.wait_ms(20)
    activity.enter("second")  # It goes on.
    clock.wait_ms(3)
    sign = activity.sign(3, 1)
    assert (sign.operator_id, sign.operator_ms, sign.step_ms) == ("second", 23, 123)


def test_the_time_of_each_operator_adds_up(activity: Activity, clock: ManualClock) -> None:
    """Waiting and the worker's own work belong to no operator."""
    for _ in range(2):
        activity.begin_step()
        clock.wait_ms(7)
        activity.enter("first")
        clock.wait_ms(100)
        activity.enter("second")
        clock.wait_ms(20)
        activity.begin_step()
        activity.enter("first")
        clock.wait_ms(3)
        activity.rest()
        clock.wait_ms(1_000)
    assert (activity.busy_ms("first"), activity.busy_ms("second")) == (206, 40)
    assert activity.busy_ms("third") == 0


def test_what_happens_outside_a_step_is_one_of_its_own(
    activity: Activity, clock: ManualClock
) -> None:
    activity.enter("late")
    clock.wait_ms(5)
    assert activity.sign(3, 1).step_ms == 5


def test_a_coordinator_that_refuses_the_sign_is_left_to_the_loop(activity: Activity) -> None:
    def refuse(message: bytes) -> None:
        raise FencedError(ErrorCode.FENCED, str(message))

    SignsOfLife(3, 1, activity, refuse).beat()


def test_the_thread_speaks_while_the_loop_is_in_a_function_and_ends_with_it(
    activity: Activity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laminar_core.worker.life.SIGN_INTERVAL_MS", 1)
    heard, spoken = [], threading.Event()

    def send(message: bytes) -> None:
        heard.append(decode_to_coordinator(message))
        spoken.set()

    with living(SignsOfLife(3, 1, activity, send)):
        activity.begin_step()
        activity.enter("slow")
        while not (heard and heard[-1].operator_id == "slow"):  # The function: it returns late.
            spoken.wait()
            spoken.clear()
    count = len(heard)
    assert not any(thread.name == "laminar-life" for thread in threading.enumerate())
    assert len(heard) == count
