"""What Laminar needs from a store.

The contract, checked for every implementation by one test class:

* ``put_if_absent`` is atomic: of any number of concurrent calls for one key exactly one is answered
  True, and a reader sees the whole object or none.
* A call that returned is durable, and visible to every later ``get`` and ``list`` on any machine.
* A call that raised may have happened. Ask again: every verb can be repeated.
* Nothing is read that is longer than the reader expects, and only what a store can have written:
  no device, no pipe, nothing behind a link.
"""

from typing import Protocol, runtime_checkable

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.records.limits import RECORD_BYTES_MAX


def too_large(where: str, size_bytes: int, size_max: int) -> CorruptCheckpointError:
    """Return the error for an object that is longer than its reader expects."""
    return CorruptCheckpointError(
        ErrorCode.OBJECT_TOO_LARGE,
        f"{where} has {size_bytes} bytes, and {size_max} at most belong there: it is not read",
    )


class ObjectStore(Protocol):
    """Named immutable bytes. Keys are parts joined by ``/``; see ``check_key``.

    Every method raises StorageUnavailable if the store does not answer, and ConfigurationError for
    a key that is no key. Folders exist only as parts of keys.
    """

    @property
    def uri(self) -> str:
        """Where this is, for messages, and for ``open_object_store`` in another process."""
        ...

    def create(self) -> None:
        """Make the place itself, if it is not there; nothing else ever makes it.

        For whoever may begin a store: the first start of a job, a copy. What has gone away under a
        running job must come back, and not begin anew.
        """
        ...

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """Return the whole object, or None if there is none; its length is compared first.

        Raises:
            CorruptCheckpointError: OBJECT_TOO_LARGE, it has more than ``size_max`` bytes;
                NOT_A_FILE, its name belongs to a device, a pipe or a link.
        """
        ...

    def sha256(self, key: str, size_max: int) -> str | None:
        """Return the digest of the whole object, read in pieces; None if there is none.

        For what is too long to hold in memory. Raises as ``get`` does.
        """
        ...

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Write the object, in place of what is there."""
        ...

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """Write the object unless there is one; False: somebody's object is there, unchanged."""
        ...

    def children(self, folder: str) -> list[str]:
        """Names directly in ``folder``, sorted; those of folders end with ``/``."""
        ...

    def list(self, folder: str) -> list[str]:
        """Keys of all objects below ``folder`` ("" or ending with ``/``), sorted."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Return what ``list`` finds, with the length of each object in bytes; costs as much."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        ...

    def size(self, key: str) -> int | None:
        """Length in bytes, or None if there is no such object."""
        ...


@runtime_checkable
class CountedStore(ObjectStore, Protocol):
    """A store that counts its requests; ``open_object_store`` opens no other."""

    @property
    def counts(self) -> RequestCounts:
        """Requests since this object was made; other handles and processes count for themselves."""
        ...


def counts_of(objects: ObjectStore) -> RequestCounts | None:
    """What was sent through this handle so far; None if it does not count."""
    return objects.counts if isinstance(objects, CountedStore) else None


@runtime_checkable
class SelfProbing(Protocol):
    """A store with more than one way of creating an object: each of them is tried by ``probe``."""

    def check_conditions(self, key: str) -> str | None:
        """What is wrong with the ways that ``put_if_absent`` takes for other sizes, or None.

        There is an object at ``key``; it stays as it is.
        """
        ...
