"""Both ends of a control line, and what a coordinator does with many of them."""

from collections import deque
from typing import get_args

import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.link.messages import (
    Abort,
    Cancel,
    Completed,
    Ping,
    SnapshotDecline,
    ToCoordinator,
    ToWorker,
    decode_to_coordinator,
    decode_to_worker,
)
from laminar_core.link.reliable_delivery import NOT_NUMBERED, ControlEnd, ControlLines
from laminar_core.protocol.types import DeclineCause, Generation
from tests.link.test_messages import TO_COORDINATOR, TO_WORKER

G = Generation(3)
EXAMPLES = [*TO_COORDINATOR, *TO_WORKER]
OUTAGE_MS = 3_600_000


def abort(checkpoint_id: int) -> Abort:
    return Abort(generation=G, checkpoint_id=checkpoint_id)


class Pair:
    """A coordinator's lines to two workers, over a link whose messages the test hands on."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.under_way: dict[int, deque[bytes]] = {0: deque(), 1: deque()}
        self.lines = ControlLines(G, lambda to, data: self.under_way[to].append(data), self.clock)
        self.answers: deque[bytes] = deque()
        self.workers = [ControlEnd(G, self.answers.append, self.clock) for _ in (0, 1)]

    def pass_time(self, ms: float = 1_000) -> None:
        self.clock.wait_ms(ms)

    def deliver(self, worker: int, *, times: int = 1) -> list[int]:
        """Let everything arrive; return the ids that the worker takes."""
        taken = []
        while self.under_way[worker]:
            data = self.under_way[worker].popleft()
            for _ in range(times):
                due = self.workers[worker].receive(decode_to_worker(data))
                taken += [m.checkpoint_id for m in due if not isinstance(m, Ping | Cancel)]
        return taken

    def answer(self, worker: int) -> list:
        """Let the worker say something, and the coordinator take all that has come."""
        decline = SnapshotDecline(
            generation=G,
            worker=worker,
            checkpoint_id=1,
            cause=DeclineCause.FAILED,
            reason="disk",
        )
        self.workers[worker].send(decline)
        taken = []
        while self.answers:
            taken += self.lines.receive(decode_to_coordinator(self.answers.popleft()))
        return taken


class TestOneLine:
    def test_what_is_lost_is_sent_again_and_taken_in_order(self):
        pair = Pair()
        pair.lines.broadcast(abort(1), [0])
        pair.under_way[0].clear()
        pair.lines.broadcast(Completed(generation=G, checkpoint_id=2), [0])
        assert pair.deliver(0) == [], "the second waits for the first"
        pair.pass_time()
        pair.lines.tick()
        assert pair.deliver(0) == [1, 2]

    def test_what_comes_twice_is_taken_once(self):
        pair = Pair()
        pair.lines.broadcast(abort(1), [0])
        assert pair.deliver(0, times=3) == [1]

    def test_any_answer_confirms_and_then_nothing_is_sent_again(self):
        pair = Pair()
        pair.lines.broadcast(abort(1), [0])
        pair.deliver(0)
        assert [m.reason for m in pair.answer(0)] == ["disk"]
        pair.pass_time()
        pair.lines.tick()
        assert not pair.under_way[0]
        assert pair.lines.due_ms == float("inf")

    def test_a_worker_sends_again_what_the_coordinator_has_not_confirmed(self):
        pair = Pair()
        assert len(pair.answer(0)) == 1
        pair.pass_time(2_000)
        pair.workers[0].tick()
        assert len(pair.answers) == 1
        assert [m.sequence for m in pair.answer(0)] == [1], "the repeated one is known already"
        pair.lines.broadcast(Ping(generation=G), [0])
        pair.deliver(0)
        assert pair.workers[0].confirmed_count == 2

    @pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.type)
    def test_whatever_has_a_number_arrives_after_any_number_of_losses(self, message):
        """Goal: no message can be lost for good. Method: an outage longer than any silence."""
        clock, sent = ManualClock(), []
        end = ControlEnd(G, sent.append, clock)
        end.send(message)
        if isinstance(message, NOT_NUMBERED):
            assert end.due_ms is None
            return
        while clock.monotonic_ms() < OUTAGE_MS:
            sent.clear()
            assert end.due_ms is not None, "it would never be sent again"
            clock.wait_ms(end.due_ms - clock.monotonic_ms())
            end.tick()
        assert len(sent) == 1

    def test_every_message_is_tried_above(self):
        assert {type(m) for m in EXAMPLES} == {*get_args(ToCoordinator), *get_args(ToWorker)}

    @pytest.mark.parametrize("message", [Ping(generation=G), Cancel(generation=G)])
    def test_signs_of_life_and_orders_to_leave_do_not_queue_behind_what_is_lost(self, message):
        pair = Pair()
        pair.lines.broadcast(abort(1), [0])
        pair.under_way[0].clear()
        pair.lines.broadcast(message, [0])
        got = decode_to_worker(pair.under_way[0].popleft())
        assert pair.workers[0].receive(got) == (got,)


class TestReceipts:
    def test_something_is_done_when_every_worker_has_taken_what_was_sent(self):
        pair, done = Pair(), []
        pair.lines.broadcast(abort(1), [0, 1])
        pair.lines.when_confirmed(lambda: done.append(1))
        pair.lines.broadcast(abort(2), [0, 1])
        pair.deliver(0)
        pair.answer(0)
        assert done == []
        pair.under_way[1].pop()  # The second abort is not what it waits for.
        pair.deliver(1)
        pair.answer(1)
        assert done == [1]
        pair.answer(1)
        assert done == [1]

    def test_if_nothing_is_under_way_it_is_done_at_once(self):
        pair, done = Pair(), []
        pair.lines.when_confirmed(lambda: done.append(1))
        assert done == [1]


def test_lines_without_anything_to_send_again_are_not_looked_at():
    pair = Pair()
    begin_ms = pair.clock.monotonic_ms()
    pair.lines.broadcast(Ping(generation=G), [0, 1])
    assert pair.lines.due_ms == float("inf")
    pair.pass_time(500)
    pair.lines.broadcast(abort(1), [0])
    pair.pass_time(100)
    pair.lines.broadcast(abort(1), [1])
    assert pair.lines.due_ms == begin_ms + 1_500
    pair.pass_time(900)
    pair.lines.tick()
    assert pair.lines.due_ms == begin_ms + 1_600, "that of the other one"
    assert [len(pair.under_way[worker]) for worker in (0, 1)] == [3, 2]
