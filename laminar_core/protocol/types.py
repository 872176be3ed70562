"""The glossary as code: ids, barriers and the elements that travel on a channel.

Source: Chandy & Lamport 1985; Carbone et al. 2015; PROTOCOL sections 1, 3, 6 and 9.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, NewType, TypeVar

CheckpointId = NewType("CheckpointId", int)
"""One increasing number from 1 per job; never reused, also not by a later generation."""

NO_CHECKPOINT = CheckpointId(0)
"""Below every checkpoint."""

Generation = NewType("Generation", int)
"""Fencing token of one execution of the job; the newest claimed one owns the store."""

ChannelId = NewType("ChannelId", int)
"""A channel as its receiving subtask numbers it: dense from 0 over all its inputs."""

T = TypeVar("T")


class CheckpointKind(StrEnum):
    """The purpose of a checkpoint. Savepoints and the final one are always aligned."""

    PERIODIC = "periodic"
    MANUAL = "manual"
    SAVEPOINT = "savepoint"
    STOP = "stop"
    FINAL = "final"


class DeclineCause(StrEnum):
    """Why a subtask declines a checkpoint."""

    FAILED = "failed"
    """It could not take or write its snapshot. This counts towards the tolerated failures."""

    SUBSUMED = "subsumed"
    """A newer checkpoint overtook this one at the subtask: no failure."""


AlignmentMode = Literal["aligned", "unaligned"]

ResolvedMode = Literal["aligned", "unaligned", "switched"]
"""How the checkpoint ended up; ``switched``: it started aligned, and its timeout made it unaligned.
"""


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """The marker that separates what is before the cut from what is after it.

    ``created_ms`` is the coordinator's clock at the trigger: the protocol's own there, the wall
    clock in workers, which decide nothing by it. ``alignment_timeout_ms`` is the budget for the
    whole checkpoint, counted from creation: None never switches, 0 is unaligned from the start
    (PROTOCOL section 3).
    """

    checkpoint_id: CheckpointId
    kind: CheckpointKind = CheckpointKind.PERIODIC
    created_ms: int = 0
    alignment_timeout_ms: int | None = None
    unaligned: bool = False


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Rows. The payload is opaque here; in a Spark task it is a ``pyarrow.RecordBatch``."""

    data: T


@dataclass(frozen=True, slots=True)
class Watermark:
    """No later row of this channel is older than ``time_us`` (microseconds of event time)."""

    time_us: int


@dataclass(frozen=True, slots=True)
class Idle:
    """This channel sends nothing for a while and does not hold the combined watermark back."""


@dataclass(frozen=True, slots=True)
class CancelMarker:
    """Upstream gave this checkpoint up; do not wait for its barrier on this channel."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Nothing follows on this channel. Counts as its barrier in a pending checkpoint."""


Element = Batch[T] | Watermark | Idle | CheckpointBarrier | CancelMarker | EndOfInput

WATERMARK_END_US = 2**63 - 1
"""Watermark of a finished input: all event time has passed."""

WATERMARK_MIN_US = -(2**63)
"""The least that travels; it promises nothing."""
