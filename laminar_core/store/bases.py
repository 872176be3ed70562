"""The bases of generations, which decide the timeline, so each is stored twice.

The timeline rests on the bases: without one, the checkpoints that a later generation left behind
cannot be known. A job survives the loss of other records, but not of a base. So the creator of a
base writes a copy beside it, and a reader that finds it damaged or missing reads the copy. The
first of the two decides: the copy is created after it, with the same bytes, by the same creator.
The copy decides only if the object in place of the base is no base of this generation, however it
got there.
"""

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.objectstore.opening import ObjectStore, address
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import GenerationBase
from laminar_core.records.paths import JobPaths
from laminar_core.store.records import create_or_confirm, read_record


def create_base(objects: ObjectStore, paths: JobPaths, record: GenerationBase) -> bool:
    """Create the base; return True if the stored base now equals ``record``.

    It may have been written by another writer.

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
    """Read the base, or its copy if it is damaged or missing.

    None if the generation has not started.

    Raises:
        CorruptCheckpointError: both are damaged, or one is damaged and the other is missing.
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
    """Write the copy of a sound base if its writer died before doing so."""
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
