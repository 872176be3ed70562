"""Keep the frames of one channel until its receiver has confirmed them, to send them again.

A connection that breaks loses what was under way on it. The sender therefore keeps each numbered
frame until the receiver confirms that it, and all before it, have arrived. Whether frames were lost
is the receiver's to say: the sender tells it how many there are (a *mark*), and the receiver
confirms them or asks for those that it lacks. So a receiver that is only busy gets nothing twice.

A mark, a confirmation or a request can be lost, too. As long as something is open (a frame that is
not confirmed, or a batch for which no credit came back) and nothing moves, the sender marks the
channel again after a delay that doubles. So loss can delay a frame but not swallow it.

At most ``FRAMES_MAX`` frames are kept, and among them as many batches as the channel has credit,
because the credit of a batch comes back together with its confirmation.

Invariants, checked by ``tests/protocol/test_kept_frames_model.py``, and in all orders of events by
``verification/links.py``:

I1  What is delivered is a prefix of what was sent, in the order sent, each frame once.
I2  Once nothing is lost any more, everything is delivered, confirmed and credited.
I3  A receiver never lacks a frame that is not kept; no frame is ``FRAMES_MAX`` ahead of one that
    the receiver lacks.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Generic, TypeVar

from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.protocol.resend import Backoff

T = TypeVar("T")

FRAMES_MAX = 256
"""Frames of a channel that may be sent and not confirmed. Only batches are large, and of these
there are at most as many as the channel has credit."""

CONFIRM_EVERY = FRAMES_MAX // 4
"""A receiver that has given no credit meanwhile confirms at the latest after so many frames."""

MARK_BACKOFF = Backoff(first_ms=2_000.0, longest_ms=8_000.0)
"""A new connection is followed by a mark at once, so these delays matter only if that was lost."""


class KeptFrames(Generic[T]):
    """The sender's end of one channel in one generation. Pure; one thread calls it."""

    def __init__(self, backoff: Backoff = MARK_BACKOFF) -> None:
        self._backoff = backoff
        self._frames: deque[T] = deque()
        self._confirmed = 0
        self._batches = 0
        self._taken = 0
        self._seen = (0, 0)
        """Confirmed frames and taken batches when ``mark_is_due`` was last asked."""
        self._attempts = 0
        self._due_ms: float | None = None

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def next_sequence(self) -> int:
        """The number of the next frame, which is how many have been sent."""
        return self._confirmed + len(self._frames)

    @property
    def has_room(self) -> bool:
        """Whether one more frame may be sent."""
        return len(self._frames) < FRAMES_MAX

    def add(self, frame: T, *, batch: bool) -> None:
        """Keep a frame that is being sent; a ``batch`` needs credit."""
        self._frames.append(frame)
        self._batches += batch

    def confirm(self, arrived: int, taken: int) -> None:
        """Release the frames below ``arrived``; ``taken`` is the total of batches credited.

        Late and repeated confirmations change nothing.

        Raises:
            ProtocolError: more is confirmed than was sent.
        """
        if arrived > self.next_sequence or taken > self._batches:
            raise ProtocolError(
                ErrorCode.ILLEGAL_EVENT,
                f"{arrived} frames and {taken} batches are confirmed, and {self.next_sequence} "
                f"and {self._batches} were sent",
            )
        self._taken = max(self._taken, taken)
        while self._confirmed < arrived:
            self._frames.popleft()
            self._confirmed += 1

    def lacking(self, arrived: int) -> Sequence[T]:
        """Return the frames to send again to a receiver that lacks those from ``arrived`` on.

        None for a request that is older than a later confirmation.
        """
        if arrived < self._confirmed:
            return ()
        return tuple(islice(self._frames, arrived - self._confirmed, None))

    def mark_is_due(self, now_ms: float) -> bool:
        """Return whether to mark the channel now; ask about twice a second."""
        if not self._frames and self._taken == self._batches:
            self._due_ms = None
            return False
        seen = self._confirmed, self._taken
        if self._due_ms is None or seen != self._seen:
            self._seen, self._attempts = seen, 0
            self._due_ms = now_ms + self._backoff.delay_ms(0)
            return False
        if now_ms < self._due_ms:
            return False
        self._attempts += 1
        self._due_ms = now_ms + self._backoff.delay_ms(self._attempts)
        return True
