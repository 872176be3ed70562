"""Restore FIFO order on a channel whose transport may repeat or reorder frames.

Every frame of a channel, barriers and cancel markers included, has the next number of one
sequence. Only so does a barrier separate what was sent before it from what was sent after it: one
that comes early waits until everything before it has come (ERRATA 3.2).

A channel object lives as long as one generation. The next generation numbers from 0 again and
begins with a new object, so there is nothing to save, and frames that an older execution left
under way cannot be taken for new ones (ERRATA 3.3 and 3.23).

Invariants, checked by ``tests/protocol/test_fifo_model.py``:

I1  What is delivered is a prefix of what was sent, in the order sent, each frame once.
I2  At most ``reorder_max`` frames wait, and none of them more than ``reorder_max`` ahead.
I3  A frame that is dropped or refused changes nothing but a counter.

Source: ERRATA 3.2, 3.3 and 3.23 on the channel of document 003; PROTOCOL section 1 needs FIFO.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.protocol.types import Generation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delivered(Generic[T]):
    """Frames that are due now, in order. Empty as long as an earlier one is missing."""

    frames: tuple[T, ...]


class Dropped(Enum):
    """The frame was not needed; nothing has changed."""

    DUPLICATE = auto()
    """The frame was received before."""
    OTHER_GENERATION = auto()
    """The frame belongs to another generation of the job."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The frame is too far ahead: the transport lost one, or reorders more than it may.

    Nothing that comes later can mend this, so the generation has to end.
    """

    expected: int
    got: int

    def error(self, channel: object) -> ProtocolError:
        """Return the exception to raise (``OUT_OF_ORDER``) for this channel."""
        return ProtocolError(
            ErrorCode.OUT_OF_ORDER,
            f"channel {channel} expected frame {self.expected} and got {self.got}",
        )


Receipt = Delivered[T] | Dropped | Broken


@dataclass(slots=True)
class FifoCounters:
    """Frames since the start of the generation, by what became of them."""

    delivered: int = 0
    reordered: int = 0
    """Came early and had to wait; delivered since, or still waiting."""
    duplicates: int = 0
    other_generation: int = 0


class FifoChannel(Generic[T]):
    """The receiver's end of one channel in one generation. Pure; one thread calls it.

    ``reorder_max`` is how far a frame may be ahead of the one that is awaited. 0 is strict: the
    transport keeps order, and a gap is a fault at once.
    """

    def __init__(self, generation: Generation, reorder_max: int = 0) -> None:
        assert reorder_max >= 0, "a bound on frames"
        self.counters = FifoCounters()
        self._generation = generation
        self._reorder_max = reorder_max
        self._next = 0
        self._early: dict[int, T] = {}

    @property
    def expected(self) -> int:
        """The number of the first frame that has not arrived; all before it have."""
        return self._next

    @property
    def waiting(self) -> int:
        """The number of early frames that wait for a missing one."""
        return len(self._early)

    @property
    def early_numbers(self) -> tuple[int, ...]:
        """The numbers of the frames that wait for a missing one, ascending."""
        return tuple(sorted(self._early))

    def receive(self, generation: Generation, sequence: int, frame: T) -> Receipt[T]:
        """Take a frame from the transport and return the frames that are due, if any."""
        if generation != self._generation:
            self.counters.other_generation += 1
            return Dropped.OTHER_GENERATION
        if sequence < self._next or sequence in self._early:
            self.counters.duplicates += 1
            return Dropped.DUPLICATE
        if sequence == self._next:
            return self._deliver(frame)
        if sequence - self._next > self._reorder_max:
            return Broken(self._next, sequence)
        self._early[sequence] = frame
        self.counters.reordered += 1
        return Delivered(())

    def _deliver(self, frame: T) -> Delivered[T]:
        frames = [frame]
        self._next += 1
        while self._early and self._next in self._early:
            frames.append(self._early.pop(self._next))
            self._next += 1
        self.counters.delivered += len(frames)
        return Delivered(tuple(frames))
