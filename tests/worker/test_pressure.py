"""Backpressure is the time for which a task saw an output full."""

import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.worker.channels import OUTPUT_QUEUE_BATCHES, OutputChannel
from laminar_core.worker.outputs import EdgeOutput
from laminar_core.worker.pressure import OutputRoom
from tests.worker.task_bench import rows


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def channels() -> list[OutputChannel]:
    return [OutputChannel(lambda _: None), OutputChannel(lambda _: None)]


@pytest.fixture
def room(channels: list[OutputChannel], clock: ManualClock) -> OutputRoom:
    outputs = [
        EdgeOutput(lambda batch: ((0, batch),), {0: channel}, may_overtake=True)
        for channel in channels
    ]
    return OutputRoom(outputs, clock)


def fill(channel: OutputChannel) -> None:
    for _ in range(OUTPUT_QUEUE_BATCHES):
        channel.put(rows(1))


def test_a_task_without_a_full_output_is_not_held_back(room: OutputRoom, clock) -> None:
    assert room.is_there()
    clock.wait_ms(100)
    assert room.is_there()
    assert room.full_ms() == 0


def test_one_full_output_holds_the_task_back_until_it_has_room(room, channels, clock) -> None:
    fill(channels[1])
    assert not room.is_there()
    clock.wait_ms(100)
    assert not room.is_there()
    assert room.full_ms() == 100
    channels[1].flush()
    clock.wait_ms(20)
    assert room.is_there()  # Now the task sees it.
    clock.wait_ms(1_000)
    assert room.full_ms() == 120


def test_times_add_up(room, channels, clock) -> None:
    for _ in range(2):
        fill(channels[0])
        room.is_there()
        clock.wait_ms(50)
        channels[0].flush()
        room.is_there()
        clock.wait_ms(7)
    assert room.full_ms() == 100


def test_a_task_without_outputs_has_room(clock) -> None:
    assert OutputRoom([], clock).is_there()
