"""A read that is too slow for one tick is taken by a later one; a tick never waits for ever."""

import threading
from concurrent.futures import Future

import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.sensors.background import BackgroundReads, Patience, StillReadingError


def test_a_fast_read_is_answered_at_once() -> None:
    assert BackgroundReads().read("facts", lambda: 42) == 42


def test_a_slow_read_goes_on_and_is_taken_later() -> None:
    reads, answer, calls = BackgroundReads(wait_ms=10), threading.Event(), []

    def slow() -> str:
        calls.append(1)
        assert answer.wait(10)
        return "read"

    for _ in range(2):
        with pytest.raises(StillReadingError, match=r"has not answered within 0\.01 s"):
            reads.read("choice", slow)
    answer.set()
    patient = BackgroundReads()
    patient._running = reads._running
    assert patient.read("choice", slow) == "read"
    assert calls == [1]


def test_another_read_does_not_wait_for_it() -> None:
    reads, answer = BackgroundReads(wait_ms=10), threading.Event()
    with pytest.raises(StillReadingError):
        reads.read("choice", lambda: answer.wait(10))
    assert reads.read("facts", lambda: 7) == 7
    answer.set()


def test_another_read_does_not_make_it_begin_anew() -> None:
    reads, answer, calls = BackgroundReads(wait_ms=10), threading.Event(), []

    def slow() -> int:
        calls.append(1)
        assert answer.wait(10)
        return 42

    with pytest.raises(StillReadingError):
        reads.read("choice", slow)
    answer.set()
    reads._running["choice"].result(10)
    patient = BackgroundReads()
    patient._running = reads._running
    assert patient.read("facts", lambda: 7) == 7
    assert patient.read("choice", slow) == 42
    assert calls == [1]


def test_what_nobody_asks_for_any_more_is_forgotten() -> None:
    reads = BackgroundReads(wait_ms=0)
    never = threading.Event()
    for generation in range(20):
        with pytest.raises(StillReadingError):
            reads.read(("choice", generation), lambda: never.wait(0.2))
    assert len(reads._running) == 4


def test_a_failure_is_raised_once_and_then_forgotten() -> None:
    reads, answers = BackgroundReads(), [StorageUnavailable(ErrorCode.STORE_IO, "down"), None]

    def read() -> str:
        if problem := answers.pop(0):
            raise problem
        return "up"

    with pytest.raises(StorageUnavailable, match="down"):
        reads.read("facts", read)
    assert reads.read("facts", read) == "up"


def test_reads_of_a_tick_that_has_no_patience_left_go_on_for_the_next_one() -> None:
    answer, patience = threading.Event(), Patience(wait_ms=0)
    reads = [BackgroundReads(patience=patience) for _ in range(2)]
    for each in reads:
        with pytest.raises(StillReadingError):
            each.read("facts", lambda: answer.wait(10))
        assert each.is_reading
    answer.set()
    for each in reads:
        assert each._running["facts"].result(10)
        assert not each.is_reading
        assert each.read("facts", bool)


def test_patience_is_used_up_by_all_reads_together_and_is_renewed_by_a_tick() -> None:
    patience, slow, quick = Patience(wait_ms=5), Future[int](), Future[int]()
    assert not patience.wait(slow, 20)
    assert not patience.wait(slow, 20)
    quick.set_result(7)
    assert patience.wait(quick, 20)
    patience.renew()
    assert not patience.wait(slow, 0)
