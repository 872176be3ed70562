"""The interfaces of sources and sinks: replayable splits in, two-phase committables out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from laminar_core.connectors.outlook import Outlook, Promise, Repeat
from laminar_core.errors import ErrorCode, IncompatibleStateError, ProtocolError
from laminar_core.operators.base import (
    JsonObject,
    OutputMode,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
)
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.store.staging import StagingArea


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Rows that a reader returned, in order, and messages that are no rows.

    Shapes: ``letters`` has the columns of ``formats.messages.letters_schema``; their ``index``
    counts the messages of this batch from 0. Such a batch names its split.
    """

    rows: pa.RecordBatch
    split_id: int | None = None
    """The split that they are of; None if rows of several splits are side by side."""
    letters: pa.RecordBatch | None = None
    """Messages that were read and are no rows; the pipeline decides what becomes of them."""
    messages: int | None = None
    """The number of messages; None: each row and each letter was one."""

    @property
    def message_count(self) -> int:
        """The number of messages."""
        letters = 0 if self.letters is None else self.letters.num_rows
        return self.rows.num_rows + letters if self.messages is None else self.messages


@dataclass(frozen=True, slots=True)
class SplitStatus:
    """The state of one split that a reader reads side by side with others."""

    split_id: int
    caught_up: bool = False
    """Everything that is there has been returned."""
    blocked: str = ""
    """Why rows that are there cannot be read yet, for people; empty: they can."""
    lag_rows: int | None = None
    """Rows that are there and were not returned; None: unknown."""
    lag_seconds: float | None = None
    """Age of the first row that is there and was not returned, by the time at which the input
    stored it; 0: there is none; None: unknown."""
    queued_bytes: int | None = None
    """Bytes that a client has fetched and not handed over yet; None: unknown."""


class SourceReader(Protocol):
    """Reads one subtask's splits, in order. Its position is part of the checkpoint."""

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next rows, at most ``rows_max``, or None if none are available right now.

        There may be letters and no rows. It must not wait. Afterwards ``position`` is exactly
        behind these rows: the reader keeps what else it has decoded, because only the source knows
        the offset in the middle of a batch.

        Raises:
            DataError: a split cannot be read.
        """
        ...

    @property
    def finished(self) -> bool:
        """Whether all splits that the reader has are read to their end.

        Never true for an unbounded source. As long as the discovery of the source goes on, the
        subtask waits for more splits although its reader has finished.
        """
        ...

    def add(self, splits: pa.Table) -> None:
        """Read these splits, too. Called between two polls; ``position`` has them from now on.

        Only a source whose discovery goes on while the job runs gets this call, so a reader of a
        fixed list inherits from this class and leaves it out.
        """
        name = f"{type(self).__name__} was given {splits.num_rows} more splits and has no add()"
        raise ProtocolError(ErrorCode.ILLEGAL_EVENT, name)

    def hold(self, split_ids: frozenset[int]) -> None:
        """Read these splits no further until the next call, and all others again.

        Called between two polls, and only for a source with a ``max_drift``. Held splits stay in
        ``position``, and rows of them that are here already are kept for later.
        """
        del split_ids
        name = f"{type(self).__name__} has no hold(), which max_drift needs"
        raise ProtocolError(ErrorCode.ILLEGAL_EVENT, name)

    def status(self) -> Sequence[SplitStatus]:
        """Return the state of the splits; must not wait. Splits that are left out are unknown.

        Only asked of a source whose ``reading`` is ``parallel``. A split without rows is idle, and
        no longer holds event time back, once it has been caught up, or unknown, for the source's
        idle timeout. Without a timeout, one that is caught up and never had a row is idle at
        once, and no other. A blocked split is never idle.
        """
        return ()

    def position(self) -> pa.Table:
        """Return the splits, positioned behind all rows that ``poll`` returned, for ``open``.

        Same columns as ``Found.splits``. Later calls of ``poll`` do not change the table.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one step of a discovery."""

    splits: pa.Table
    """The new splits, at their beginning, one row each. Columns: ``split_columns()`` and the
    source's own, also if there is no row. A ``split_id`` is never used again, so the next one is
    part of ``state``."""
    state: JsonObject
    """The memory of the discovery. It is part of every checkpoint: keep it small."""
    complete: bool = False
    """Whether nothing more will ever be found. Then there is no next step, and the source ends when
    its splits do."""
    problems: Sequence[str] = ()
    """Input that cannot be read, for people: one line each, reported once."""
    late_count: int | None = None
    """Number of files that are there now, came too late and are not read; None: there is no such
    limit."""


class Discovery(Protocol):
    """Finds the splits of a source, one step after the other, in the driver.

    It has no memory besides the state that it returns, because a restart continues with the state
    of an older checkpoint: what was found since then must be found again.
    """

    @property
    def interval_ms(self) -> int:
        """The pause between two steps, in milliseconds."""
        ...

    def step(self, state: JsonObject) -> Found:
        """Return what is there that a discovery with this ``state`` has not found.

        ``{}`` is the state of a fresh start. The first step runs before the workers start, all
        others in a thread of their own while the job runs; so a step may wait for its input, but
        for seconds only.

        Raises:
            ConfigurationError, DataError: the input cannot be read as it is. The job ends.
            StorageUnavailable: the input did not answer; so does any other exception mean. The
                step is tried again, and the job goes on with the splits that it has. (The first
                step of a fresh start is not tried again: it fails the start.)
        """
        ...


Reading = Literal["sequential", "parallel"]
"""``sequential``: one split after the other, as files; event time follows the newest row.
``parallel``: all splits side by side, as partitions; event time is the least over the splits, and
every ``SourceBatch`` names its split."""

GapCause = Literal[
    "retention", "recreated", "gone", "truncated", "changed", "slot-lost", "slot-ahead"
]
"""Why rows are missing: the input deletes old rows; it was deleted and made again, or is gone; it
ends before the position; it has changed; a database has dropped its log; or it has gone on in it.
"""

Mend = Literal["earliest", "skip-split"]
"""How to continue behind a gap: at the first row that is there, or without the rest of the split.
"""


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows that a checkpoint has not read, and that the input no longer has."""

    split: str
    """The name of the split, or what several splits have in common, such as a file."""
    wanted: str
    """The offset at which the checkpoint continues."""
    available: tuple[str, str] | None
    """The first offset that is there, and the end; None: nothing is there."""
    rows_lost: int | None
    """None: unknown."""
    why: GapCause
    details: str = ""
    """One line for people, in place of the facts above; it says how to bring the rows back."""

    def __str__(self) -> str:
        if self.details:
            return self.details
        there = "nothing is there"
        if self.available is not None:
            there = "there is {} to {}".format(*self.available)
        lost = "an unknown number of" if self.rows_lost is None else f"{self.rows_lost:,}"
        at = f"{self.split} continues at {self.wanted}"
        return f"{at}, and {there} ({self.why}): {lost} rows are lost"


@dataclass(frozen=True, slots=True)
class Headroom:
    """How far positions are from rows that the input has deleted: the least over the splits."""

    rows: int | None = None
    """Rows between the oldest one that is there and the position, at most; below 0: rows are lost.
    None: unknown, or nothing is left to read."""
    seconds: float | None = None
    """Time until the input may delete the first row behind the position, at least. None: unknown,
    or it deletes none because of its age."""


@runtime_checkable
class Forgetting(Protocol):
    """A source whose input deletes old rows; others do not have this method."""

    def headroom(self, splits: pa.Table) -> Headroom:
        """Return how long a job can still continue at these positions.

        Called in the driver, in a thread, about once a minute while the job runs. It may wait for
        the input, but for seconds only.

        Raises:
            StorageUnavailable: the input did not answer.
        """
        ...


@runtime_checkable
class LeavesOut(Protocol):
    """A source whose discovery has to know what is not read on; others lack this method."""

    def leave_out(self, state: JsonObject, gaps: Sequence[Gap]) -> JsonObject:
        """Return the state with which the discovery continues behind accepted gaps.

        ``state``: as the checkpoint has it. Called in the driver, after ``Source.mend``.
        """
        ...


class Source(Protocol):
    """A replayable input. A *split* is what one subtask reads alone; a table row describes it."""

    @property
    def reading(self) -> Reading:
        """How a reader goes through its splits; decides how event time follows from their rows."""
        return "sequential"

    @property
    def gathers(self) -> bool:
        """Whether small batches that are there at once may be processed as one.

        They never are where operators before the next exchange make event time of them: which rows
        are late would depend on what is there at once.
        """
        return True

    def describe(self) -> JsonObject:
        """Return the description that decides whether an old position still fits."""
        ...

    @property
    def properties(self) -> JsonObject:
        """A few facts about how rows are read, which every checkpoint records.

        They may differ between two runs: no position depends on them.
        """
        return {}

    def schema(self) -> pa.Schema:
        """Return the schema of the batches.

        Raises:
            ConfigurationError: there are no data, or they have no common schema.
        """
        ...

    def discovery(self) -> Discovery:
        """Return what finds the splits, in the driver; ``fixed_list`` makes one for a fixed list.

        Splits are read in the order of ``split_id``. The columns of ``split_columns()`` are
        required; others are the source's own. Only the source interprets ``offset``, so it can be a
        byte, a sequence number with gaps, or JSON.
        """
        ...

    def gaps(self, splits: pa.Table) -> Sequence[Gap]:
        """Return all gaps after these positions. The driver calls it before a restore.

        A gap is returned, never raised. A source that never loses rows inherits this method.

        Raises:
            IncompatibleStateError: the splits are not this source's at all.
            StorageUnavailable: the input did not answer.
        """
        del splits
        return ()

    def mend(self, splits: pa.Table, gap: Gap, how: Mend) -> pa.Table:
        """Return the splits with positions behind ``gap``, as a person has accepted it.

        Raises:
            IncompatibleStateError: the source cannot continue in this way.
        """
        del splits
        raise IncompatibleStateError(
            ErrorCode.SOURCE_CHANGED,
            f"{gap.split}: {type(self).__name__} cannot continue behind missing rows ({how})",
        )

    def open(self, splits: pa.Table) -> SourceReader:
        """Start reading at the offsets in ``splits``; called in a worker."""
        ...


@runtime_checkable
class StatesStart(Protocol):
    """A source whose fresh start can begin at a place that a person states; most cannot."""

    def starting_at(self, position: str) -> Source:
        """Return this source with another place for a fresh start.

        ``position``: as people write it, such as a time; only the source understands it.

        Raises:
            ConfigurationError: it is no position of this source.
        """
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


@runtime_checkable
class CommitListener(Protocol):
    """A sink's writer that reuses what its committables name; most have no need of it."""

    def committed(self, checkpoint_id: CheckpointId) -> None:
        """Take note that the output up to this checkpoint is visible, and that this is recorded."""
        ...


class Committer(Protocol):
    """Makes pre-committed output visible. One, in the driver, in checkpoint order.

    ``take_over`` comes first. A recovery then asks for the ``outlook`` of what is to be committed
    again. When the workers have restored their state, and opened their writers, it commits that
    and calls ``discard_uncommitted``; then the workers begin. Dry runs and drills call ``outlook``
    and ``last_committed`` without ``take_over``; these two change nothing.
    """

    @property
    def repeat(self) -> Repeat:
        """Say what follows if committed rows are produced again; a fixed property of the sink."""
        ...

    def take_over(self, generation: Generation) -> None:
        """Make sure that no generation before ``generation`` can commit any more.

        Called at the start of a generation, and again before a commit that failed is repeated. The
        caller then verifies that it still owns the job: a driver that slept calls this as well. A
        target that cannot tell generations apart does nothing here. Then ``commit`` must be
        harmless if an older generation repeats it, and ``discard_uncommitted`` must end that.

        Raises:
            StorageUnavailable: the target did not answer; try again.
            ConfigurationError: the target refuses, or holds output of another run.
        """
        ...

    def outlook(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> Outlook:
        """Return what ``commit`` of these would do; changes nothing.

        Raises:
            ConfigurationError: the target holds output of another run.
            CorruptCheckpointError: these are no committables of this sink.
            StorageUnavailable: the target did not answer.
        """
        ...

    def commit(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        """Publish exactly these; idempotent, because it is repeated after a crash.

        A checkpoint without rows is committed as well, with no committables.

        Raises:
            StorageUnavailable: it may or may not have happened. The caller repeats it, after
                another ``take_over``; a decided commit is never rolled back.
            FencedError: another driver has taken over. If the caller still owns the job, it
                repeats the commit as well.
        """
        ...

    def last_committed(self) -> CheckpointId | None:
        """Return the newest checkpoint with visible output; None if there is none.

        Output is visible if any reader of the target may see it. This includes output of an
        interrupted commit, whether or not the sink has listed it.

        Raises:
            ConfigurationError: the target holds output of another run.
            StorageUnavailable: the target did not answer.
        """
        ...

    def discard_uncommitted(self, generation: Generation) -> None:
        """Delete output staged before ``generation`` that can no longer be committed.

        From now on no older generation can commit. Files in the ``StagingArea`` are not the
        committer's business: Laminar deletes them.

        Raises:
            FencedError: another driver has taken over.
            StorageUnavailable: the target did not answer.
        """
        ...


@runtime_checkable
class Withdrawing(Protocol):
    """A committer whose ``repeat`` is ``withdrawn``; others do not have this method."""

    def withdraw_after(self, checkpoint_id: CheckpointId, generation: Generation) -> None:
        """Take back visible output of later checkpoints: the job is going to produce it again.

        Called at every start, because a commit may have been interrupted; mostly there is nothing
        to take back. What counts is what a reader may see, whether or not the sink has listed it.

        Only what generations before ``generation`` wrote: a driver that slept until now must not
        take back the output of its successors.

        Raises:
            ConfigurationError: others have built on the output, so it cannot be taken back.
            FencedError: another driver has taken over.
            StorageUnavailable: the target did not answer.
        """
        ...


class Sink(Protocol):
    """The destination of rows.

    A sink that takes more than rows to append has an attribute ``accepts``, see ``accepted_by``.
    With ``upsert``, ``updates_by`` names the columns by which it replaces rows. With ``retract`` it
    is given the column ``_weight``. One that can delete by key is ``DeletesByKey``.
    """

    def describe(self) -> JsonObject:
        """Return the description that decides whether pre-committed output still fits.

        It is stored and shown, so it must not contain secrets.
        """
        ...

    def check(self, schema: pa.Schema, promise: Promise) -> Sequence[str]:
        """Verify in the driver that rows of ``schema`` can be written; return warnings.

        Each warning is one line that says what may go wrong, and how to avoid it.

        Raises:
            ConfigurationError: a type or the target is not usable.
        """
        ...

    def open(self, context: SubtaskContext, schema: pa.Schema) -> SinkWriter:
        """Create the writer of one subtask; called in a worker."""
        ...

    def committer(self, staging: StagingArea) -> Committer | None:
        """Return the committer; ``staging`` is the sink's space in the checkpoint store.

        None if the rows are part of the state, with no output to commit.
        """
        ...


@runtime_checkable
class DeletesByKey(Protocol):
    """A sink that replaces rows by key, and deletes them where it is given weights."""

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The columns by which it replaces rows; empty if it only appends."""
        ...

    def with_deletions(self) -> Sink:
        """Return the sink for rows with ``_weight``, with one key after the other.

        1: this is now the row of its key. -1: the key, which had this row, has none any more.
        """
        ...


def accepted_by(sink: Sink) -> frozenset[OutputMode]:
    """Return the modes of streams that a sink takes; without ``accepts`` it only appends."""
    return getattr(sink, "accepts", frozenset({"append"}))
