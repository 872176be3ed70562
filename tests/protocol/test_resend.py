"""Sent again with growing delays until it is confirmed, however long that takes."""

from itertools import pairwise
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings

from laminar_core.protocol.fifo import Delivered, FifoChannel
from laminar_core.protocol.resend import Backoff, SendWindow
from laminar_core.protocol.types import Generation
from tests.sampling import drawn

BACKOFF = Backoff(first_ms=10, longest_ms=50)


def window(*messages: str) -> SendWindow[str]:
    """All of them added at 0."""
    sent = SendWindow[str](BACKOFF)
    for message in messages:
        sent.add(message, 0)
    return sent


def rounds(sent: SendWindow[str], most: int) -> list[tuple[float, tuple[str, ...]]]:
    """Time and content of what is sent again while nobody answers, so many times at most."""
    happened = []
    while sent.due_ms is not None and len(happened) < most:
        happened.append((sent.due_ms, sent.take_due(sent.due_ms)))
    return happened


def test_the_delay_doubles_up_to_a_limit() -> None:
    assert rounds(window("a", "b"), 5) == [
        (10, ("a", "b")),
        (30, ("a", "b")),
        (70, ("a", "b")),
        (120, ("a", "b")),
        (170, ("a", "b")),
    ]


def test_a_line_never_gives_up() -> None:
    """However long nothing arrives, the next round is due within the longest delay."""
    sent = window("a")
    happened = rounds(sent, 10_000)
    assert len(happened) == 10_000
    assert {messages for _, messages in happened} == {("a",)}
    assert max(b - a for (a, _), (b, _) in pairwise(happened)) == 50


def test_nothing_is_sent_again_before_it_is_due() -> None:
    sent = window("a")
    assert (sent.take_due(9), sent.take_due(10), sent.take_due(11)) == ((), ("a",), ())


def test_what_is_confirmed_is_never_sent_again() -> None:
    sent = window("a", "b", "c")
    sent.confirm(2, 5)
    assert (sent.confirmed, sent.next_sequence) == (2, 3)
    assert sent.take_due(15) == ("c",)
    sent.confirm(3, 16)
    assert sent.due_ms is None
    assert sent.take_due(1_000) == ()


def test_an_answer_begins_the_delays_anew() -> None:
    sent = window("a", "b")
    sent.take_due(10)
    sent.take_due(30)
    sent.confirm(1, 40)
    assert sent.due_ms == 50


def test_an_old_answer_changes_nothing() -> None:
    sent = window("a", "b")
    sent.confirm(1, 4)
    sent.confirm(0, 8)
    sent.confirm(1, 9)
    assert (sent.confirmed, sent.due_ms) == (1, 14)


def test_something_new_goes_with_all_that_is_missing() -> None:
    sent = window("a")
    rounds(sent, 6)
    sent.add("b", 500)
    assert rounds(sent, 1) == [(270, ("a", "b"))]


def test_a_late_answer_begins_the_delays_anew() -> None:
    sent = window("a", "b")
    rounds(sent, 9)
    sent.confirm(1, 900)
    assert sent.due_ms == 910


def test_something_new_does_not_put_off_what_is_due() -> None:
    sent = window("a")
    sent.add("b", 9)
    assert sent.take_due(10) == ("a", "b")


@settings(max_examples=drawn(200), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([0.0, 0.3, 0.6]))
def test_over_a_bad_link_everything_arrives_once_and_in_order(seed, count, loss) -> None:
    """Goal: exactly once over loss and repetition, both ways. Method: seeded dice."""
    dice = Random(seed)
    sent = SendWindow[int](Backoff(1, 8))
    channel = FifoChannel[int](Generation(1), reorder_max=4)
    received: list[int] = []

    def arrive(sequence: int) -> None:
        for _ in range(dice.choice((1, 1, 2))):
            if dice.random() >= loss:
                receipt = channel.receive(Generation(1), sequence, sequence)
                received.extend(receipt.frames if isinstance(receipt, Delivered) else ())

    for now_ms in range(10_000):
        if now_ms < count:
            sent.add(now_ms, now_ms)
            arrive(now_ms)
        for message in sent.take_due(now_ms):
            arrive(message)
        if dice.random() >= loss:
            sent.confirm(channel.counters.delivered, now_ms)
        if sent.confirmed == count:
            break
    assert received == list(range(count))
    assert sent.due_ms is None
