"""Resend messages until one receiver has confirmed them.

Messages are numbered from 0 in the order in which they are sent; the receiver confirms how many
have arrived without a gap. As long as some are missing, all of them are sent again, in order, after
a delay that doubles each time. Only the sending is repeated: the receiver drops numbers that it has
seen (``fifo.FifoChannel``), so a checkpoint id is triggered once, however often it is sent.

A window never gives up: as long as a message is unconfirmed, a next round is due. So loss can delay
a message but not swallow it. A peer that is gone is handled elsewhere: its silence ends the
generation, and the window with it (``driver.coordination``).

Source: PROTOCOL section 5 (ids are never reused); ERRATA 3.14 (retry of the send, not of the id).
"""

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_DOUBLINGS_MAX = 30
"""Keeps the power finite on a line that is not confirmed for very long."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays between rounds of resending."""

    first_ms: float = 1_000.0
    """After the first send; more than an answer usually takes."""
    longest_ms: float = 4_000.0
    """Several rounds fit into the silence that ends a generation, which is 15 s at least."""

    def delay_ms(self, attempts: int) -> float:
        """Return the delay before the next round, after ``attempts`` rounds."""
        return min(self.first_ms * 2 ** min(attempts, _DOUBLINGS_MAX), self.longest_ms)


class SendWindow(Generic[T]):
    """Unconfirmed messages to one receiver. Pure; one thread calls it, with one clock."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._unconfirmed: deque[T] = deque()
        self._confirmed = 0
        self._attempts = 0
        self._due_ms: float | None = None

    @property
    def next_sequence(self) -> int:
        """The number that the next added message gets."""
        return self._confirmed + len(self._unconfirmed)

    @property
    def confirmed(self) -> int:
        """The number of messages that have certainly arrived."""
        return self._confirmed

    @property
    def due_ms(self) -> float | None:
        """When the next round is due unless a confirmation arrives; None: all is confirmed."""
        return self._due_ms

    def add(self, message: T, now_ms: float) -> None:
        """Keep what is being sent for the first time."""
        self._unconfirmed.append(message)
        if self._due_ms is None:  # Nothing else is unconfirmed.
            self._attempts = 0
            self._due_ms = now_ms + self._backoff.delay_ms(0)

    def confirm(self, count: int, now_ms: float) -> None:
        """Take a confirmation that ``count`` messages arrived; an outdated one changes nothing."""
        assert count <= self.next_sequence, "confirmed before it was sent"
        if count <= self._confirmed:
            return
        for _ in range(count - self._confirmed):
            self._unconfirmed.popleft()
        self._confirmed = count
        self._attempts = 0
        self._due_ms = now_ms + self._backoff.delay_ms(0) if self._unconfirmed else None

    def take_due(self, now_ms: float) -> tuple[T, ...]:
        """Return all unconfirmed messages in order if a round is due, else an empty tuple."""
        if self._due_ms is None or now_ms < self._due_ms:
            return ()
        self._attempts += 1
        self._due_ms = now_ms + self._backoff.delay_ms(self._attempts)
        return tuple(self._unconfirmed)
