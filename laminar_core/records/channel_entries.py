"""Entries of a manifest about channels: edges, event times, and data in flight."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from laminar_core.protocol.edges import PartitioningKind, may_overtake
from laminar_core.protocol.types import ResolvedMode
from laminar_core.records.limits import FILE_BYTES_MAX, PATH_LENGTH_MAX
from laminar_core.records.paths import Direction
from laminar_core.records.record import (
    Count,
    DurationMs,
    FileBytes,
    Many,
    Record,
    Sha256,
    TimeUs,
)

PartBytes = Annotated[int, Field(ge=1, le=FILE_BYTES_MAX)]
"""A length of a part of a file: none is empty."""


class ChannelEntry(Record):
    """Event time of one input channel at the cut, to be restored before anything is replayed."""

    input_id: Count
    watermark_us: TimeUs | None
    idle: bool


SLOWEST_CHANNELS_MAX = 4
"""Channels grow with the square of the workers; per subtask so many are named, the slowest."""


class ChannelAlignment(Record):
    """How long the barrier took to reach a subtask on one of its input channels."""

    input_id: Count
    upstream: str = Field(description="vertex_id of the sender.")
    sender: Count = Field(description="Subtask of the upstream vertex.")
    barrier_ms: DurationMs | None = Field(
        description="From the subtask's first barrier until this one was reached; None: overtaken."
    )


class AlignmentEntry(Record):
    """How one subtask of a vertex aligned.

    ``switched`` includes a subtask whose barrier the timeout moved to the head of an output queue.
    ``finished``: its input had ended and was flushed; a restore does not read a finished source
    again. Elements left in its output queues may be overtaken like any others.
    """

    vertex_id: str
    subtask_index: Count
    mode: ResolvedMode
    start_delay_ms: DurationMs
    alignment_ms: DurationMs
    watermark_us: TimeUs | None
    channels: Many[ChannelEntry] = ()
    finished: bool = False
    slowest_channels: tuple[ChannelAlignment, ...] = Field(
        default=(),
        max_length=SLOWEST_CHANNELS_MAX,
        exclude_if=lambda channels: not channels,  # Written as before where none is named.
        description="Slowest first; none where there is one channel, or that are not known.",
    )


class EdgeRef(Record):
    """An edge by what is stable about it; two vertices can be joined by several (PROTOCOL 10).

    ``feedback``: back to the head of a loop, so logged at *every* cut, also an aligned one.
    """

    upstream: str = Field(description="vertex_id of the sender.")
    downstream: str = Field(description="vertex_id of the receiver.")
    input_index: Count = Field(description="Position among the edges into the receiver.")
    feedback: bool = False


class EdgeEntry(EdgeRef):
    """An edge of the pipeline, and how it divides rows among the subtasks of the receiver."""

    partitioning: PartitioningKind
    loop: str | None = Field(
        default=None, description="The loop that both ends are in, named after its first head."
    )

    @property
    def may_overtake(self) -> bool:
        """Whether an unaligned barrier may overtake the data on it."""
        return may_overtake(self.partitioning, self.loop)


class InflightEntry(Record):
    """Elements that were in flight on one channel at the cut, and their place in a file.

    A file has the elements of many channels. Length and digest are those of the part.
    ``operator_id`` is the first operator of the receiving vertex for ``input``, the last one of the
    sending vertex for ``output``. ``subtask_index`` is the owner of the queue, ``input_id`` the
    number of the channel there.
    """

    path: str = Field(description="One of inflight_files.", max_length=PATH_LENGTH_MAX)
    offset: FileBytes = Field(description="Of the part's first byte.")
    size_bytes: PartBytes
    sha256: Sha256
    operator_id: str
    direction: Direction
    subtask_index: Count
    input_id: Count
    edge: EdgeRef
    sender: Count = Field(description="Subtask of the edge's upstream vertex.")
    receiver: Count = Field(description="Subtask of the edge's downstream vertex.")
    event_count: Count = Field(description="Batches, watermarks and idle marks.")
    row_count: Count

    @model_validator(mode="after")
    def _was_in_the_queue_of_one_end(self) -> Self:
        recorder = "receiver" if self.direction == "input" else "sender"
        if self.subtask_index != (self.receiver if recorder == "receiver" else self.sender):
            raise ValueError(f"an {self.direction} queue must be recorded by its {recorder}")
        return self

    @property
    def end(self) -> int:
        """Return the offset of the first byte behind the part."""
        return self.offset + self.size_bytes

    @property
    def channel(self) -> str:
        """Return the end of the channel in words, for messages."""
        where = f"{self.direction} {self.input_id} of {self.operator_id}"
        ends = f"from {self.edge.upstream} {self.sender} to {self.edge.downstream} {self.receiver}"
        return f"{where} subtask {self.subtask_index}, {ends}"

    @property
    def queue(self) -> tuple[str, int, int, int, Direction]:
        """Return the identity of the queue: no two parts of a checkpoint have the same."""
        edge = self.edge
        return edge.downstream, edge.input_index, self.receiver, self.sender, self.direction
