"""The times of barriers by channel: what was slow is named, and what never came is named first."""

from laminar_core.host.clock import ManualClock
from laminar_core.protocol.types import NO_CHECKPOINT, ChannelId, CheckpointId
from laminar_core.records.channel_entries import SLOWEST_CHANNELS_MAX
from laminar_core.worker.barrier_waits import BarrierWaits

ONE, TWO = CheckpointId(1), CheckpointId(2)
CHANNELS = [ChannelId(n) for n in range(3)]
SENDERS = {channel: ("sums", int(channel)) for channel in CHANNELS}


def slowest(waits: BarrierWaits, checkpoint_id: CheckpointId) -> list[tuple[int, float | None]]:
    found = waits.slowest_channels(checkpoint_id, CHANNELS, SENDERS)
    return [(channel.input_id, channel.barrier_ms) for channel in found]


def test_alignment_counts_from_the_first_barrier_that_comes() -> None:
    clock = ManualClock()
    waits = BarrierWaits(clock)
    waits.arrived(ONE, NO_CHECKPOINT)
    clock.wait_ms(5)
    waits.arrived(ONE, NO_CHECKPOINT)
    waits.reached(CHANNELS[2], ONE)
    clock.wait_ms(7)
    waits.reached(CHANNELS[0], ONE)
    assert waits.waited_ms(ONE, clock.monotonic_ms()) == 12
    assert waits.waited_ms(TWO, clock.monotonic_ms()) == 0
    assert slowest(waits, ONE) == [(1, None), (0, 12), (2, 5)]
    assert slowest(waits, TWO) == []


def test_a_newer_checkpoint_replaces_an_older_one_and_nothing_goes_back() -> None:
    waits = BarrierWaits(ManualClock())
    waits.arrived(TWO, ONE)
    waits.arrived(ONE, NO_CHECKPOINT)
    waits.reached(CHANNELS[0], ONE)
    assert slowest(waits, TWO) == [(0, None), (1, None), (2, None)]
    late = BarrierWaits(ManualClock())
    late.arrived(ONE, ONE)
    assert slowest(late, ONE) == [], "the task has already cut"


def test_only_the_slowest_are_named_and_only_those_with_a_sender() -> None:
    waits = BarrierWaits(ManualClock())
    waits.arrived(ONE, NO_CHECKPOINT)
    many = [ChannelId(n) for n in range(2 * SLOWEST_CHANNELS_MAX)]
    senders = {channel: ("sums", int(channel)) for channel in many[1:]}
    found = waits.slowest_channels(ONE, many, senders)
    assert [channel.input_id for channel in found] == many[1 : 1 + SLOWEST_CHANNELS_MAX]
