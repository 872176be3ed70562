"""Account for the in-flight data of one subtask at its cut: its elements, per queue.

The alignment machine decides when a channel is captured, recorded and sealed; the queues report
their contents. In between, this module keeps the account of one checkpoint: every element belongs
to one queue's channel state, no queue exceeds its limit, and the subtask's part is complete when
all input channels are sealed and the barrier has left every output queue or has overtaken it.

Elements are opaque; ``size_of`` gives their serialised size. Captured elements are passed on at
once, so that they can be written while more arrive.

Source: PROTOCOL sections 1 to 3; FLIP-76; ERRATA 0.1, 0.2, 0.7, 0.11, 0.18 and 0.20.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.types import (
    AlignmentMode,
    CheckpointBarrier,
    CheckpointId,
    ResolvedMode,
)

T = TypeVar("T")

Direction = Literal["input", "output"]
"""The side of the captured queue: the receiver's input, or the sender's output."""

ALIGNMENT_TIMEOUT_THRESHOLD_MS = 30_000
MAX_INFLIGHT_BUFFER_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class UnalignedCheckpointConfig:
    """When a checkpoint may overtake queued data, and how much data it may capture."""

    enabled: bool = True
    """False: barriers are aligned, however long it takes."""
    alignment_timeout_threshold_ms: int = ALIGNMENT_TIMEOUT_THRESHOLD_MS
    """Time from the checkpoint's trigger until it turns unaligned."""
    max_inflight_buffer_bytes: int = MAX_INFLIGHT_BUFFER_BYTES
    """Per queue, serialised; a checkpoint that would capture more is declined."""
    force_unaligned: bool = False
    """Overtake from the start, without trying to align."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ConfigurationError: a value is out of range, or two of them contradict each other.
        """
        for name in ("alignment_timeout_threshold_ms", "max_inflight_buffer_bytes"):
            value: object = getattr(self, name)
            if not isinstance(value, int):
                raise ConfigurationError(ErrorCode.INVALID_OPTION, f"{name} must be a whole number")
            if value < 1:
                raise ConfigurationError(
                    ErrorCode.INVALID_OPTION, f"{name} must be positive, not {value}"
                )
        for name in ("enabled", "force_unaligned"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(ErrorCode.INVALID_OPTION, f"{name} must be True or False")
        if self.force_unaligned and not self.enabled:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                "force_unaligned needs enabled: leave one of the two out",
            )

    @property
    def alignment_timeout_ms(self) -> int | None:
        """The equivalent single setting: None is always aligned, 0 unaligned from the start."""
        if not self.enabled:
            return None
        return 0 if self.force_unaligned else self.alignment_timeout_threshold_ms


SWITCHES_IN_A_ROW = 10
"""Number of switched checkpoints in a row after which a warning is due: their wait was useless."""


class SwitchStreak:
    """Notices a threshold that every checkpoint exceeds (document 000, ``ThresholdTooLow``)."""

    def __init__(self) -> None:
        self._length = 0

    def ended(self, mode: ResolvedMode) -> bool:
        """Count a completed checkpoint that might have overtaken.

        Return True when a streak ends.
        """
        self._length = self._length + 1 if mode == "switched" else 0
        if self._length < SWITCHES_IN_A_ROW:
            return False
        self._length = 0
        return True


@dataclass(frozen=True, slots=True)
class QueueId:
    """One queue of a subtask: an input channel, or the output queue of a channel that leaves it."""

    direction: Direction
    number: int
    """Dense from 0 over the subtask's inputs, or over its output channels."""


@dataclass(frozen=True, slots=True)
class InFlightChannelData(Generic[T]):
    """Elements of one queue that belong to a checkpoint; pieces of a queue follow each other."""

    checkpoint_id: CheckpointId
    queue: QueueId
    events: tuple[T, ...]
    size_bytes: int
    last: bool
    """Nothing follows for this queue."""


@dataclass(frozen=True, slots=True)
class UnalignedSnapshot:
    """Progress of one checkpoint at this subtask; its data has been passed on already."""

    barrier: CheckpointBarrier
    mode: ResolvedMode
    size_bytes: int
    open_queues: frozenset[QueueId]
    """Input queues that are still recorded, and output queues that still hold the barrier."""
    inputs_sealed: bool

    @property
    def complete(self) -> bool:
        """Whether every queue's part of the checkpoint is complete."""
        return self.inputs_sealed and not self.open_queues


@dataclass(frozen=True, slots=True)
class UnalignedCheckpointMetrics:
    """Counters of one subtask, or the sum of several, since the start of their generation."""

    unaligned_count: int = 0
    """Cuts that overtook data, however it came to that."""
    threshold_switches: int = 0
    """Checkpoints that started aligned and turned unaligned."""
    total_inflight_bytes: int = 0
    is_in_unaligned_mode: bool = False
    """A cut was made and in-flight data is still being recorded."""

    @classmethod
    def total(cls, parts: Iterable["UnalignedCheckpointMetrics"]) -> "UnalignedCheckpointMetrics":
        """Return the sums; the total is in unaligned mode if any part is."""
        known = list(parts)
        return cls(
            sum(part.unaligned_count for part in known),
            sum(part.threshold_switches for part in known),
            sum(part.total_inflight_bytes for part in known),
            is_in_unaligned_mode=any(part.is_in_unaligned_mode for part in known),
        )


class UnalignedCheckpointer(Generic[T]):
    """The account of the checkpoint that a subtask has cut last. Pure; one thread calls it."""

    def __init__(self, max_inflight_buffer_bytes: int, size_of: Callable[[T], int]) -> None:
        self._limit_bytes = max_inflight_buffer_bytes
        self._size_of = size_of
        self._barrier: CheckpointBarrier | None = None
        self._mode: ResolvedMode = "aligned"
        self._open: set[QueueId] = set()
        self._sealed = False
        self._sizes: dict[QueueId, int] = {}
        self._unaligned = self._switched = self._total_bytes = 0

    @property
    def checkpoint_id(self) -> CheckpointId | None:
        """The checkpoint whose in-flight data is being collected, or None."""
        return None if self._barrier is None else self._barrier.checkpoint_id

    @property
    def open_outputs(self) -> list[int]:
        """Return the numbers of the output queues that still hold the barrier, ascending."""
        return sorted(queue.number for queue in self._open if queue.direction == "output")

    def begin(
        self, barrier: CheckpointBarrier, mode: AlignmentMode, outputs: Collection[int]
    ) -> None:
        """Start the account of a checkpoint at its cut.

        ``outputs`` are the queues that hold its barrier. An account that was open is dropped.
        """
        self._barrier, self._mode, self._sealed = barrier, "aligned", False
        self._open = {QueueId("output", number) for number in outputs}
        self._sizes = {}
        if mode == "unaligned":
            self._overtake(barrier)

    def capture(
        self, queue: QueueId, events: Iterable[T], *, recording: bool = False
    ) -> InFlightChannelData[T]:
        """Take what the barrier overtook in a queue; if ``recording``, more will arrive."""
        (self._open.add if recording else self._open.discard)(queue)
        if queue.direction == "output" and self._barrier is not None:
            self._overtake(self._barrier)
        return self._piece(queue, tuple(events), last=not recording)

    def record(self, queue: QueueId, event: T) -> InFlightChannelData[T]:
        """Take what arrived before the channel's barrier."""
        return self._piece(queue, (event,), last=False)

    def seal(self, queue: QueueId) -> InFlightChannelData[T]:
        """Close the recording of a channel because its barrier arrived; return the last piece."""
        self._open.discard(queue)
        return self._piece(queue, (), last=True)

    def left(self, number: int) -> None:
        """Note that the barrier left this output queue without overtaking any element."""
        self._open.discard(QueueId("output", number))

    def seal_inputs(self) -> None:
        """Note that all input channels are complete."""
        self._sealed = True

    def exceeded(self) -> str | None:
        """Describe the queue above the limit, if any; the checkpoint must then be declined."""
        for queue, size_bytes in self._sizes.items():
            if size_bytes > self._limit_bytes:
                return (
                    f"{size_bytes} bytes in flight on {queue.direction} {queue.number} exceed "
                    f"max_inflight_buffer_bytes ({self._limit_bytes}): raise it, or speed up "
                    "what the rows wait for"
                )
        return None

    def snapshot(self) -> UnalignedSnapshot | None:
        """Return the progress of the checkpoint; None if none is open."""
        if self._barrier is None:
            return None
        return UnalignedSnapshot(
            self._barrier,
            self._mode,
            sum(self._sizes.values()),
            frozenset(self._open),
            self._sealed,
        )

    def end(self) -> None:
        """Close the account: the checkpoint is complete here, or given up."""
        self._barrier = None
        self._open, self._sizes = set(), {}

    def metrics(self) -> UnalignedCheckpointMetrics:
        """Return the counters since the start."""
        recording = any(queue.direction == "input" for queue in self._open)
        return UnalignedCheckpointMetrics(
            self._unaligned,
            self._switched,
            self._total_bytes,
            is_in_unaligned_mode=self._mode != "aligned" and recording,
        )

    def _overtake(self, barrier: CheckpointBarrier) -> None:
        """Count a cut once, however many queues it overtakes."""
        if self._mode != "aligned":
            return
        switched = barrier.alignment_timeout_ms != 0
        self._mode = "switched" if switched else "unaligned"
        self._unaligned += 1
        self._switched += switched

    def _piece(
        self, queue: QueueId, events: tuple[T, ...], *, last: bool
    ) -> InFlightChannelData[T]:
        assert self._barrier is not None, "captured without a cut"
        size_bytes = sum(map(self._size_of, events))
        self._sizes[queue] = self._sizes.get(queue, 0) + size_bytes
        self._total_bytes += size_bytes
        return InFlightChannelData(
            self._barrier.checkpoint_id, queue, events, size_bytes, last=last
        )
