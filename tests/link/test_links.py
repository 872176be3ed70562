"""A worker reports a broken connection, and sends again afterwards."""

import pytest

from laminar_core.errors import ErrorCode, LinkBrokenError, ProtocolError
from laminar_core.link.links import Links, RemoteDelivery, RemoteGrant
from laminar_core.link.wire import ElementCodec, FrameKind, Header, decode_header
from laminar_core.protocol.fifo import Broken
from laminar_core.protocol.links import DOWN_MAX_MS, Connections
from tests.driver.hosts import WorkerLink
from tests.plan.plans import SCHEMA

GENERATION = 4
WHOLE = Connections(accepted=2, established=2)
BROKEN = Connections(accepted=3, established=3, closed=1)


class Bench:
    """Worker 0 of three, with a channel to and from worker 1."""

    def __init__(self, reorder_max: int = 0) -> None:
        self.link, self.links = WorkerLink(), Links(0, GENERATION)
        self.link.reorder_max = reorder_max
        self.link.seen = WHOLE
        there = Header(GENERATION, 7, 0, 1, FrameKind.BATCH, 0)
        back = Header(GENERATION, 7, 1, 0, FrameKind.CREDIT, 0)
        codec = ElementCodec(SCHEMA)
        self.deliver = self.links.deliver_to(1, RemoteDelivery(self.link, codec, there))
        self.grant = self.links.grant_to(1, RemoteGrant(self.link, back))

    def begin(self) -> "Bench":
        self.links.begin(self.link, ["a", "b", "c"])
        return self

    def sent(self) -> list[tuple[int, FrameKind, int]]:
        headers = [(peer, decode_header(header)) for peer, header, _ in self.link.frames]
        return [(peer, header.kind, header.sequence) for peer, header in headers]


def test_credit_is_a_total() -> None:
    bench = Bench()
    for batches in (2, 1):
        bench.grant(batches)
    bench.grant.repeat()
    assert bench.sent() == [(1, FrameKind.CREDIT, n) for n in (2, 3, 3)]


def test_a_new_connection_calls_the_roll_and_shows_what_was_sent_and_taken() -> None:
    bench = Bench().begin()
    bench.grant(3)
    bench.link.frames.clear()
    bench.links.turn(0)
    assert bench.sent() == []
    bench.link.seen = BROKEN
    bench.links.turn(1)
    assert bench.sent() == [
        (1, FrameKind.ROLL_CALL, 0),
        (1, FrameKind.MARK, 0),
        (1, FrameKind.CREDIT, 3),
        (2, FrameKind.ROLL_CALL, 0),
    ]


def test_a_caller_is_answered_on_its_channels_only() -> None:
    bench = Bench().begin()
    bench.links.answer(2)
    assert bench.sent() == []
    bench.links.answer(1)
    assert bench.sent() == [(1, FrameKind.MARK, 0), (1, FrameKind.CREDIT, 0)]


def test_marks_are_so_many_that_one_cannot_have_overtaken_what_is_missing() -> None:
    bench = Bench(reorder_max=2)
    bench.deliver.mark()
    assert bench.sent() == [(1, FrameKind.MARK, n) for n in range(3)]


def test_a_gap_behind_a_broken_connection_names_both_workers_and_their_hosts() -> None:
    bench = Bench().begin()
    bench.link.seen = BROKEN
    error = bench.links.missing(Broken(5, 9), 3, sender=1)
    assert isinstance(error, LinkBrokenError)
    assert error.code is ErrorCode.LINK_BROKEN
    assert str(error) == (
        "the connection from worker 1 on b to worker 0 on a broke and frames were lost: channel 3 "
        "expected frame 5 and got 9"
    )


@pytest.mark.parametrize("began", [False, True])
def test_a_gap_on_a_whole_connection_is_a_fault_of_laminar(began: bool) -> None:  # noqa: FBT001 - a case
    bench = Bench().begin() if began else Bench()
    error = bench.links.missing(Broken(5, 9), 3, sender=1)
    assert isinstance(error, ProtocolError)
    assert error.code is ErrorCode.OUT_OF_ORDER


def test_a_peer_that_stays_away_is_named() -> None:
    bench = Bench().begin()
    bench.link.seen = Connections(accepted=2, established=2, closed=1)
    bench.links.turn(0)
    bench.links.hear(Header(GENERATION, 7, 1, 0, FrameKind.BATCH, 0))
    with pytest.raises(
        LinkBrokenError, match=r"worker 0 on a has had no .* worker 2 on c for 30 s"
    ):
        bench.links.turn(DOWN_MAX_MS + 1)


def test_credit_is_heard_from_the_receiver_of_its_channel() -> None:
    bench = Bench().begin()
    bench.link.seen = Connections(accepted=2, established=2, closed=1)
    bench.links.turn(0)
    bench.links.hear(Header(GENERATION, 7, 0, 2, FrameKind.CREDIT, 1))
    with pytest.raises(LinkBrokenError, match="no connection from worker 1 on b"):
        bench.links.turn(DOWN_MAX_MS + 1)


def test_before_the_peers_are_known_nothing_is_watched() -> None:
    bench = Bench()
    bench.link.seen = Connections()
    bench.links.turn(10 * DOWN_MAX_MS)
    assert bench.sent() == []
