"""The interfaces of sources and sinks: replayable splits in, two-phase committables out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Rows that a reader returned, in order."""

    rows: pa.RecordBatch
    split_id: int | None = None
    """The split that they are of; None if rows of several splits are side by side."""


class SourceReader(Protocol):
    """Reads one subtask's splits, in order. Its position is part of the checkpoint."""

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next rows, at most ``rows_max``, or None if none are available right now.

        It must not wait. Afterwards ``position`` is exactly behind these rows: the reader keeps
        what else it has decoded, because only the source knows the offset in the middle of a batch.

        Raises:
            DataError: a split cannot be read.
        """
        ...

    @property
    def finished(self) -> bool:
        """Whether all splits are read to their end; never true for an unbounded source."""
        ...

    def position(self) -> pa.Table:
        """Return the splits, positioned behind all rows that ``poll`` returned, for ``open``.

        Same columns as ``Source.discover``. Later calls of ``poll`` do not change the table.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class Source(Protocol):
    """A replayable input. A *split* is what one subtask reads alone; a table row describes it."""

    def describe(self) -> JsonObject:
        """Return the description that decides whether an old position still fits."""
        ...

    def schema(self) -> pa.Schema:
        """Return the schema of the batches.

        Raises:
            ConfigurationError: there are no data, or they have no common schema.
        """
        ...

    def discover(self) -> pa.Table:
        """Return all splits of a fresh start, one row each, in reading order, at their beginning.

        Called in the driver, once: the result is pinned in every checkpoint. The columns of
        ``split_columns()`` are required; others are the source's own. Only the source interprets
        ``offset``, so it can be a byte, a sequence number with gaps, or JSON.
        """
        ...

    def check(self, splits: pa.Table) -> None:
        """Verify in the driver, before a restore, that the rest of these splits is still there.

        Raises:
            IncompatibleStateError: a file is gone or is another one than when it was pinned.
        """
        ...

    def open(self, splits: pa.Table) -> SourceReader:
        """Start reading at the offsets in ``splits``; called in a worker."""
        ...


class SinkWriter(Protocol):
    """One subtask of a sink: stages rows, pre-commits them at the barrier."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows of the running checkpoint interval."""
        ...

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pre-commit: turn the rows written since the last snapshot into committables."""
        ...

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Start from these snapshots; committables in them are the committer's business."""
        ...

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return rows for the driver after the end of the job; empty for most sinks."""
        ...

    def close(self) -> None:
        """Discard staged rows that are not pre-committed."""
        ...


class Committer(Protocol):
    """Makes pre-committed output visible. One, in the driver, in checkpoint order."""

    def commit(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        """Publish exactly these; idempotent, because it is repeated after a crash.

        Raises:
            StorageUnavailable: try again; a decided commit is never rolled back.
        """
        ...

    def check(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        """Verify, before a restore, that ``commit`` of these would succeed; changes nothing.

        Raises:
            CorruptCheckpointError: pre-committed output is gone (TRANSACTION_LOST): deleted, or its
                transaction timed out. The message contains the remedy.
            StorageUnavailable: the target did not answer.
        """
        ...

    def last_committed(self) -> CheckpointId | None:
        """Return the newest checkpoint with visible output; None if there is none.

        Output is visible if any reader of the target may see it. This includes output of an
        interrupted commit, whether or not the sink has listed it.
        """
        ...

    def withdraw_after(self, checkpoint_id: CheckpointId, generation: Generation) -> None:
        """Take back visible output of later checkpoints: the job is going to produce it again.

        Called at every start, because a commit may have been interrupted; mostly there is nothing
        to take back. What counts is what a reader may see, whether or not the sink has listed it.

        Only what generations before ``generation`` wrote: a driver that slept until now must not
        take back the output of its successors.
        """
        ...

    def discard_uncommitted(self, generation: Generation) -> None:
        """Delete output staged before ``generation`` that can no longer be committed."""
        ...


class Sink(Protocol):
    """The destination of rows."""

    def describe(self) -> JsonObject:
        """Return the description that decides whether pre-committed output still fits."""
        ...

    def check(self, schema: pa.Schema) -> None:
        """Verify in the driver that rows of ``schema`` can be written.

        Raises:
            ConfigurationError: a type or the target is not usable.
        """
        ...

    def open(self, context: SubtaskContext, schema: pa.Schema) -> SinkWriter:
        """Create the writer of one subtask; called in a worker."""
        ...

    def committer(self) -> Committer | None:
        """Return the committer.

        None if the rows are part of the state, with no output to commit.
        """
        ...
