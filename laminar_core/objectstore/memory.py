"""A store in this process's memory: for tests and simulations, same contract as the others."""

import hashlib
import threading
from typing import ClassVar

from laminar_core.objectstore.contract import other_length, too_large
from laminar_core.records.limits import RECORD_BYTES_MAX
from laminar_core.records.paths import check_folder, check_key


class MemoryObjectStore:
    """Objects in a dictionary under one lock. Gone with the process; invisible to workers."""

    _named: ClassVar[dict[str, "MemoryObjectStore"]] = {}

    def __init__(self, name: str = "") -> None:
        self.uri = f"memory://{name}"
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @classmethod
    def named(cls, name: str) -> "MemoryObjectStore":
        """Make an empty store that this process can open as ``memory://name``."""
        cls._named[name] = cls(name)
        return cls._named[name]

    @classmethod
    def find(cls, name: str) -> "MemoryObjectStore | None":
        """Return the store that ``named`` created in this process, or None."""
        return cls._named.get(name)

    def create(self) -> None:
        """See ``ObjectStore.create``. Does nothing: the store exists as long as the process."""

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``."""
        with self._lock:
            found = self._objects.get(check_key(key))
        if found is not None and len(found) > size_max:
            raise too_large(f"{self.uri}/{key}", len(found), size_max)
        return found

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        with self._lock:
            found = self._objects.get(check_key(key))
        if found is not None and len(found) != size_bytes:
            raise other_length(f"{self.uri}/{key}", len(found), size_bytes)
        return None if found is None else found[start:stop]

    def sha256(self, key: str, size_max: int) -> str | None:
        """See ``ObjectStore.sha256``."""
        found = self.get(key, size_max)
        return None if found is None else hashlib.sha256(found).hexdigest()

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        with self._lock:
            self._objects[check_key(key)] = bytes(data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``."""
        with self._lock:
            if check_key(key) in self._objects:
                return False
            self._objects[key] = bytes(data)
            return True

    def children(self, folder: str) -> list[str]:
        """See ``ObjectStore.children``."""
        check_folder(folder)
        begin = len(folder)
        with self._lock:
            keys = [key for key in self._objects if key.startswith(folder)]
        ends = ((key, key.find("/", begin) + 1) for key in keys)
        return sorted({key[begin : end or None] for key, end in ends})

    def list(self, folder: str) -> list[str]:
        """See ``ObjectStore.list``."""
        check_folder(folder)
        with self._lock:
            return sorted(key for key in self._objects if key.startswith(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        check_folder(folder)
        with self._lock:
            return {k: len(data) for k, data in self._objects.items() if k.startswith(folder)}

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``."""
        with self._lock:
            self._objects.pop(check_key(key), None)

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        with self._lock:
            found = self._objects.get(check_key(key))
        return None if found is None else len(found)
