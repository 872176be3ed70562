"""The restore drills of a job: one create-only record each, numbered from 1."""

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.drill import DrillRecord
from laminar_core.records.paths import number_in
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import create_or_confirm, read_record


def newest_number(store: CheckpointStore) -> int:
    """Return the number of the last drill; 0 if there was none."""
    return max(drill_numbers(store), default=0)


def write_drill(store: CheckpointStore, record: DrillRecord) -> DrillRecord:
    """Write the record under the first number from its own on that is free; others drill, too.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    while not create_or_confirm(store.objects, store.paths.drill(record.number), record.to_bytes()):
        record = record.model_copy(update={"number": record.number + 1})
    return record


def read_drills(store: CheckpointStore, problems: list[str]) -> list[DrillRecord]:
    """Return all readable drill records, oldest first; ``problems`` gets a line for each other."""
    read = (_read(store, number, problems) for number in drill_numbers(store))
    return [record for record in read if record is not None]


def newest_drill(store: CheckpointStore, problems: list[str]) -> DrillRecord | None:
    """Return the last readable drill record; None if there is none.

    ``problems`` gets a line for each newer record that cannot be read.
    """
    numbers = reversed(drill_numbers(store))
    return next(filter(None, (_read(store, number, problems) for number in numbers)), None)


def drill_numbers(store: CheckpointStore) -> list[int]:
    """Return the numbers in the listing, ascending, with any gaps: a stray file has any number."""
    found = map(number_in, store.objects.children(store.paths.drills))
    return sorted({number for number in found if number is not None})


def _read(store: CheckpointStore, number: int, problems: list[str]) -> DrillRecord | None:
    try:
        return read_record(store.objects, store.paths.drill(number), DrillRecord)
    except CorruptCheckpointError as error:
        problems.append(str(error))
        return None
