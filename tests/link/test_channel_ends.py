"""Frames between two workers are numbered, confirmed, put in order, and sent again if lost."""

import pyarrow as pa
import pytest

from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.link.channel_ends import ReceivingEnd, SendingEnd
from laminar_core.link.sockets import Buffer
from laminar_core.link.wire import ElementCodec, FrameKind, Header, decode_arrived, decode_header
from laminar_core.protocol.kept_frames import CONFIRM_EVERY, FRAMES_MAX
from laminar_core.protocol.types import Batch, Watermark
from tests.driver.hosts import WorkerLink

SCHEMA = pa.schema([("v", pa.int64())])
CODEC = ElementCodec(SCHEMA)
GENERATION = 4


def rows(value: int) -> Batch:
    return Batch(pa.record_batch({"v": [value]}))


class Line:
    """Worker 0 sends to worker 1; the test carries the frames."""

    def __init__(self, *, broken: bool = True, reorder_max: int = 0) -> None:
        self.there, self.back = WorkerLink(), WorkerLink()
        self.back.reorder_max = reorder_max
        header = Header(GENERATION, 7, 0, 1, FrameKind.BATCH, 0)
        self.sending = SendingEnd(self.there, CODEC, header)
        self.receiving = ReceivingEnd(self.back, header, 5, lambda: broken)
        self.values: list[int] = []

    def take_there(self) -> list[tuple[bytes, Buffer]]:
        """Return what the sender has sent, which is under way no more."""
        frames = [(header, payload) for _, header, payload in self.there.frames]
        self.there.frames.clear()
        return frames

    def arrive(self, frames: list[tuple[bytes, Buffer]]) -> None:
        for header_bytes, payload in frames:
            header = decode_header(header_bytes)
            if header.kind is FrameKind.MARK:
                self.receiving.marked(header.sequence)
                continue
            for kind, data in self.receiving.receive(header, payload):
                element = CODEC.decode(kind, data)
                if isinstance(element, Batch):
                    self.values += element.data["v"].to_pylist()

    def answer(self) -> list[tuple[FrameKind, int, int]]:
        """Carry the receiver's frames back; return kind, batches taken, and frames arrived."""
        said = []
        for _, header_bytes, payload in self.back.frames:
            header = decode_header(header_bytes)
            said.append((header.kind, header.sequence, decode_arrived(payload)))
            self.sending.confirmed(header, payload)
        self.back.frames.clear()
        return said


def test_a_frame_is_kept_as_it_was_encoded_until_it_is_confirmed() -> None:
    line = Line()
    line.sending(rows(1))
    ((_, payload),) = first = line.take_there()
    line.sending.mark()
    line.arrive(line.take_there())
    assert line.answer() == [(FrameKind.RESEND, 0, 0)]
    ((_, again),) = second = line.take_there()
    assert again is payload
    assert second == first
    line.arrive(second)
    line.receiving(1)
    assert line.answer() == [(FrameKind.CREDIT, 1, 1)]
    assert (line.values, line.sending.kept) == ([1], 0)


@pytest.mark.parametrize("lost", [{0}, {1, 3}, {4}, {0, 1, 2, 3, 4}, set()])
def test_a_mark_brings_what_was_lost_and_nothing_is_delivered_twice(lost: set[int]) -> None:
    line = Line()
    for value in range(5):
        line.sending(rows(value))
    line.arrive([frame for n, frame in enumerate(line.take_there()) if n not in lost])
    line.sending.mark()
    line.arrive(line.take_there())
    line.answer()
    line.arrive(line.take_there())
    line.receiving(5)
    line.answer()
    assert (line.values, line.sending.kept) == ([0, 1, 2, 3, 4], 0)


def test_credit_is_a_total_and_says_how_many_frames_have_arrived() -> None:
    line = Line()
    for value in (1, 2, 3):
        line.sending(rows(value))
    line.arrive(line.take_there())
    for batches in (2, 1):
        line.receiving(batches)
    line.receiving.repeat()
    assert line.answer() == [(FrameKind.CREDIT, taken, 3) for taken in (2, 3, 3)]


def test_a_frame_that_came_early_is_not_confirmed() -> None:
    """Else the sender would release the one that is missing."""
    line = Line()
    for value in (1, 2):
        line.sending(rows(value))
    line.arrive(line.take_there()[1:])
    line.receiving.repeat()
    assert line.answer() == [(FrameKind.CREDIT, 0, 0)]
    assert (line.values, line.sending.kept) == ([], 2)


def test_frames_that_need_no_credit_are_confirmed_now_and_then() -> None:
    line = Line()
    for time_us in range(2 * CONFIRM_EVERY + 1):
        line.sending(Watermark(time_us))
    line.arrive(line.take_there())
    assert line.answer() == [(FrameKind.CREDIT, 0, n * CONFIRM_EVERY) for n in (1, 2)]
    assert line.sending.kept == 1


def test_only_so_many_frames_may_be_under_way() -> None:
    line = Line()
    for time_us in range(FRAMES_MAX):
        assert line.sending.has_room()
        line.sending(Watermark(time_us))
    assert not line.sending.has_room()


def test_a_gap_although_no_connection_broke_is_a_fault_of_laminar() -> None:
    line = Line(broken=False)
    for value in (1, 2, 3):
        line.sending(rows(value))
    frames = line.take_there()
    with pytest.raises(ProtocolError, match="channel 5 expected frame 0 and got 1") as caught:
        line.arrive(frames[1:])
    assert caught.value.code is ErrorCode.OUT_OF_ORDER


def test_a_gap_at_the_end_although_no_connection_broke_is_one_too() -> None:
    line = Line(broken=False)
    line.sending(rows(1))
    line.take_there()
    line.sending.mark()
    with pytest.raises(ProtocolError, match="channel 5 expected frame 0 and got 1"):
        line.arrive(line.take_there())


def test_what_a_mark_may_have_overtaken_is_not_asked_for() -> None:
    line = Line(broken=False, reorder_max=2)
    for value in (1, 2):
        line.sending(rows(value))
    frames = line.take_there()
    line.sending.mark()
    line.arrive(line.take_there())
    assert line.answer() == [(FrameKind.CREDIT, 0, 0)]
    line.arrive(frames)
    assert line.values == [1, 2]


def test_a_frame_that_no_sender_may_have_sent_yet_is_refused() -> None:
    """I3 of ``kept_frames``: with it, what waits for a missing frame is bounded."""
    line = Line()
    header = Header(GENERATION, 7, 0, 1, FrameKind.WATERMARK, FRAMES_MAX + 1)
    with pytest.raises(ProtocolError, match=f"expected frame 0 and got {FRAMES_MAX + 1}"):
        line.receiving.receive(header, b"\0" * 8)


def test_a_confirmation_of_what_was_never_sent_is_refused() -> None:
    line = Line()
    line.sending(rows(1))
    header = Header(GENERATION, 7, 0, 1, FrameKind.CREDIT, 0)
    with pytest.raises(ProtocolError, match="2 frames and 0 batches are confirmed"):
        line.sending.confirmed(header, (2).to_bytes(8, "little"))
    with pytest.raises(ProtocolError, match="not a confirmation"):
        line.sending.confirmed(header, b"")
