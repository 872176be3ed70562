"""Carry out one plan of retention that is decided; any process can repeat every step."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.retention import (
    DeletionMarker,
    PlannedCheckpoint,
    PlannedFile,
    QuarantineRecord,
    RetentionPlanRecord,
    RetentionResult,
)
from laminar_core.records.retention_paths import RetentionPaths
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import create_or_confirm
from laminar_core.store.retention_log import RetentionLog

Map = Callable[..., Iterable[Any]]
"""The built-in ``map``, or the map of a pool."""

Progress = Callable[[int, int], None]
"""Receives the number of steps done, and the number of all steps."""


class Application:
    """Carries out one decided plan; every step can be repeated."""

    def __init__(
        self,
        store: CheckpointStore,
        record: RetentionPlanRecord,
        readers: int,
        now_ms: Callable[[], int],
        progress: Progress | None,
    ) -> None:
        self._store = store
        self._objects = store.objects
        self._paths = RetentionPaths(store.paths)
        self._record = record
        self._readers = readers
        self._now_ms = now_ms
        self._progress = progress
        self._map: Map = map
        self._done = 0
        self._total = sum(1 + len(c.files) for c in record.checkpoints) + len(record.orphans)

    def run(self) -> RetentionResult:
        """Delete what the plan lists, and record the result; the first result stands.

        Raises:
            StorageUnavailable: the store did not answer; the next run continues.
        """
        if self._readers == 1:
            return self._run()
        with ThreadPoolExecutor(self._readers) as pool:
            self._map = pool.map
            return self._run()

    def _run(self) -> RetentionResult:
        record = self._record
        deque(self._map(self._mark, record.checkpoints), maxlen=0)  # All, before anything goes.
        for checkpoint in record.checkpoints:
            self._delete_checkpoint(checkpoint)
        self._delete_all(self._key(file.path) for file in record.orphans)
        self._delete_all(self._paths.quarantined(file.path) for file in record.orphans)
        self._delete_all(self._paths.quarantined(path) for path in record.released)
        for seen in record.quarantine:
            self._quarantine(seen)
        for checkpoint_id in record.forgotten:
            self._forget(checkpoint_id)
        result = RetentionResult(
            number=record.number,
            finished_at_ms=self._now_ms(),
            deleted_checkpoints=len(record.checkpoints),
            deleted_files=sum(len(c.files) for c in record.checkpoints) + len(record.orphans),
            deleted_bytes=record.deleted_bytes,
            quarantined_files=len(record.quarantine),
        )
        RetentionLog(self._objects, self._store.paths).record_result(result)
        return result

    def _mark(self, checkpoint: PlannedCheckpoint) -> None:
        """Create the deletion marker.

        One from an earlier plan stands, because it means the same.
        """
        marker = DeletionMarker(
            checkpoint_id=checkpoint.checkpoint_id,
            plan=self._record.number,
            actor=self._record.actor,
            reason="; ".join(checkpoint.reasons),
        )
        key = self._paths.paths.deletion(checkpoint.checkpoint_id)
        create_or_confirm(self._objects, key, marker.to_bytes())

    def _delete_checkpoint(self, checkpoint: PlannedCheckpoint) -> None:
        """Delete the files, then the manifest: a reader of the manifest sees the marker, too."""
        self._delete_all(map(self._key, checkpoint.files))
        self._delete_all([self._store.paths.manifest(checkpoint.checkpoint_id)])

    def _quarantine(self, seen: PlannedFile) -> None:
        record = QuarantineRecord(
            path=seen.path,
            reason=seen.reason,
            size_bytes=seen.size_bytes,
            plan=self._record.number,
            first_seen_at_ms=self._record.planned_at_ms,
        )
        create_or_confirm(self._objects, self._paths.quarantined(seen.path), record.to_bytes())

    def _forget(self, checkpoint_id: CheckpointId) -> None:
        """Delete the last traces of a checkpoint, the history entry last.

        So that a retry finds the rest.

        The id is below the newest one that can be restored, so the owner of the job has passed it.
        A driver that was suspended may reserve it once more, but is fenced before it publishes. A
        tombstone stays, with the reservation: a process may be suspended in the middle of
        publishing that attempt.
        """
        paths = self._store.paths
        self._objects.delete(paths.commit(checkpoint_id))
        self._objects.delete(paths.damage(checkpoint_id))
        self._objects.delete(paths.deletion(checkpoint_id))
        if self._objects.size(paths.manifest(checkpoint_id)) is None:
            self._objects.delete(paths.trigger(checkpoint_id))
        self._objects.delete(paths.outcome(checkpoint_id))

    def _key(self, path: str) -> str:
        return self._store.paths.absolute(path)

    def _delete_all(self, keys: Iterable[str]) -> None:
        for _ in self._map(self._objects.delete, keys):
            self._tick()

    def _tick(self) -> None:
        self._done = min(self._done + 1, self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)
