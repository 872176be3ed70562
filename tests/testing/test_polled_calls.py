"""Coroutines by a simulated clock: they go on when they are asked to, and at no other time."""

import asyncio

import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.testing.polled_calls import PolledCalls


async def doze(seconds: float, number: int) -> int:
    await asyncio.sleep(seconds)
    return number


def test_a_call_ends_when_the_clock_has_come_so_far_and_it_is_asked_to() -> None:
    clock = ManualClock(1_000)
    calls, told = PolledCalls(clock), []
    calls.on_done = lambda: told.append(clock.now_ms())
    later, sooner = calls.start(doze(0.5, 1)), calls.start(doze(0.2, 2))
    assert calls.next_due_ms() == 1_200
    clock.wait_ms(201)
    assert not sooner.done()
    calls.turn()
    assert sooner.result() == 2
    assert not later.done()
    assert calls.running_count == 1
    clock.wait_ms(300)
    calls.turn()
    assert later.result() == 1
    assert told == [1_201, 1_501]
    assert calls.next_due_ms() is None


def test_what_need_not_wait_ends_at_once() -> None:
    calls = PolledCalls(ManualClock())
    assert calls.start(doze(0, 3)).result() == 3


def test_timeouts_and_groups_of_calls_work() -> None:
    clock = ManualClock()
    calls = PolledCalls(clock)

    async def both() -> list[int]:
        async with asyncio.timeout(1):
            return list(await asyncio.gather(doze(0.1, 1), doze(0.2, 2)))

    async def too_long() -> int:
        async with asyncio.timeout(0.1):
            return await doze(5, 1)

    found, late = calls.start(both()), calls.start(too_long())
    clock.wait_ms(300)
    calls.turn()
    assert found.result() == [1, 2]
    with pytest.raises(TimeoutError):
        late.result()


def test_the_end_cancels_calls() -> None:
    calls = PolledCalls(ManualClock())
    answer = calls.start(doze(1, 1))
    calls.close()
    assert answer.cancelled()
    assert calls.running_count == 0
