"""Attempts: records of every checkpoint beside its manifest, whether it completed or not."""

from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import CommitRecord, HistoryRecord, TriggerRecord
from laminar_core.records.paths import JobPaths, checkpoints_in
from laminar_core.store.claims import Claims
from laminar_core.store.records import create_or_confirm, read_record


class Attempts:
    """Triggers, outcomes and commits of one job. Safe to use from several threads."""

    def __init__(self, objects: ObjectStore, paths: JobPaths, claims: Claims) -> None:
        self._objects = objects
        self._paths = paths
        self._claims = claims

    def record_trigger(self, record: TriggerRecord) -> bool:
        """Reserve the id for its generation.

        Return False if another generation has the id: take the next one.

        Raises:
            FencedError: a newer generation is claimed. Retention may have forgotten ids that this
                one would take for free.
            StorageUnavailable: the store did not answer, or is not the generation's.
        """
        generation = Generation(record.generation)
        self._claims.check_owner(generation)
        key = self._paths.trigger(record.checkpoint_id)
        created = create_or_confirm(self._objects, key, record.to_bytes())
        self._claims.check_claim(generation)  # What is reserved elsewhere is not.
        return created

    def record_commit(self, record: CommitRecord) -> None:
        """Write down that the output is visible; a record that is there already stays."""
        key = self._paths.commit(record.checkpoint_id)
        create_or_confirm(self._objects, key, record.to_bytes())

    def record_outcome(self, record: HistoryRecord) -> None:
        """Record how the attempt ended; the first record stands.

        Raises:
            StorageUnavailable: the store did not answer, or is not the generation's.
        """
        self._claims.check_claim(Generation(record.generation))
        key = self._paths.outcome(record.checkpoint_id)
        create_or_confirm(self._objects, key, record.to_bytes())

    def ids(self) -> list[CheckpointId]:
        """Return the ids with any object under ``checkpoints/``, ascending."""
        return checkpoints_in(self._objects.children(self._paths.checkpoints))

    def committed_ids(self) -> list[CheckpointId]:
        """Return the ids with a commit record, ascending."""
        return checkpoints_in(self._objects.children(self._paths.commits))

    def ended_ids(self) -> list[CheckpointId]:
        """Return the ids with a recorded outcome, ascending."""
        return checkpoints_in(self._objects.children(self._paths.history))

    def highest_id(self) -> CheckpointId | None:
        """Return the highest id ever used, including deleted checkpoints; None if there is none."""
        found = [*self.ids(), *self.ended_ids(), *self.committed_ids()]
        return max(found, default=None)

    def read_trigger(self, checkpoint_id: CheckpointId) -> TriggerRecord | None:
        """Return the reservation of the id, or None."""
        return read_record(self._objects, self._paths.trigger(checkpoint_id), TriggerRecord)

    def read_commit(self, checkpoint_id: CheckpointId) -> CommitRecord | None:
        """Return the commit record, or None."""
        return read_record(self._objects, self._paths.commit(checkpoint_id), CommitRecord)

    def read_outcome(self, checkpoint_id: CheckpointId) -> HistoryRecord | None:
        """Return the recorded outcome of the attempt, or None."""
        return read_record(self._objects, self._paths.outcome(checkpoint_id), HistoryRecord)

    def history(self) -> list[HistoryRecord]:
        """Return all recorded outcomes, by ascending id.

        Raises:
            CorruptCheckpointError: one of them cannot be read.
        """
        records = (self.read_outcome(checkpoint_id) for checkpoint_id in self.ended_ids())
        return [record for record in records if record is not None]
