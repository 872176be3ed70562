"""The interface of object stores, and the guarantees that Laminar needs from them.

One test class checks this contract for every implementation:

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


def other_length(where: str, size_bytes: int, expected_bytes: int) -> CorruptCheckpointError:
    """Return the error for an object that has not the length that its reader knows."""
    return CorruptCheckpointError(
        ErrorCode.LENGTH_DIFFERS,
        f"{where} has {size_bytes} bytes instead of {expected_bytes}",
    )


class ObjectStore(Protocol):
    """Named immutable bytes. Keys are parts joined by ``/``; see ``check_key``.

    Every method raises StorageUnavailable if the store does not answer, and ConfigurationError for
    a key that is no key. Folders exist only as parts of keys.
    """

    @property
    def uri(self) -> str:
        """The place of the store, for messages and for ``open_object_store`` in another process."""
        ...

    def create(self) -> None:
        """Create the place itself if it does not exist; no other method does.

        Call it where a store may begin: at the first start of a job, or for a copy. A store that
        vanished under a running job must come back instead of beginning anew.
        """
        ...

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """Return the whole object, or None if there is none; its length is compared first.

        Raises:
            CorruptCheckpointError: OBJECT_TOO_LARGE, it has more than ``size_max`` bytes;
                NOT_A_FILE, its name belongs to a device, a pipe or a link.
        """
        ...

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """Return the bytes from ``start`` up to ``stop`` of an object of ``size_bytes`` bytes.

        None if there is no such object. The length comes with the answer, so it is compared
        without a second request. The caller makes sure that ``start < stop <= size_bytes``.

        Raises:
            CorruptCheckpointError: LENGTH_DIFFERS, the object has another length; NOT_A_FILE, as
                ``get``.
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
        """Write the object unless one exists; return False if one does, which stays unchanged."""
        ...

    def children(self, folder: str) -> list[str]:
        """Return the names directly in ``folder``, sorted; names of folders end with ``/``."""
        ...

    def list(self, folder: str) -> list[str]:
        """Return the keys of all objects below ``folder`` ("" or ending with ``/``), sorted."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Return what ``list`` finds, with the length of each object in bytes; costs as much."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        ...

    def size(self, key: str) -> int | None:
        """Return the length in bytes, or None if there is no such object."""
        ...


@runtime_checkable
class CountedStore(ObjectStore, Protocol):
    """A store that counts its requests; ``open_object_store`` opens no other."""

    @property
    def counts(self) -> RequestCounts:
        """Requests sent through this object.

        Other handles and processes have counts of their own.
        """
        ...


def counts_of(objects: ObjectStore) -> RequestCounts | None:
    """Return the requests sent through this handle; None if it does not count."""
    return objects.counts if isinstance(objects, CountedStore) else None


@runtime_checkable
class SelfProbing(Protocol):
    """A store with more than one way of creating an object: each of them is tried by ``probe``."""

    def check_conditions(self, key: str) -> str | None:
        """Check how ``put_if_absent`` treats other sizes of objects; return the problem, or None.

        There is an object at ``key``, which must stay unchanged.
        """
        ...
