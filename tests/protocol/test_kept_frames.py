"""A sender keeps frames until they are confirmed, and asks when nothing moves."""

from itertools import pairwise

import pytest

from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.protocol.kept_frames import FRAMES_MAX, MARK_BACKOFF, KeptFrames


def kept(frames: str) -> KeptFrames[str]:
    """Upper case: batches."""
    window = KeptFrames[str]()
    for frame in frames:
        window.add(frame, batch=frame.isupper())
    return window


def marks(window: KeptFrames[str], until_ms: int) -> list[int]:
    return [now_ms for now_ms in range(0, until_ms, 500) if window.mark_is_due(now_ms)]


def test_what_is_confirmed_is_released_and_the_rest_is_kept() -> None:
    window = kept("AbCd")
    window.confirm(2, taken=1)
    assert (len(window), window.next_sequence) == (2, 4)
    assert window.lacking(2) == ("C", "d")
    assert window.lacking(3) == ("d",)
    assert window.lacking(4) == ()


def test_a_late_confirmation_and_a_late_request_change_nothing() -> None:
    window = kept("AbC")
    window.confirm(2, taken=1)
    window.confirm(1, taken=0)
    window.confirm(2, taken=1)
    assert window.lacking(1) == ()
    assert window.lacking(2) == ("C",)


@pytest.mark.parametrize(("arrived", "taken"), [(4, 0), (1, 3)])
def test_what_was_never_sent_cannot_be_confirmed(arrived: int, taken: int) -> None:
    with pytest.raises(ProtocolError, match="are confirmed, and 3 and 2 were sent") as caught:
        kept("AbC").confirm(arrived, taken)
    assert caught.value.code is ErrorCode.ILLEGAL_EVENT


def test_the_number_of_kept_frames_is_bounded() -> None:
    window = kept("w" * FRAMES_MAX)
    assert not window.has_room
    window.confirm(1, taken=0)
    assert window.has_room


def test_a_channel_on_which_nothing_moves_is_marked_ever_more_rarely() -> None:
    first, longest = MARK_BACKOFF.first_ms, MARK_BACKOFF.longest_ms
    at = marks(kept("b"), 30_000)
    assert at[0] == first
    assert [b - a for a, b in pairwise(at)] == [4_000, longest, longest]


def test_a_channel_that_moves_is_not_marked() -> None:
    window = kept("AbCd")
    assert not window.mark_is_due(0)
    window.confirm(1, taken=0)
    assert not window.mark_is_due(MARK_BACKOFF.first_ms)
    window.confirm(1, taken=1)
    assert not window.mark_is_due(2 * MARK_BACKOFF.first_ms)
    assert window.mark_is_due(3 * MARK_BACKOFF.first_ms)


def test_credit_that_is_out_is_asked_for_although_every_frame_has_arrived() -> None:
    window = kept("A")
    window.confirm(1, taken=0)
    assert marks(window, 3_000) == [2_000]
    window.confirm(1, taken=1)
    assert marks(window, 100_000) == []
