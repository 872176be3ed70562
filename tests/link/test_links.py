"""A worker calls the roll after a broken connection, and names a peer that stays away."""

import pytest

from laminar_core.errors import BrokenLink, ErrorCode, LinkBrokenError
from laminar_core.link.channel_ends import ReceivingEnd, SendingEnd
from laminar_core.link.links import LOOK_INTERVAL_MS, Links
from laminar_core.link.wire import ElementCodec, FrameKind, Header, decode_header
from laminar_core.protocol.kept_frames import MARK_BACKOFF
from laminar_core.protocol.links import LINK_DOWN_MAX_MS, ROLL_CALL_INTERVAL_MS, Connections
from laminar_core.protocol.types import EndOfInput
from tests.driver.hosts import WorkerLink
from tests.plan.plans import SCHEMA

GENERATION = 4
WHOLE = Connections(accepted=2, established=2)
BROKEN = Connections(accepted=3, established=3, closed=1)
ONE_AWAY = Connections(accepted=2, established=2, closed=1)


class Bench:
    """Worker 0 of three, with a channel to and from worker 1."""

    def __init__(self, down_max_ms: float = LINK_DOWN_MAX_MS) -> None:
        self.link, self.links = WorkerLink(), Links(0, GENERATION, down_max_ms)
        self.link.seen = WHOLE
        there = Header(GENERATION, 7, 0, 1, FrameKind.BATCH, 0)
        back = Header(GENERATION, 7, 1, 0, FrameKind.CREDIT, 0)
        sending = SendingEnd(self.link, ElementCodec(SCHEMA), there)
        receiving = ReceivingEnd(self.link, back, 0, self.links.have_broken)
        self.deliver = self.links.add_sending(1, sending)
        self.grant = self.links.add_receiving(1, receiving)

    def begin(self) -> "Bench":
        self.links.begin(self.link, ["a", "b", "c"])
        return self

    def sent(self) -> list[tuple[int, FrameKind, int]]:
        headers = [(peer, decode_header(header)) for peer, header, _ in self.link.frames]
        self.link.frames.clear()
        return [(peer, header.kind, header.sequence) for peer, header in headers]


def test_a_new_connection_calls_the_roll_and_shows_what_was_sent_and_taken() -> None:
    bench = Bench().begin()
    bench.grant(3)
    bench.sent()
    bench.links.turn(0)
    assert bench.sent() == []
    bench.link.seen = BROKEN
    bench.links.turn(1)
    assert bench.sent() == [
        (1, FrameKind.ROLL_CALL, 0),
        (1, FrameKind.PRESENT, 0),
        (1, FrameKind.MARK, 0),
        (1, FrameKind.CREDIT, 3),
        (2, FrameKind.ROLL_CALL, 0),
        (2, FrameKind.PRESENT, 0),
    ]


def test_a_caller_is_answered_on_its_channels_only() -> None:
    bench = Bench().begin()
    bench.links.answer(2)
    assert bench.sent() == [(2, FrameKind.PRESENT, 0)]
    bench.links.answer(1)
    assert bench.sent() == [
        (1, FrameKind.PRESENT, 0),
        (1, FrameKind.MARK, 0),
        (1, FrameKind.CREDIT, 0),
    ]


def test_what_is_not_confirmed_for_long_is_marked_without_any_notice_of_the_network() -> None:
    bench = Bench().begin()
    bench.deliver(EndOfInput())
    bench.sent()
    for now_ms in range(0, int(MARK_BACKOFF.first_ms), LOOK_INTERVAL_MS):
        bench.links.turn(now_ms)
    assert bench.sent() == []
    bench.links.turn(MARK_BACKOFF.first_ms)
    assert bench.sent() == [(1, FrameKind.MARK, 1)]


@pytest.mark.parametrize("began", [False, True])
def test_only_a_broken_connection_explains_a_loss(began: bool) -> None:  # noqa: FBT001 - a case
    bench = Bench().begin() if began else Bench()
    assert not bench.links.have_broken()
    bench.link.seen = BROKEN
    assert bench.links.have_broken() is began


def test_while_a_connection_is_missing_the_roll_is_called_again_and_again() -> None:
    bench = Bench().begin()
    bench.link.seen = ONE_AWAY
    calls = []
    for now_ms in range(0, 2 * ROLL_CALL_INTERVAL_MS + 1, 500):
        bench.links.turn(now_ms)
        calls += [now_ms for peer, kind, _ in bench.sent() if (peer, kind.name) == (2, "ROLL_CALL")]
    assert calls == [0, ROLL_CALL_INTERVAL_MS, 2 * ROLL_CALL_INTERVAL_MS]


def test_a_peer_that_stays_away_is_named_with_its_host_and_ours() -> None:
    bench = Bench().begin()
    bench.link.seen = ONE_AWAY
    bench.links.turn(0)
    bench.links.hear(Header(GENERATION, 0, 1, 0, FrameKind.PRESENT, 0))
    with pytest.raises(
        LinkBrokenError, match=r"worker 0 on a has had no .* worker 2 on c for 30 s"
    ) as caught:
        bench.links.turn(LINK_DOWN_MAX_MS + 1)
    assert caught.value.code is ErrorCode.LINK_BROKEN
    assert caught.value.links == (BrokenLink(2, "c", 0, "a"),)


@pytest.mark.parametrize("kind", [FrameKind.CREDIT, FrameKind.RESEND])
def test_credit_is_heard_from_the_receiver_of_its_channel(kind: FrameKind) -> None:
    bench = Bench().begin()
    bench.link.seen = ONE_AWAY
    bench.links.turn(0)
    bench.links.hear(Header(GENERATION, 7, 0, 2, kind, 1))
    with pytest.raises(LinkBrokenError, match="no connection from worker 1 on b"):
        bench.links.turn(LINK_DOWN_MAX_MS + 1)


def test_how_long_it_may_stay_away_can_be_set() -> None:
    bench = Bench(down_max_ms=3_000).begin()
    bench.link.seen = ONE_AWAY
    for now_ms in (0, 3_000):
        bench.links.turn(now_ms)
    with pytest.raises(
        LinkBrokenError, match="one of the workers 1 on b, 2 on c for 3 s"
    ) as caught:
        bench.links.turn(3_001)
    assert [link.sender for link in caught.value.links] == [1, 2]


def test_before_the_peers_are_known_nothing_is_watched() -> None:
    bench = Bench()
    bench.link.seen = Connections()
    bench.links.turn(10 * LINK_DOWN_MAX_MS)
    assert bench.sent() == []
