"""Write the positions of removed sources again with every checkpoint.

A checkpoint that only named files of older ones would be lost together with them, and no worker
could write them again. So recovery reads the files once, verified, and every checkpoint of the
generation writes them into its own folder. A removed source costs what it cost while it was there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import CarriedOperator, DiscoveryEntry, SubtaskEntry
from laminar_core.records.paths import JobPaths
from laminar_core.records.savepoint import is_own
from laminar_core.records.segment import SegmentRef, total_bytes
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.verification import read_verified


@dataclass(frozen=True, slots=True)
class Carried:
    """The removed sources whose positions every checkpoint of a generation contains unchanged."""

    manifest: CheckpointManifest
    """The checkpoint that the generation continues from."""
    operators: Mapping[str, CarriedOperator]
    """The removed sources, and the operators chained to them."""
    files: Mapping[str, bytes]
    """Their files, by path in ``manifest``; without shared ones, which are named as they are."""

    @classmethod
    def read(
        cls,
        store: CheckpointStore,
        manifest: CheckpointManifest,
        operators: Mapping[str, CarriedOperator],
    ) -> Self:
        """Read the files.

        Raises:
            CorruptCheckpointError: one is missing, or not what was written.
            StorageUnavailable: the store did not answer.
        """
        files = {
            segment.path: read_verified(store.objects, store.paths, segment)
            for entry in manifest.subtasks
            if entry.operator_id in operators
            for segment in entry.segments
            if is_own(segment.path)
        }
        return cls(manifest, operators, files)

    def entries(self, paths: JobPaths, checkpoint_id: CheckpointId) -> Iterator[SubtaskEntry]:
        """Yield their parts of a checkpoint, as ``write`` writes them."""
        for entry in self.manifest.subtasks:
            if entry.operator_id in self.operators:
                moved = [new for _, new in self._moved(entry, paths, checkpoint_id)]
                written = total_bytes(s for s in entry.segments if s.path in self.files)
                now = {"segments": tuple(moved), "written_bytes": written}
                yield entry.model_copy(update={**now, "sync_ms": 0.0, "async_ms": 0.0})

    def write(self, store: CheckpointStore, checkpoint_id: CheckpointId) -> None:
        """Write the files of a checkpoint, durably. Writing them again changes nothing.

        Raises:
            CheckpointDeclined: something else is there.
            StorageUnavailable: the store is full or does not answer.
        """
        for entry in self.manifest.subtasks:
            if entry.operator_id in self.operators:
                for old, new in self._moved(entry, store.paths, checkpoint_id):
                    if old.path in self.files:
                        store.parts.write_copy(checkpoint_id, new, self.files[old.path])

    def discovery(self) -> dict[str, DiscoveryEntry]:
        """Return what their discoveries had found."""
        return {o: d for o, d in self.manifest.discovery.items() if o in self.operators}

    def _moved(
        self, entry: SubtaskEntry, paths: JobPaths, checkpoint_id: CheckpointId
    ) -> Iterator[tuple[SegmentRef, SegmentRef]]:
        """Yield each segment of an entry, and what it is in the checkpoint."""
        for part, old in enumerate(entry.segments):
            if old.path not in self.files:
                yield old, old
                continue
            key = paths.state(checkpoint_id, entry.operator_id, entry.subtask_index, part)
            yield old, old.model_copy(update={"path": paths.relative(key)})
