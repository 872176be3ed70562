"""The state of a subtask's alignment shows which channels it waits for."""

from laminar_core.protocol.alignment import BarrierAligner
from laminar_core.protocol.alignment_events import (
    BarrierArrived,
    BarrierReached,
    CheckpointTriggered,
    EndReached,
)
from laminar_core.protocol.types import ChannelId, CheckpointBarrier, CheckpointId, CheckpointKind
from laminar_core.protocol.waiting import Waiting, WaitsFor, waiting

ONE, TWO, BACK = ChannelId(0), ChannelId(1), ChannelId(2)
FIRST = CheckpointId(1)


def barrier(timeout_ms: int | None = None) -> CheckpointBarrier:
    return CheckpointBarrier(FIRST, CheckpointKind.PERIODIC, 0, timeout_ms, timeout_ms == 0)


def aligner(*channels: ChannelId) -> BarrierAligner:
    return BarrierAligner(frozenset(channels or (ONE, TWO)))


def of(machine: BarrierAligner) -> Waiting | None:
    return waiting(machine.state)


def test_nothing_is_waited_for_before_a_checkpoint_and_after_its_cut() -> None:
    machine = aligner()
    assert of(machine) is None
    for channel in (ONE, TWO):
        machine.on(BarrierReached(channel, barrier()))
    assert of(machine) is None


def test_a_triggered_checkpoint_waits_for_every_open_channel() -> None:
    machine = aligner()
    machine.on(EndReached(ONE))
    machine.on(CheckpointTriggered(barrier()))
    assert of(machine) == Waiting(FIRST, WaitsFor.BARRIERS, frozenset({TWO}))


def test_an_alignment_waits_for_the_channels_whose_barrier_was_not_reached() -> None:
    machine = aligner()
    machine.on(BarrierReached(TWO, barrier()))
    assert of(machine) == Waiting(FIRST, WaitsFor.BARRIERS, frozenset({ONE}))


def test_nobody_waits_for_a_feedback_channel() -> None:
    machine = BarrierAligner(frozenset({ONE, BACK}), feedback=frozenset({BACK}))
    machine.on(CheckpointTriggered(barrier()))
    assert of(machine) == Waiting(FIRST, WaitsFor.BARRIERS, frozenset({ONE}))


def test_after_an_unaligned_cut_the_recorded_channels_are_waited_for() -> None:
    machine = aligner()
    machine.on(BarrierArrived(ONE, barrier(timeout_ms=0)))
    assert of(machine) == Waiting(FIRST, WaitsFor.IN_FLIGHT, frozenset({TWO}))
