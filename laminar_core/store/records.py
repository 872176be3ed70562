"""JSON records in a store: created once, with lost answers resolved."""

from typing import TypeVar

from laminar_core.errors import CorruptCheckpointError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.opening import ObjectStore, address
from laminar_core.records.manifest import Record, parse_record

R = TypeVar("R", bound=Record)


def create_or_confirm(objects: ObjectStore, key: str, data: bytes | memoryview) -> bool:
    """Create the object; return True if it now holds exactly ``data``, from any writer.

    An answer can be lost after the object was created: the call raises, or a retry inside a client
    finds the client's own object and reports that it exists. So an error is answered by one more
    attempt, and "exists" by reading back: equal bytes count as ours. Writers that must be
    distinguished put their identity into the bytes.

    Raises:
        StorageUnavailable: the store failed twice; the object may or may not be there.
    """
    try:
        created = objects.put_if_absent(key, data)
    except StorageUnavailable:
        created = objects.put_if_absent(key, data)
    if created:
        return True
    return _holds(objects, key, data)


def create_and_read_back(objects: ObjectStore, key: str, data: bytes | memoryview) -> None:
    """Create the object and make sure that the store has kept it: for copies that have to last.

    Raises:
        CorruptCheckpointError: OBJECT_EXISTS, something else is there; DIGEST_DIFFERS, the store
            does not keep what it gets.
        StorageUnavailable: the store did not answer; call again.
    """
    if not create_or_confirm(objects, key, data):
        raise CorruptCheckpointError(
            ErrorCode.OBJECT_EXISTS,
            f"{address(objects, key)} holds something else: give the copy an empty place",
        )
    if not _holds(objects, key, data):
        raise CorruptCheckpointError(
            ErrorCode.DIGEST_DIFFERS,
            f"{address(objects, key)} is not what was just written: use other storage",
        )


def _holds(objects: ObjectStore, key: str, data: bytes | memoryview) -> bool:
    """Whether exactly these bytes are there; what is longer, or no file, is something else."""
    wanted = memoryview(data).cast("B")
    try:
        found = objects.get(key, wanted.nbytes)
    except CorruptCheckpointError:
        return False
    return found is not None and memoryview(found) == wanted


def bytes_in(objects: ObjectStore, key: str) -> bytes | None:
    """Return the bytes of a record for a caller that reports damage; None if there is no object.

    Returns ``b""``, which is no valid record, if the object is too long or is no file.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    try:
        return objects.get(key)
    except CorruptCheckpointError:
        return b""


def read_record(objects: ObjectStore, key: str, record_type: type[R]) -> R | None:
    """Read the record at ``key``; None if there is none.

    Raises:
        CorruptCheckpointError: there is an object and it is no such record; the message names it.
        StorageUnavailable: the store did not answer.
    """
    data = objects.get(key)
    if data is None:
        return None
    try:
        return parse_record(record_type, data)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(error.code, f"{address(objects, key)}: {error}") from error
