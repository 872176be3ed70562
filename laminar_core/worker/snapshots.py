"""The asynchronous phase: finish, write and acknowledge the parts of a cut together.

One background thread per worker writes state, in the order of the cuts. Another one encodes
in-flight data, piece by piece while more is being recorded. A few more threads write the files
with in-flight data, and small cuts, such as a source's, which would otherwise wait for the state of
other vertices. All of this is done before state of another checkpoint is written, so a checkpoint
that completes says that no file of an earlier one is still being written.

A part that cannot be *written* fails the checkpoint. A part that cannot be *finished* fails the
generation, because the pre-committed data of a sink exists only there.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Literal

from laminar_core.codec.envelope import Compression
from laminar_core.errors import LaminarError
from laminar_core.host.calls import Calls, ThreadCalls
from laminar_core.host.clock import Clock
from laminar_core.operators.base import Snapshot
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.channel_entries import AlignmentEntry, InflightEntry
from laminar_core.records.limits import TIME_US_MIN
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.record import FileRef
from laminar_core.records.segment import SegmentRef, total_bytes
from laminar_core.worker.cuts import Cut, PendingPart
from laminar_core.worker.inflight import Captured, Queue
from laminar_core.worker.inflight_writing import (
    InflightComplete,
    InflightWriter,
    InflightWritten,
    NotFinished,
    NotWritten,
)
from laminar_core.worker.segments import NotMadeError, SegmentWriter

FILES_AT_ONCE = 4
"""Files that one worker reads or writes at a time, besides state."""


@dataclass(frozen=True, slots=True)
class BackgroundThreads:
    """The executors for a worker's background work, and its coroutines; one thread each.

    ``files`` has several, for reading the files of a restore, and for writing in-flight data and
    small cuts; None: that happens one after the other, in the thread that needs it. ``inflight``
    encodes in-flight data; None: the thread for snapshots does.
    """

    snapshots: Executor
    compactions: Executor
    calls: Calls
    files: Executor | None = None
    inflight: Executor | None = None


@contextmanager
def background_threads() -> Iterator[BackgroundThreads]:
    """Start them; at the end what they were given is finished."""
    with (
        ThreadPoolExecutor(FILES_AT_ONCE, "laminar-files") as files,  # Last to end: others use it.
        ThreadPoolExecutor(1, "laminar-inflight") as inflight,
        ThreadPoolExecutor(1, "laminar-snapshot") as snapshots,
        ThreadPoolExecutor(1, "laminar-compaction") as compactions,
        closing(ThreadCalls()) as calls,
    ):
        yield BackgroundThreads(snapshots, compactions, calls, files, inflight)


@dataclass(frozen=True, slots=True)
class Written:
    """All parts of one task's cut are durable."""

    cut: Cut
    entries: tuple[SubtaskEntry, ...]


Result = Written | InflightWritten | InflightComplete | NotWritten | NotFinished
Outstanding = tuple[Literal["state", "channels", "in-flight data"], str]
"""A missing piece of a worker's part, and the vertex that it is of; files are of all of them."""
INFLIGHT_FILES: Outstanding = ("in-flight data", "")


@dataclass(slots=True)
class WorkerPart:
    """The progress of one checkpoint in this worker."""

    missing: set[Outstanding]
    uncut: set[str]
    """Vertices that have not been cut."""
    entries: list[SubtaskEntry] = field(default_factory=list[SubtaskEntry])
    alignment: list[AlignmentEntry] = field(default_factory=list[AlignmentEntry])
    inflight_files: list[FileRef] = field(default_factory=list[FileRef])
    inflight: list[InflightEntry] = field(default_factory=list[InflightEntry])
    file_count: int | None = None
    """Files with in-flight data that there will be; None: more may be captured."""

    @classmethod
    def of(cls, vertices: Iterable[str]) -> "WorkerPart":
        """Return an empty part that misses the state and the channels of every vertex."""
        uncut = set(vertices)
        return cls({of(each) for each in uncut for of in (state_of, channels_of)}, uncut)

    def lacks_state_of(self, vertex_id: str) -> bool:
        """Return whether the vertex has not been cut, or its state is not written yet."""
        return state_of(vertex_id) in self.missing

    @property
    def can_be_packed(self) -> bool:
        """Whether there is in-flight data, and all channels of the worker are complete."""
        return INFLIGHT_FILES in self.missing and not any(
            kind == "channels" for kind, _ in self.missing
        )

    @property
    def has_inflight_files(self) -> bool:
        """Whether all files with in-flight data are durable."""
        return len(self.inflight_files) == self.file_count


def state_of(vertex_id: str) -> Outstanding:
    """Return the key for the vertex's state."""
    return "state", vertex_id


def channels_of(vertex_id: str) -> Outstanding:
    """Return the key for the completeness of the vertex's in-flight data."""
    return "channels", vertex_id


class SnapshotWriter:
    """Runs the asynchronous phase; ``results`` is read by the worker's thread."""

    def __init__(
        self,
        segments: SegmentWriter,
        threads: BackgroundThreads,
        clock: Clock,
        wake: Callable[[], None],
        compression: Compression | None = None,
    ) -> None:
        """``wake`` is called when there is a result; rows in flight get ``compression``."""
        self.segments = segments
        self._executor = threads.snapshots
        self._clock = clock
        self._wake = wake
        self._results: SimpleQueue[Result] = SimpleQueue()
        self._discarded: set[CheckpointId] = set()
        self._discards: deque[tuple[CheckpointId, Future[None]]] = deque()
        """Discards in order; each is done when all work queued before it is."""
        self._encoding = threads.inflight
        self._files = threads.files
        self._aside: dict[CheckpointId, list[Future[None]]] = {}
        """Small cuts in the hands of ``files``; used by the thread for snapshots only."""
        self._completing: dict[CheckpointId, Future[None]] = {}
        """Calls of ``InflightWriter.complete``, after which all files of a checkpoint are known.
        The worker's thread adds them, and the one for snapshots removes them."""
        self._inflight = InflightWriter(
            segments.store.parts,
            segments.subtask_index,
            self._put,
            self._discarded,
            compression,
            threads.files,
        )
        """Used by the thread that encodes; others only wait for files."""

    def submit(self, cut: Cut) -> None:
        """Queue the rest of a snapshot."""
        self._executor.submit(self._run, cut)

    def upload(self, part: PendingPart) -> None:
        """Queue changes ahead of the checkpoint that will need them."""
        self._executor.submit(self._run_upload, part)

    def capture(self, vertex_id: str, queue: Queue, captured: Captured) -> None:
        """Queue a piece of in-flight data."""
        executor = self._encoding or self._executor
        executor.submit(self._inflight.capture, vertex_id, queue, captured)

    def complete_inflight(self, checkpoint_id: CheckpointId) -> None:
        """Have the in-flight data written, because all channels of the worker are complete."""
        if self._encoding is None:  # Then it is in order with the cuts.
            self._executor.submit(self._inflight.complete, checkpoint_id)
        else:
            completing = self._encoding.submit(self._inflight.complete, checkpoint_id)
            self._completing[checkpoint_id] = completing

    def discard(self, checkpoint_id: CheckpointId) -> None:
        """Do not write what has not been written yet."""
        self._discarded.add(checkpoint_id)
        forgotten = self._executor.submit(self._forget, checkpoint_id)
        self._discards.append((checkpoint_id, forgotten))

    @property
    def given_up(self) -> int:
        """The number of discarded checkpoints whose parts are still queued."""
        while self._discards and self._discards[0][1].done():
            self._discards.popleft()
        return len({checkpoint_id for checkpoint_id, _ in self._discards})

    def results(self) -> list[Result]:
        """Return the results since the last call."""
        found: list[Result] = []
        while True:
            try:
                found.append(self._results.get_nowait())
            except Empty:
                return found

    def _run(self, cut: Cut) -> None:
        self._finish_others(cut.checkpoint_id)
        if self._files is not None and cut.is_small:
            writing = self._files.submit(self._write_and_put, cut)
            self._aside.setdefault(cut.checkpoint_id, []).append(writing)
        else:
            self._write_and_put(cut)

    def _write_and_put(self, cut: Cut) -> None:
        self._put(self._write(cut))

    def _finish_others(self, checkpoint_id: CheckpointId) -> None:
        """Wait until nothing of another checkpoint is being written."""
        for other in [number for number in self._aside if number != checkpoint_id]:
            wait(self._aside.pop(other))
        for other in [number for number in list(self._completing) if number != checkpoint_id]:
            wait([self._completing.pop(other)])
        self._inflight.finish_others(checkpoint_id)

    def _write(self, cut: Cut) -> Result:
        entries: list[SubtaskEntry] = []
        problem = ""
        for part in cut.parts:
            try:
                entries.append(self._write_part(cut.checkpoint_id, part))
            except _StoreError as error:
                problem = (
                    problem or f"{part.operator_id}: {error}"
                )  # Finish the others all the same.
            except Exception as error:  # noqa: BLE001 - it is reported, and ends the generation
                return _not_finished(error)
        if problem or cut.checkpoint_id in self._discarded:
            reason = problem or "given up before it was written"
            return NotWritten(cut.checkpoint_id, cut.vertex_id, reason)
        return Written(cut, tuple(entries))

    def _put(self, result: Result) -> None:
        self._results.put(result)
        self._wake()

    def _forget(self, checkpoint_id: CheckpointId) -> None:
        """Drop a checkpoint, after all captures that were queued before."""
        wait(self._aside.pop(checkpoint_id, ()))
        self._completing.pop(checkpoint_id, None)
        if self._encoding is None:
            self._inflight.forget(checkpoint_id)
        else:
            self._encoding.submit(self._inflight.forget, checkpoint_id).result()

    # --- state, in the background ---------------------------------------------------------------

    def _write_part(self, checkpoint_id: CheckpointId, part: PendingPart) -> SubtaskEntry:
        started_ms = self._clock.monotonic_ms()
        snapshot = part.pending()
        segments, written_bytes = self._write_state(checkpoint_id, part, snapshot)
        return SubtaskEntry(
            operator_id=part.operator_id,
            subtask_index=self.segments.subtask_index,
            segments=segments,
            expired_us={t: us for t, us in snapshot.expired_us.items() if us >= TIME_US_MIN},
            written_bytes=written_bytes,
            properties=snapshot.properties,
            committables=snapshot.committables,
            sync_ms=part.sync_ms,
            async_ms=self._clock.monotonic_ms() - started_ms,
        )

    def _write_state(
        self, checkpoint_id: CheckpointId, part: PendingPart, snapshot: Snapshot
    ) -> tuple[tuple[SegmentRef, ...], int]:
        """The segments of a part, and how many bytes of them are new."""
        if part.merge is not None:
            self.segments.add_changes(part.operator_id, snapshot, renews=part.renews)
        if checkpoint_id in self._discarded:
            return (), 0
        try:
            if part.merge is None:
                tables = snapshot.tables
                written = self.segments.write_all(checkpoint_id, part.operator_id, tables)
                return written, total_bytes(written)
            chain = self.segments.write_changes(part.operator_id, snapshot.expired_us, part.merge)
            return chain, self.segments.take_written_bytes(part.operator_id)
        except LaminarError as error:
            raise _StoreError(str(error)) from error

    def _run_upload(self, part: PendingPart) -> None:
        """Upload changes ahead; if the store refuses, the next checkpoint tries again."""
        try:
            snapshot = part.pending()
            assert part.merge is not None, "only changes are uploaded ahead"
            self.segments.add_changes(part.operator_id, snapshot)
            with suppress(LaminarError):
                self.segments.write_changes(part.operator_id, snapshot.expired_us, part.merge)
        except Exception as error:  # noqa: BLE001 - it is reported, and ends the generation
            self._put(_not_finished(error))


class _StoreError(Exception):
    """Wraps a failed write, to distinguish it from a snapshot that could not be computed."""


def _not_finished(error: Exception) -> NotFinished:
    """Return the operator's own error, without the wrapper around it."""
    cause = error.__cause__
    if isinstance(error, NotMadeError) and isinstance(cause, Exception):
        return NotFinished(cause)
    return NotFinished(error)
