"""Damage that running jobs found in completed checkpoints (ADR 0028)."""

from dataclasses import dataclass

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.damage import DamageRecord
from laminar_core.sensors.facts.job_facts import completed_newest_first
from laminar_core.sensors.judgements import LostFiles
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.file_scrub import DamageLog
from laminar_core.store.generation_summary import read_generation

MARKS_MAX = 50
"""Number of newest marks that are read, each with some requests to the store."""

UNREADABLE = "the record of which cannot be read"


@dataclass(frozen=True, slots=True)
class Marks:
    """The checkpoints that are marked as damaged, ascending; some of them may be deleted by now."""

    checkpoint_ids: tuple[CheckpointId, ...]

    @property
    def newest(self) -> tuple[CheckpointId, ...]:
        """The marks that are read."""
        return self.checkpoint_ids[-MARKS_MAX:]


def read_marks(store: CheckpointStore) -> Marks:
    """Return all marks, from one listing.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    return Marks(tuple(sorted(_log(store).ids())))


def read_mark(store: CheckpointStore, checkpoint_id: CheckpointId) -> DamageRecord | None:
    """Return what is known of the damage; None if the mark is gone, or damaged itself.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    try:
        return _log(store).read(checkpoint_id)
    except CorruptCheckpointError:
        return None


def lost_files(store: CheckpointStore, marks: Marks) -> LostFiles | None:
    """Return which checkpoints cannot be restored, and what there is instead; None: all can.

    Raises:
        CorruptCheckpointError: a base cannot be read, so no timeline can be known.
        StorageUnavailable: the store did not answer.
    """
    damaged = [number for number in marks.newest if store.manifests.is_complete(number)]
    if not damaged:
        return None
    newest_id: int | None = None
    whole_id: int | None = None
    for found in completed_newest_first(store):
        checkpoint_id = found.manifest.checkpoint_id
        newest_id = newest_id or checkpoint_id
        if checkpoint_id not in marks.checkpoint_ids:
            whole_id = checkpoint_id
            break
    if newest_id is None:  # They are of a past that the job has left behind.
        return None
    record = read_mark(store, damaged[-1])
    return LostFiles(
        checkpoint_ids=tuple(damaged),
        newest_id=newest_id,
        whole_id=whole_id,
        newest_mark=marks.checkpoint_ids[-1],
        example=UNREADABLE if record is None else damage_in_words(record),
        found_at_ms=0 if record is None else record.found_at_ms,
        is_in_memory=record is not None and _goes_on(store, record.generation),
    )


def damage_in_words(record: DamageRecord) -> str:
    """Return the first file that is lost, with what is wrong with it, and how many more there are.

    A record that names no file still marks its checkpoint.
    """
    if not record.files:
        return f"{record.file_count} files"
    first, more = record.files[0], record.file_count - 1
    said = f"{first.path} ({first.problem})"
    return f"{said} and {more} more files" if more > 0 else said


def _log(store: CheckpointStore) -> DamageLog:
    return DamageLog(store.objects, store.paths)


def _goes_on(store: CheckpointStore, generation: int) -> bool:
    """Whether this is the newest generation, and has not ended as far as the store knows."""
    newest = store.claims.last()
    if newest is None or newest != generation:
        return False
    return read_generation(store.objects, store.paths, newest).end is None
