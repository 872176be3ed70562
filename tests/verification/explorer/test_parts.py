"""A part is complete when the state, all that was in flight and the last word are there."""

import pytest

from laminar_core.operators.base import Snapshot
from laminar_core.protocol.types import Batch, CheckpointId, DeclineCause, Watermark
from laminar_core.protocol.unaligned import InFlightChannelData, QueueId
from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.worker.cuts import Cut, PendingPart
from verification.explorer.parts import Listener, replay
from verification.explorer.records import Record, ViolationError, batch_of

ONE = CheckpointId(1)
A0 = Batch(batch_of(Record("a", 0)))
ALIGNMENT = AlignmentEntry(
    vertex_id="m", subtask_index=0, mode="unaligned", start_delay_ms=0, alignment_ms=0,
    watermark_us=None,
)  # fmt: skip


def cut_of(listener: Listener) -> None:
    pending = PendingPart("state", lambda: Snapshot(properties={"a": 2}), 0.0)
    listener.on_cut(Cut(ONE, "m", (pending,)))


def captured(direction, *events) -> InFlightChannelData:
    return InFlightChannelData(ONE, QueueId(direction, 0), events, 0, last=True)


def test_pieces_come_together_in_order() -> None:
    listener = Listener("m", 1, 1)
    cut_of(listener)
    listener.on_captured("m", captured("input", A0))
    listener.on_captured("m", captured("input", Watermark(3)))
    listener.on_captured("m", captured("output", A0))
    listener.on_complete(ONE, ALIGNMENT)
    (message,), notes = listener.take()
    part = message.content
    assert (message.kind, part.node, part.counts) == ("ack", "m", (("a", 2),))
    assert part.inputs == ((Record("a", 0), Watermark(3)),)
    assert part.outputs == ((Record("a", 0),),)
    assert replay(part.inputs[0]) == [A0, Watermark(3)]
    assert notes[0] == "cuts 1"
    assert listener.take() == ((), ())


def test_what_is_given_up_is_not_acknowledged() -> None:
    listener = Listener("m", 1, 1)
    cut_of(listener)
    listener.on_discard(ONE)
    listener.on_captured("m", captured("input", A0))
    listener.on_complete(ONE, ALIGNMENT)
    assert listener.take()[0] == ()


def test_a_checkpoint_that_is_cut_twice_is_a_violation() -> None:
    listener = Listener("m", 1, 1)
    cut_of(listener)
    with pytest.raises(ViolationError, match="cuts checkpoint 1 again"):
        cut_of(listener)


def test_a_decline_is_passed_on() -> None:
    listener = Listener("m", 0, 0)
    listener.on_decline(ONE, DeclineCause.FAILED, "full")
    assert listener.take()[0][0].content == (ONE, DeclineCause.FAILED, "full")
