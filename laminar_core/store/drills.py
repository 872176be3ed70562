"""The restore drills of a job: one create-only record each, numbered from 1."""

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.drill import DrillRecord
from laminar_core.records.paths import number_in
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import create_or_confirm, read_record


def newest_number(store: CheckpointStore) -> int:
    """Return the number of the last drill; 0 if there was none."""
    names = store.objects.children(store.paths.drills)
    return max((n for n in map(number_in, names) if n is not None), default=0)


def write_drill(store: CheckpointStore, record: DrillRecord) -> DrillRecord:
    """Write the record under the first number from its own on that is free; others drill, too.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    while not create_or_confirm(store.objects, store.paths.drill(record.number), record.to_bytes()):
        record = record.model_copy(update={"number": record.number + 1})
    return record


def read_drills(store: CheckpointStore) -> list[DrillRecord]:
    """Return all readable drill records, oldest first."""
    numbers = range(1, newest_number(store) + 1)
    return [record for number in numbers if (record := _read(store, number)) is not None]


def newest_drill(store: CheckpointStore) -> DrillRecord | None:
    """Return the last readable drill record; None if there is none."""
    numbers = range(newest_number(store), 0, -1)
    return next(filter(None, (_read(store, number) for number in numbers)), None)


def _read(store: CheckpointStore, number: int) -> DrillRecord | None:
    try:
        return read_record(store.objects, store.paths.drill(number), DrillRecord)
    except CorruptCheckpointError:
        return None
