"""Reserved space in a store, so that retention can write its plan when the disk is full.

Retention deletes only after the audit log and the plan are written, and these need space
themselves. So a job keeps some files without content. If the store is full, a write of retention
deletes one of them and tries again; when the run is over and there is space again, they are
recreated.

The reserve consists of slices, because a running driver may take the space that one of them gave
back. Their bytes are incompressible, or a file system that compresses would reserve nothing.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TypeVar

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.contract import ObjectStore
from laminar_core.records.limits import RECORD_BYTES_MAX
from laminar_core.records.retention_paths import RetentionPaths

SLICES = 8
SLICE_BYTES = 512 << 10
"""A plan has some hundred bytes for each checkpoint, its marker takes a block of the disk."""

T = TypeVar("T")


class BackedStore:
    """An ``ObjectStore`` whose writes use the job's reserve when the inner store is full."""

    def __init__(self, inner: ObjectStore, paths: RetentionPaths) -> None:
        self.uri = inner.uri
        self._inner = inner
        self._paths = paths

    def create(self) -> None:
        """See ``ObjectStore.create``."""
        self._inner.create()

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``."""
        return self._inner.get(key, size_max)

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        return self._inner.get_range(key, start, stop, size_bytes)

    def sha256(self, key: str, size_max: int) -> str | None:
        """See ``ObjectStore.sha256``."""
        return self._inner.sha256(key, size_max)

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        self._write(lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``."""
        return self._write(lambda: self._inner.put_if_absent(key, data))

    def children(self, folder: str) -> list[str]:
        """See ``ObjectStore.children``."""
        return self._inner.children(folder)

    def list(self, folder: str) -> list[str]:
        """See ``ObjectStore.list``."""
        return self._inner.list(folder)

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        return self._inner.sizes(folder)

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``."""
        self._inner.delete(key)

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        return self._inner.size(key)

    def _write(self, write: Callable[[], T]) -> T:
        while True:
            try:
                return write()
            except StorageUnavailable as error:
                if error.code is not ErrorCode.STORE_FULL or not self._release():
                    raise

    def _release(self) -> bool:
        """Give a slice back; False: there is none left."""
        for number in range(1, SLICES + 1):
            key = self._paths.reserve(number)
            if self._inner.size(key) is not None:
                self._inner.delete(key)
                return True
        return False


def keep_reserve(objects: ObjectStore, paths: RetentionPaths) -> None:
    """Write what is missing of the reserve, as far as there is space; a failure is no error."""
    with suppress(StorageUnavailable):
        for number in range(1, SLICES + 1):
            key = paths.reserve(number)
            if objects.size(key) != SLICE_BYTES:
                objects.put(key, _slice(number))


@cache
def _slice(number: int) -> bytes:
    return hashlib.shake_256(b"laminar reserve %d" % number).digest(SLICE_BYTES)
