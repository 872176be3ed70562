"""The real coordinator, moved by hand: what it orders, and what it may do by itself."""

from laminar_core.protocol.types import CheckpointId, DeclineCause
from verification.explorer import coordination
from verification.explorer.coordination import Checkpoint, Possible
from verification.explorer.parts import Message, Part
from verification.explorer.worlds import FAN_IN

ONE, FIVE = CheckpointId(1), CheckpointId(5)


def collecting(world=FAN_IN):
    coordinator, orders = coordination.trigger(coordination.start(world, CheckpointId(0)))
    assert [order.kind for order in orders] == ["trigger"]
    return coordinator


def ack(node: str) -> Message:
    return Message("ack", -1, Part(ONE, node))


def test_a_checkpoint_from_the_trigger_to_the_commit() -> None:
    coordinator, said = collecting(), []
    for node in "bja":
        coordinator, orders = coordination.hear(coordinator, ack(node))
        said += orders
    (publish,) = said
    assert publish == ("publish", Checkpoint(ONE, (Part(ONE, "a"), Part(ONE, "b"), Part(ONE, "j"))))
    assert coordination.possible(coordinator) == Possible(
        trigger=False, time_out=False, expire=False
    )
    coordinator, orders = coordination.published(coordinator)
    assert [tuple(order) for order in orders] == [("commit", ONE)]
    assert coordination.possible(coordinator).trigger


def test_the_alignment_budget_ends_once() -> None:
    coordinator = collecting()
    assert coordination.possible(coordinator) == Possible(trigger=False, time_out=True, expire=True)
    coordinator, orders = coordination.time_out(coordinator)
    assert [tuple(order) for order in orders] == [("timeout", ONE)]
    assert not coordination.possible(coordinator).time_out


def test_aligned_and_unaligned_checkpoints_have_no_budget_to_spend() -> None:
    for timeout_ms in (None, 0):
        world = FAN_IN.variant("other", "", alignment_timeout_ms=timeout_ms)
        assert not coordination.possible(collecting(world)).time_out


def test_what_expires_is_aborted_and_its_parts_are_forgotten() -> None:
    coordinator, _ = coordination.hear(collecting(), ack("a"))
    coordinator, orders = coordination.expire(coordinator)
    assert [tuple(order) for order in orders] == [("abort", ONE)]
    assert (coordinator.parts, coordination.possible(coordinator).trigger) == ((), True)


def test_a_decline_ends_it_too() -> None:
    message = Message("decline", -1, (ONE, DeclineCause.FAILED, "full"))
    coordinator, orders = coordination.hear(collecting(), message)
    assert [tuple(order) for order in orders] == [("abort", ONE)]
    assert coordination.possible(coordinator).trigger


def test_only_an_acknowledgement_that_nobody_notices_is_heard_at_once() -> None:
    coordinator = collecting()
    assert coordination.hears_at_once(coordinator, ack("a"))
    decline = Message("decline", -1, (ONE, DeclineCause.FAILED, ""))
    assert not coordination.hears_at_once(coordinator, decline)
    for node in "ab":
        coordinator, _ = coordination.hear(coordinator, ack(node))
    assert not coordination.hears_at_once(coordinator, ack("j"))
    late, orders = coordination.expire(coordinator)
    assert coordination.hears_at_once(late, ack("j"))
    assert coordination.hear(late, ack("j"))[0] == late
    assert orders


def test_a_new_generation_counts_on() -> None:
    _, orders = coordination.trigger(coordination.start(FAN_IN, FIVE))
    assert orders[0].content.checkpoint_id == FIVE + 1
