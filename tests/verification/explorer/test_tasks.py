"""The task is the product's; only whose turn it is is chosen."""

from laminar_core.protocol.types import Batch, ChannelId, CheckpointBarrier, CheckpointId
from laminar_core.worker.loops import HeadTask
from verification.explorer.parts import Part
from verification.explorer.records import Record, batch_of
from verification.explorer.tasks import Builder, Classes, Live, elements_of
from verification.explorer.worlds import FAN_IN, LOOP

NOTHING, ONE = CheckpointId(0), CheckpointId(1)
A0, A1, B0, BACK = (
    Batch(batch_of(Record(path, n))) for path, n in (("a", 0), ("a", 1), ("b", 0), ("at", 0))
)


def built(world=FAN_IN, name="j", restored: Part | None = None) -> Live:
    node = world.nodes[world.index[name]]
    return Builder(world, node, Classes()).build(restored, NOTHING)


def test_any_input_may_have_its_turn() -> None:
    live = built()
    live.task.arrived(ChannelId(0), A0)
    live.task.arrived(ChannelId(1), B0)
    assert [live.task.would_take(c) for c in (0, 1)] == [A0, B0]
    assert live.task.work_on(1)
    assert live.task.would_take(1) is None
    assert live.task.would_take(0) == A0


def test_a_held_input_has_none() -> None:
    live = built()
    live.task.arrived(ChannelId(0), CheckpointBarrier(ONE))
    live.task.arrived(ChannelId(0), A0)
    assert live.task.work_on(0)
    assert live.task.would_take(0) is None
    assert not live.task.nothing_pending


def test_the_head_of_a_loop_takes_what_comes_back_first() -> None:
    live = built(LOOP, "h")
    assert isinstance(live.task, HeadTask)
    live.task.arrived(ChannelId(0), A0)
    assert live.task.would_take(0) == A0
    live.task.arrived(ChannelId(1), BACK)
    assert [live.task.would_take(c) for c in (0, 1)] == [None, BACK]


def test_what_was_in_flight_waits_in_its_queues_again() -> None:
    part = Part(ONE, "a", offset=2, inputs=(), outputs=((Record("a", 1),),))
    (output,) = built(name="a", restored=part).task.parts.outputs
    assert list(elements_of(output.channels[0])) == [A1]
    part = Part(ONE, "j", counts=(("a", 1),), inputs=((Record("a", 1),), ()))
    live = built(restored=part)
    assert live.task.would_take(0) == A1
    assert live.task.work_on(0)


def test_edges_of_a_loop_are_marked() -> None:
    assert built(LOOP, "h").task.parts.feedback == {1}
    assert built(LOOP, "m").task.parts.aligned_only == {0}
    (output,) = built(LOOP, "t").task.parts.outputs
    assert not output.may_overtake
    assert output.has_room
