"""Workers begin once all greetings have arrived, and whose stay away are named."""

from dataclasses import replace

from laminar_core.protocol.greetings import (
    GREETING_INTERVAL_MS,
    EndUnreachable,
    Greet,
    GreetingArrived,
    Greetings,
    LetBegin,
    Registered,
    Report,
    Reported,
    SendAddresses,
    TimePassed,
    WorkerGreetings,
    step,
    worker_step,
)

NONE = frozenset[int]()


def after(*events, workers: int = 2, limit_ms: float = 100.0):
    """The state after these events, and all effects on the way."""
    state, effects = Greetings(workers, limit_ms), []
    for event in events:
        state, new = step(state, event)
        effects += new
    return state, effects


REGISTERED = (Registered(1, 5.0), Registered(0, 7.0))


def test_addresses_are_sent_once_all_have_registered() -> None:
    assert after(REGISTERED[0])[1] == []
    assert after(*REGISTERED)[1] == [SendAddresses()]
    assert after(*REGISTERED, Registered(1, 8.0))[1] == [SendAddresses()]


def test_all_begin_after_the_last_report_and_once() -> None:
    _, effects = after(*REGISTERED, Reported(0, NONE), Reported(0, NONE))
    assert LetBegin() not in effects
    _, effects = after(*REGISTERED, Reported(0, NONE), Reported(1, NONE), Reported(1, NONE))
    assert effects == [SendAddresses(), LetBegin()]


def test_a_worker_alone_begins_at_once() -> None:
    _, effects = after(Registered(0, 1.0), workers=1)
    assert effects == [SendAddresses(), LetBegin()]


def test_the_newest_report_of_a_worker_counts() -> None:
    partial = Reported(1, frozenset({0}))
    _, effects = after(*REGISTERED, partial, Reported(0, NONE), Reported(1, NONE))
    assert effects[-1] == LetBegin()


def test_missing_pairs_are_named_after_the_limit_and_nobody_begins_any_more() -> None:
    three = (*REGISTERED, Registered(2, 10.0))
    heard = (Reported(0, NONE), Reported(1, frozenset({2})))
    state, effects = after(*three, *heard, TimePassed(110.0), workers=3)
    assert effects == [SendAddresses()]
    state, (late,) = step(state, TimePassed(110.5))
    assert late == EndUnreachable(((2, 1), (0, 2), (1, 2)), 100.5)
    for event in (TimePassed(500.0), Reported(1, NONE), Reported(2, NONE)):
        state, effects = step(state, event)
        assert effects == ()


def test_the_limit_begins_when_all_have_registered() -> None:
    _, effects = after(REGISTERED[0], TimePassed(1e9), replace(REGISTERED[1], now_ms=1e9))
    assert effects == [SendAddresses()]


class TestWorker:
    def test_it_greets_at_once_and_again_after_an_interval(self) -> None:
        state, effects = worker_step(WorkerGreetings(0, 3, report_due_ms=5.0), TimePassed(5.0))
        assert effects == (Greet(),)
        state, effects = worker_step(state, TimePassed(4.0 + GREETING_INTERVAL_MS))
        assert effects == ()
        _, effects = worker_step(state, TimePassed(5.0 + GREETING_INTERVAL_MS))
        assert effects == (Greet(),)

    def test_the_last_greeting_is_reported_at_once_and_once(self) -> None:
        state = WorkerGreetings(0, 3)
        state, effects = worker_step(state, GreetingArrived(2))
        assert effects == ()
        state, effects = worker_step(state, GreetingArrived(1))
        assert effects == (Report(NONE),)
        _, effects = worker_step(state, GreetingArrived(1))
        assert effects == ()

    def test_some_that_arrived_are_reported_while_others_stay_away(self) -> None:
        state, _ = worker_step(WorkerGreetings(0, 3), GreetingArrived(2))
        state, effects = worker_step(state, TimePassed(1.0))
        assert effects == (Report(frozenset({1})), Greet())
        _, effects = worker_step(state, TimePassed(1.0 + GREETING_INTERVAL_MS))
        assert effects == (Greet(),)

    def test_a_greeting_of_nobody_has_no_effect(self) -> None:
        state = WorkerGreetings(0, 2)
        for sender in (0, 2, -1, 65_535):
            assert worker_step(state, GreetingArrived(sender)) == (state, ())
