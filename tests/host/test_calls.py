"""Coroutines in a thread: results, errors, and an end that cancels what still runs."""

import asyncio
from threading import Event, active_count

import pytest

from laminar_core.host.calls import ThreadCalls

MAX_S = 20


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fails() -> None:
    message = "on purpose"
    raise ValueError(message)


def test_results_and_errors_come_back_and_each_is_told() -> None:
    calls, told = ThreadCalls(), Event()
    calls.on_done = told.set
    assert calls.next_due_ms() is None
    answer, failed = calls.start(double(4)), calls.start(fails())
    assert answer.result(MAX_S) == 8
    with pytest.raises(ValueError, match="on purpose"):
        failed.result(MAX_S)
    assert told.wait(MAX_S)
    calls.turn()
    calls.close()


def test_the_end_cancels_calls_and_their_thread() -> None:
    calls, before, ended, began = ThreadCalls(), active_count(), Event(), Event()

    async def for_ever() -> None:
        try:
            began.set()
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    answer = calls.start(for_ever())
    assert began.wait(MAX_S)
    calls.close()
    assert ended.is_set()
    assert answer.cancelled()
    assert active_count() == before


def test_a_task_that_exits_ends_neither_the_thread_nor_other_calls() -> None:
    calls = ThreadCalls()

    async def exits() -> None:
        raise SystemExit

    failed = calls.start(exits())
    with pytest.raises(SystemExit):
        failed.result(MAX_S)
    assert calls.start(double(4)).result(MAX_S) == 8
    calls.close()


def test_without_a_call_there_is_no_thread() -> None:
    before = active_count()
    ThreadCalls().close()
    assert active_count() == before
