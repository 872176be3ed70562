"""The asynchronous phase: parts of a cut are finished, written and acknowledged together.

One background thread per worker writes them, in the order of the cuts. A part that cannot be
*written* costs the checkpoint; a part that cannot be *finished* costs the generation, because
what a sink has pre-committed exists nowhere else.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from laminar_core.checkpoint.types import CheckpointId
from laminar_core.errors import LaminarError
from laminar_core.runtime.clock import Clock
from laminar_core.runtime.task import Cut, PendingPart
from laminar_core.state.manifest import AlignmentEntry, SubtaskEntry
from laminar_core.storage.checkpoint_store import CheckpointStore


@dataclass(frozen=True, slots=True)
class Written:
    """All parts of one task's cut are durable."""

    cut: Cut
    entries: tuple[SubtaskEntry, ...]


@dataclass(frozen=True, slots=True)
class NotWritten:
    """The store did not take a part."""

    cut: Cut
    reason: str


@dataclass(frozen=True, slots=True)
class NotFinished:
    """A part could not be made."""

    error: Exception


Result = Written | NotWritten | NotFinished


@dataclass(slots=True)
class WorkerPart:
    """What is known of one checkpoint in this worker."""

    missing: set[str]
    entries: list[SubtaskEntry] = field(default_factory=list)
    alignment: list[AlignmentEntry] = field(default_factory=list)


class SnapshotWriter:
    """Runs the asynchronous phase; ``results`` is read by the worker's thread."""

    def __init__(
        self,
        store: CheckpointStore,
        subtask_index: int,
        executor: Executor,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._subtask_index = subtask_index
        self._executor = executor
        self._clock = clock
        self._wake = wake
        self._results: SimpleQueue[Result] = SimpleQueue()
        self._discarded: set[CheckpointId] = set()

    def submit(self, cut: Cut) -> None:
        """Queue the rest of a snapshot."""
        self._executor.submit(self._run, cut)

    def discard(self, checkpoint_id: CheckpointId) -> None:
        """Do not write what has not been written yet."""
        self._discarded.add(checkpoint_id)

    def results(self) -> list[Result]:
        """What has ended since the last call."""
        found: list[Result] = []
        while True:
            try:
                found.append(self._results.get_nowait())
            except Empty:
                return found

    def _run(self, cut: Cut) -> None:
        self._results.put(self._write(cut))
        self._wake()

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
                return NotFinished(error)
        if problem or cut.checkpoint_id in self._discarded:
            return NotWritten(cut, problem or "given up before it was written")
        return Written(cut, tuple(entries))

    def _write_part(self, checkpoint_id: CheckpointId, part: PendingPart) -> SubtaskEntry:
        started_ms = self._clock.monotonic_ms()
        snapshot = part.pending()
        table, file = snapshot.table, None
        if table is not None and table.num_rows and checkpoint_id not in self._discarded:
            try:
                file = self._store.write_state(
                    checkpoint_id, part.operator_id, self._subtask_index, table
                )
            except LaminarError as error:
                raise _StoreError(str(error)) from error
        return SubtaskEntry(
            operator_id=part.operator_id,
            subtask_index=self._subtask_index,
            state=file,
            row_count=table.num_rows if table is not None else 0,
            properties=snapshot.properties,
            committables=snapshot.committables,
            sync_ms=part.sync_ms,
            async_ms=self._clock.monotonic_ms() - started_ms,
        )


class _StoreError(Exception):
    """Tells a store that refused from a snapshot that could not be made."""
