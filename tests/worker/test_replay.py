"""Replayed rows go first, edge by edge, and in the order of the senders."""

from collections.abc import Sequence

import pyarrow as pa

from laminar_core.protocol.types import Batch, ChannelId, Watermark
from laminar_core.worker.channels import InputChannel
from laminar_core.worker.replay import ReplayOrder

ROWS = Batch(pa.record_batch({"value": [1, 2]}))


def channels(*restored: int) -> list[InputChannel]:
    """One with so many restored batches each; behind them, a new one."""
    made = []
    for number, batches in enumerate(restored):
        channel = InputChannel(ChannelId(number), lambda _: None)
        channel.restore([ROWS] * batches)
        channel.arrive(ROWS)
        made.append(channel)
    return made


def readable(order: ReplayOrder, of: Sequence[InputChannel]) -> list[int]:
    return [c.channel for c in of if not order.holds(c.channel)]


def test_nothing_is_held_when_nothing_is_replayed() -> None:
    of = channels(0, 0)
    order = ReplayOrder([of])
    assert not order.active
    assert readable(order, of) == [0, 1]
    of[0].take()
    assert not order.took()


def test_the_channels_of_an_edge_are_replayed_one_after_the_other_and_then_all_are_read() -> None:
    of = channels(0, 2, 1)
    order = ReplayOrder([of])
    for reads in ([1], [1], [2]):
        assert readable(order, of) == reads
        assert order.active
        of[reads[0]].take()
        last = order.took()
    assert last
    assert not order.active
    assert readable(order, of) == [0, 1, 2]


def test_edges_do_not_wait_for_each_other_but_the_end_is_that_of_all() -> None:
    of = channels(1, 0, 1, 0)
    order = ReplayOrder([of[:2], of[2:3]])
    assert readable(order, of) == [0, 2, 3]
    of[0].take()
    assert not order.took()
    assert readable(order, of) == [0, 1, 2, 3]
    of[2].take()
    assert order.took()


def test_a_part_of_a_batch_is_not_all_of_it_and_marks_need_no_order() -> None:
    first, second = of = channels(1, 0)
    second.arrive(Watermark(3))
    order = ReplayOrder([of])
    first.take(1)
    assert not order.took()
    assert readable(order, of) == [0]
    first.take(1)
    assert order.took()
