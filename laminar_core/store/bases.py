"""What each generation started from: the records that decide what counts, so each is kept twice.

Everything rests on the bases: without one, nobody knows which checkpoints a later generation left
behind. Other records can be lost and the job goes on; a base could not. So whoever has created one
writes a copy beside it, and who finds it damaged, or gone, reads the copy. The first of the two
decides: the copy is created after it, with the same bytes, by whoever created it. Only if something
is in its place that is no base of this generation, whatever brought it there, the copy decides.
"""

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.objectstore.opening import ObjectStore, address
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import GenerationBase
from laminar_core.records.paths import JobPaths
from laminar_core.store.records import create_or_confirm, read_record


def create_base(objects: ObjectStore, paths: JobPaths, record: GenerationBase) -> bool:
    """Create the base; True if it is now what ``record`` says, whoever wrote it.

    Raises:
        StorageUnavailable: the store did not answer; call again with the same record.
    """
    generation, data = Generation(record.generation), record.to_bytes()
    if create_or_confirm(objects, paths.base(generation), data):
        create_or_confirm(objects, paths.base_copy(generation), data)
        return True
    try:
        _read(objects, paths.base(generation), generation)
    except CorruptCheckpointError:
        return create_or_confirm(objects, paths.base_copy(generation), data)
    return False


def read_base(
    objects: ObjectStore, paths: JobPaths, generation: Generation
) -> GenerationBase | None:
    """The base, from its copy if it is damaged or gone; None if the generation has not started.

    Raises:
        CorruptCheckpointError: both are damaged, or one is and the other is gone.
        StorageUnavailable: the store did not answer.
    """
    problem: CorruptCheckpointError | None = None
    for key in (paths.base(generation), paths.base_copy(generation)):
        try:
            record = _read(objects, key, generation)
        except CorruptCheckpointError as error:
            problem = problem or error
        else:
            if record is not None:
                return record
    if problem is not None:
        raise problem
    return None


def complete_copy(objects: ObjectStore, paths: JobPaths, generation: Generation) -> None:
    """Write the copy of a sound base whose writer died before it did."""
    try:
        data = objects.get(paths.base(generation))
        record = _read(objects, paths.base(generation), generation)
    except CorruptCheckpointError:
        return
    if data is not None and record is not None:
        create_or_confirm(objects, paths.base_copy(generation), data)


def _read(objects: ObjectStore, key: str, generation: Generation) -> GenerationBase | None:
    record = read_record(objects, key, GenerationBase)
    if record is not None and record.generation != generation:
        raise CorruptCheckpointError(
            ErrorCode.MANIFEST_UNREADABLE,
            f"{address(objects, key)} is the base of generation {record.generation}: put the right "
            "one back",
        )
    return record
