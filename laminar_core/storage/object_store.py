"""What Laminar needs from a store, how one is found, and how one is tried out before it is used.

The contract, checked for every implementation by one test class:

* ``put_if_absent`` is atomic: of any number of concurrent calls for one key exactly one is answered
  True, and a reader sees the whole object or none.
* A call that returned is durable, and visible to every later ``get`` and ``list`` on any machine.
* A call that raised may have happened. Ask again: every verb can be repeated.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Protocol
from urllib.parse import unquote, urlsplit

from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.state.paths import PROBE_FOLDER
from laminar_core.storage.local import LocalObjectStore
from laminar_core.storage.memory import MemoryObjectStore

_RACERS = 4
_PROBE_NUMBERS = count(1)


class ObjectStore(Protocol):
    """Named immutable bytes. Keys are parts joined by ``/``; see ``check_key``.

    Every method raises StorageUnavailable if the store does not answer, and ConfigurationError for
    a key that is no key. Folders exist only as parts of keys.
    """

    @property
    def uri(self) -> str:
        """Where this is, for messages, and for ``open_object_store`` in another process."""
        ...

    def get(self, key: str) -> bytes | None:
        """The whole object, or None if there is none."""
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

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        ...

    def size(self, key: str) -> int | None:
        """Length in bytes, or None if there is no such object."""
        ...


def open_object_store(uri: str) -> ObjectStore:
    """Open the store at a path or ``file://`` URI; nothing is read or written yet.

    ``memory://NAME`` finds a store that a test has made with ``MemoryObjectStore.named``.

    Raises:
        ConfigurationError: a scheme that is not supported, or a file URI of another host.
    """
    parts = urlsplit(uri)
    if not uri or "\0" in uri:
        raise ConfigurationError(ErrorCode.INVALID_OPTION, f"{uri!r} is no store: give a directory")
    if "://" not in uri and parts.scheme != "file":
        return LocalObjectStore(uri)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path:
        return LocalObjectStore(unquote(parts.path))
    if parts.scheme == "memory" and (found := MemoryObjectStore.find(parts.netloc)):
        return found
    raise ConfigurationError(
        ErrorCode.INVALID_OPTION,
        f"{uri!r} is no store that can be opened: give a directory that driver and workers share, "
        "as a path or as file:///path",
    )


def probe(objects: ObjectStore) -> None:
    """Try ``objects`` out before a job relies on it; leaves nothing behind.

    Raises:
        ConfigurationError: it cannot be written, or it overwrites objects that it was told to leave
            alone, or does not show what was written. Two drivers could then own one job.
        StorageUnavailable: it is full, or does not answer.
    """
    key = f"{PROBE_FOLDER}{os.uname().nodename}-{os.getpid()}-{next(_PROBE_NUMBERS)}"
    try:
        _check_conditions(objects, key)
        objects.delete(key)
        _expect(objects, objects.get(key) is None, "a deleted object is still there")
    except StorageUnavailable as error:
        if error.code is ErrorCode.STORE_READ_ONLY:
            raise ConfigurationError(ErrorCode.STORE_NOT_WRITABLE, str(error)) from error
        raise


def _check_conditions(objects: ObjectStore, key: str) -> None:
    start = threading.Barrier(_RACERS)

    def race(racer: int) -> bool:
        start.wait()
        return objects.put_if_absent(key, b"%d" % racer)

    with ThreadPoolExecutor(_RACERS) as pool:
        won = list(pool.map(race, range(_RACERS)))
    _expect(objects, sum(won) == 1, f"{sum(won)} of {_RACERS} writers created the same object")
    winner = b"%d" % won.index(True)
    _expect(objects, not objects.put_if_absent(key, b"late"), "an object was created twice")
    _expect(objects, objects.get(key) == winner, "an object was overwritten")
    _expect(objects, key in objects.list(PROBE_FOLDER), "a new object is not listed")
    objects.put(key, b"overwritten")
    _expect(objects, objects.get(key) == b"overwritten", "an overwritten object has its old value")


def _expect(objects: ObjectStore, kept: bool, problem: str) -> None:  # noqa: FBT001 - an assertion
    if not kept:
        raise ConfigurationError(
            ErrorCode.STORE_IGNORES_CONDITIONS,
            f"{objects.uri} is not safe for checkpoints ({problem}): use a local or NFS directory, "
            "or an object store that honours create-if-absent",
        )
