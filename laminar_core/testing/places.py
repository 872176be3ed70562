"""Replacements of the store: no directory, an empty one, or another store.

A place is not the job's store, so nothing that counts may be written there. ``Simulation.unmount``
and ``unmount_worker`` put one in place of the store.
"""

from collections.abc import Callable
from typing import TypeVar

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.records.limits import RECORD_BYTES_MAX

T = TypeVar("T")


class Place:
    """A replacement shown while the store is away."""

    def __init__(
        self, what: str, open_: Callable[[bool], ObjectStore], *, has_the_job: bool = False
    ) -> None:
        self.what = what
        """Description for display."""
        self.has_the_job = has_the_job
        """Whether it is another store with a job of the same name."""
        self.root_was_made = False
        """Whether a process recreated the missing directory."""
        self.since_stretch = 0
        """Stretches of the world up to this one began before the store went away."""
        self._open = open_

    def open(self, *, seen: bool) -> ObjectStore:
        """Return it as a process finds it; ``seen``: the process has seen the store before."""
        return self._open(seen)


def directory(
    objects: ObjectStore, what: str = "an empty directory", *, has_the_job: bool = False
) -> Place:
    """Return a place with these objects; by default the empty directory below a mount point."""
    return Place(what, lambda _: objects, has_the_job=has_the_job)


def no_directory() -> Place:
    """Return a place without a directory, as after a rename or deletion."""
    root = MemoryObjectStore()
    place = Place("no directory", lambda seen: _NoDirectory(place, root, seen=seen))
    return place


class _NoDirectory:
    """A store whose root is gone, with the behaviour of ``LocalObjectStore``.

    Writes fail. Reads fail for a process that has seen the root, and find nothing otherwise.
    """

    def __init__(self, place: Place, root: MemoryObjectStore, *, seen: bool) -> None:
        self.uri = root.uri
        self._place = place
        self._root = root
        self._seen = seen

    def create(self) -> None:
        """See ``ObjectStore.create``: from now on there is an empty directory."""
        self._place.root_was_made = True

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``."""
        return self._read(lambda: self._root.get(key, size_max))

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        return self._read(lambda: self._root.get_range(key, start, stop, size_bytes))

    def sha256(self, key: str, size_max: int) -> str | None:
        """See ``ObjectStore.sha256``."""
        return self._read(lambda: self._root.sha256(key, size_max))

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        self._write(lambda: self._root.put(key, data))

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``."""
        return self._write(lambda: self._root.put_if_absent(key, data))

    def children(self, folder: str) -> list[str]:
        """See ``ObjectStore.children``."""
        return self._read(lambda: self._root.children(folder))

    def list(self, folder: str) -> list[str]:
        """See ``ObjectStore.list``."""
        return self._read(lambda: self._root.list(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        return self._read(lambda: self._root.sizes(folder))

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``: there is nothing to delete."""
        self._read(lambda: self._root.delete(key))

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        return self._read(lambda: self._root.size(key))

    def _read(self, call: Callable[[], T]) -> T:
        if self._seen and not self._place.root_was_made:
            raise _gone()
        return call()

    def _write(self, call: Callable[[], T]) -> T:
        if not self._place.root_was_made:
            raise _gone()
        return call()


def _gone() -> StorageUnavailable:
    return StorageUnavailable(
        ErrorCode.STORE_GONE, "the store is not there: mount it or put it back"
    )
