"""A store with scripted faults, around any object store.

    lost_answer = Fault("put_if_absent", Effect.LOSE_ANSWER, key="manifest.json")
    store = FaultyStore(MemoryObjectStore(), lost_answer)

Faults are counted calls, not chances, so a test that failed once fails again.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, TypeVar

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.records.limits import RECORD_BYTES_MAX

Verb = Literal["get", "put", "put_if_absent", "list", "children", "delete", "size", "sizes"]
T = TypeVar("T")


class Effect(Enum):
    """The effect of a fault on a call."""

    FAIL = auto()
    """Nothing happens, and the call raises."""
    LOSE_ANSWER = auto()
    """Everything happens, and the call raises all the same."""
    DENY = auto()
    """``put_if_absent`` happens and answers False: the retry of a client found its own object."""
    TEAR = auto()
    """Half of the data is written, and the call raises: a store that is not atomic."""
    OVERWRITE = auto()
    """``put_if_absent`` ignores the condition: writes and answers True."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Apply ``effect`` to matching calls number ``first`` up to and including ``last``.

    A call matches if its verb is ``verb`` and its key contains ``key``; counting starts at 1.
    ``code`` is the code of the raised error.
    """

    verb: Verb
    effect: Effect
    key: str = ""
    first: int = 1
    last: int = 1
    code: ErrorCode = ErrorCode.STORE_IO


class FaultyStore:
    """An ``ObjectStore`` around another one. Safe to use from several threads."""

    def __init__(self, inner: ObjectStore, *faults: Fault) -> None:
        self.uri = inner.uri
        self.calls: list[tuple[Verb, str]] = []
        self._inner = inner
        self._faults = faults
        self._matched = [0] * len(faults)
        self._lock = threading.Lock()

    def create(self) -> None:
        """See ``ObjectStore.create``."""
        self._inner.create()

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``."""
        return self._apply(self._fault("get", key), lambda: self._inner.get(key, size_max))

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``. Faults for ``get`` apply."""
        return self._apply(
            self._fault("get", key), lambda: self._inner.get_range(key, start, stop, size_bytes)
        )

    def sha256(self, key: str, size_max: int) -> str | None:
        """See ``ObjectStore.sha256``. Faults for ``get`` apply."""
        return self._apply(self._fault("get", key), lambda: self._inner.sha256(key, size_max))

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        fault = self._fault("put", key)
        self._tear(fault, key, data)
        self._apply(fault, lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``."""
        fault = self._fault("put_if_absent", key)
        if fault and fault.effect is Effect.OVERWRITE:
            self._inner.put(key, data)
            return True
        if fault and fault.effect is Effect.DENY:
            self._inner.put_if_absent(key, data)
            return False
        self._tear(fault, key, data)
        return self._apply(fault, lambda: self._inner.put_if_absent(key, data))

    def children(self, folder: str) -> list[str]:
        """See ``ObjectStore.children``."""
        return self._apply(self._fault("children", folder), lambda: self._inner.children(folder))

    def list(self, folder: str) -> list[str]:
        """See ``ObjectStore.list``."""
        return self._apply(self._fault("list", folder), lambda: self._inner.list(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        return self._apply(self._fault("sizes", folder), lambda: self._inner.sizes(folder))

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``."""
        self._apply(self._fault("delete", key), lambda: self._inner.delete(key))

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        return self._apply(self._fault("size", key), lambda: self._inner.size(key))

    def _fault(self, verb: Verb, key: str) -> Fault | None:
        """Count the call; the first fault that is due is the one that happens."""
        due: list[Fault] = []
        with self._lock:
            self.calls.append((verb, key))
            for index, fault in enumerate(self._faults):
                if fault.verb == verb and fault.key in key:
                    self._matched[index] += 1
                    if fault.first <= self._matched[index] <= fault.last:
                        due.append(fault)
        return due[0] if due else None

    def _tear(self, fault: Fault | None, key: str, data: bytes | memoryview) -> None:
        if fault and fault.effect is Effect.TEAR:
            self._inner.put(key, bytes(data)[: len(data) // 2])

    def _apply(self, fault: Fault | None, call: Callable[[], T]) -> T:
        if fault is None:
            return call()
        if fault.effect is Effect.LOSE_ANSWER:
            call()
        raise StorageUnavailable(fault.code, f"{self.uri} cannot {fault.verb}: a scripted fault")
