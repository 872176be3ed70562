"""One watermark of several virtual channels: the least, known when all are, and never too early."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laminar_core.protocol.types import Batch, ChannelId, Idle, Watermark
from laminar_core.protocol.virtual_channels import ChannelTime, VirtualChannels
from laminar_core.protocol.watermarks import WatermarkGate

ROWS = Batch("rows")


@pytest.mark.parametrize(
    ("at_cut", "time"),
    [
        ([(5, False), (9, False)], (5, False)),
        ([(5, True), (9, False)], (5, False)),
        ([(5, True), (9, True)], (5, True)),
        ([(None, False), (9, False)], (None, False)),
        ([(None, True), (9, True)], (None, False)),
    ],
    ids=["least", "active if any is", "idle if all are", "unknown", "unknown is not idle"],
)
def test_several_channels_are_one(at_cut: list[ChannelTime], time: ChannelTime) -> None:
    assert VirtualChannels(at_cut).time == time


def test_a_watermark_goes_on_only_as_far_as_all_have_come() -> None:
    channels = VirtualChannels([(5, False), (9, False)])
    assert channels.take(0, Watermark(7)) == [Watermark(7)]
    assert channels.take(0, Watermark(20)) == [Watermark(9)]
    assert channels.take(0, Watermark(30)) == []
    assert channels.take(1, Watermark(25)) == [Watermark(25)]
    assert channels.take(1, Watermark(3)) == []


def test_nothing_goes_on_until_each_has_a_watermark() -> None:
    channels = VirtualChannels([(None, False), (None, False)])
    assert channels.take(0, Watermark(7)) == []
    assert channels.take(0, ROWS) == [ROWS]
    assert channels.take(1, Watermark(4)) == [Watermark(4)]


def test_all_are_idle_before_the_new_channel_is() -> None:
    channels = VirtualChannels([(5, False), (9, False)])
    assert channels.take(0, Idle()) == []
    assert channels.take(1, Idle()) == [Idle()]
    assert channels.take(1, Idle()) == []


def test_rows_that_somebody_else_gets_end_the_idleness_too() -> None:
    """Else the new channel would not be waited for although old rows are to come on it."""
    channels = VirtualChannels([(5, True), (9, True)])
    assert channels.take(1, ROWS) == [Watermark(5), ROWS]
    assert channels.take(1, ROWS) == [ROWS]


ELEMENTS = st.lists(
    st.one_of(st.integers(0, 30).map(Watermark), st.just(Idle()), st.just(ROWS)), max_size=8
)
TIMES = st.tuples(st.none() | st.integers(0, 30), st.booleans())


@given(st.lists(st.tuples(TIMES, ELEMENTS), min_size=1, max_size=4))
def test_the_new_channel_is_never_ahead_of_a_virtual_one_that_is_not_finished(channels) -> None:
    """As a gate sees it: what it knows after any element is the least of what each has said."""
    virtual = VirtualChannels([time for time, _ in channels])
    gate = WatermarkGate([ChannelId(0)])
    watermark_us, idle = virtual.time
    gate.restore([(ChannelId(0), watermark_us, idle)], None)
    least = [watermark_us for (watermark_us, _), _ in channels]
    for number, (_, elements) in enumerate(channels):
        for element in elements:
            if isinstance(element, Watermark):
                least[number] = max(element.time_us, least[number] or 0)
            for carried in virtual.take(number, element):
                if isinstance(carried, Watermark):
                    gate.advance(ChannelId(0), carried.time_us)
                elif isinstance(carried, Idle):
                    gate.mark_idle(ChannelId(0))
            ((_, known, is_idle),) = gate.channels()
            assert known == (None if None in least else min(least))
            assert (known, is_idle) == virtual.time
