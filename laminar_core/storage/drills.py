"""The restore drills of a job: one create-only record each, numbered from 1."""

from laminar_core.errors import CorruptCheckpointError
from laminar_core.state.drill import DrillRecord
from laminar_core.state.paths import number_in
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.records import create_or_confirm, read_record


def newest_number(store: CheckpointStore) -> int:
    """Of the last drill; 0 if there was none."""
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
    """All that can be read, oldest first."""
    found: list[DrillRecord] = []
    for number in range(1, newest_number(store) + 1):
        try:
            record = read_record(store.objects, store.paths.drill(number), DrillRecord)
        except CorruptCheckpointError:
            continue
        if record is not None:
            found.append(record)
    return found
