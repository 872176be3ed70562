"""The combined watermark: minimum, monotone, known only when all have spoken."""

import hypothesis.strategies as st
from hypothesis import given

from laminar_core.protocol.types import WATERMARK_END_US, ChannelId
from laminar_core.protocol.watermarks import WatermarkGate

A, B = ChannelId(0), ChannelId(1)


def test_nothing_is_known_until_every_channel_has_spoken() -> None:
    gate = WatermarkGate([A, B])
    assert gate.advance(A, 10) is None
    assert gate.combined_us is None
    assert gate.advance(B, 7) == 7


def test_the_slowest_channel_decides() -> None:
    gate = WatermarkGate([A, B])
    gate.advance(A, 10)
    gate.advance(B, 7)
    assert gate.advance(A, 20) is None
    assert gate.advance(B, 30) == 20


def test_an_idle_channel_holds_nothing_back_and_a_batch_brings_it_back() -> None:
    gate = WatermarkGate([A, B])
    gate.advance(A, 10)
    assert gate.mark_idle(B) == 10
    gate.mark_active(B)
    assert gate.advance(A, 50) is None
    assert gate.advance(B, 40) == 40


def test_a_finished_channel_holds_nothing_back_and_all_finished_is_the_end_of_time() -> None:
    gate = WatermarkGate([A, B])
    gate.advance(A, 10)
    assert gate.end(B) == 10
    assert gate.end(A) == WATERMARK_END_US


def test_the_end_of_time_waits_for_an_idle_channel() -> None:
    gate = WatermarkGate([A, B])
    gate.advance(A, 10)
    gate.mark_idle(B)
    assert gate.end(A) is None
    assert not gate.ended
    assert gate.end(B) == WATERMARK_END_US
    assert gate.ended


def test_the_last_watermark_of_a_finished_input_is_not_the_end_of_time_of_an_idle_one() -> None:
    gate = WatermarkGate([A, B])
    gate.advance(B, 5)
    gate.mark_idle(B)
    assert gate.advance(A, WATERMARK_END_US) is None  # Travels ahead of the end of its channel.
    assert gate.end(A) is None
    assert gate.advance(B, 7) == 7


def test_a_channel_restored_as_finished_does_not_end_time_for_an_idle_one() -> None:
    gate = WatermarkGate([A, B])
    gate.advance(B, 5)
    gate.mark_idle(B)
    gate.end(A)
    restored = WatermarkGate([A, B])
    restored.restore(gate.channels(), gate.combined_us)
    assert restored.mark_idle(B) is None
    assert restored.end(A) is None
    assert restored.end(B) == WATERMARK_END_US


def test_all_idle_changes_nothing() -> None:
    gate = WatermarkGate([A])
    gate.advance(A, 10)
    assert gate.mark_idle(A) is None
    assert gate.combined_us == 10


def test_it_is_idle_if_whatever_has_not_ended_is() -> None:
    gate = WatermarkGate([A, B])
    gate.mark_idle(A)
    assert not gate.is_idle
    gate.end(B)
    assert gate.is_idle
    gate.mark_active(A)
    assert not gate.is_idle
    gate.end(A)
    assert not gate.is_idle


def test_a_restored_gate_continues_where_it_was() -> None:
    gate = WatermarkGate([A, B])
    gate.advance(A, 10)
    gate.mark_idle(B)
    restored = WatermarkGate([A, B])
    restored.restore(gate.channels(), gate.combined_us)
    assert restored.channels() == gate.channels()
    assert restored.advance(A, 12) == 12


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(-100, 100) | st.none())))
def test_the_combined_watermark_never_goes_back(steps) -> None:
    gate, seen = WatermarkGate([A, B]), []
    for channel, watermark_us in steps:
        risen = (
            gate.mark_idle(channel) if watermark_us is None else gate.advance(channel, watermark_us)
        )
        if risen is not None:
            seen.append(risen)
            assert gate.combined_us == risen
    assert seen == sorted(set(seen))
