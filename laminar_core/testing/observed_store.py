"""A store that reports every call to an observer, before and after; the observer may raise."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from laminar_core.objectstore.opening import ObjectStore
from laminar_core.records.limits import RECORD_BYTES_MAX
from laminar_core.records.paths import PROBE_FOLDER
from laminar_core.testing.faulty_store import Verb
from laminar_core.testing.places import Place

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One call, seen twice. An observer that raises fails it, or loses its answer."""

    process: str
    """Name of the calling process."""
    verb: Verb
    key: str
    moment: Literal["before", "after"]
    data: bytes | memoryview = field(default=b"", repr=False)
    """The data to be written."""
    answer: object = None
    """The store's answer; only ``after``."""
    place: Place | None = None
    """The replacement that the process sees; None: it sees the job's store."""


class ObservedStore:
    """One process's view of an ``ObjectStore``, or of what its host sees in the store's place."""

    def __init__(
        self, inner: ObjectStore, process: str, observe: Callable[[StoreCall], None]
    ) -> None:
        self.uri = inner.uri
        self.inner = inner
        self.place: Place | None = None
        """The place that ``inner`` belongs to, if it is not the job's store."""
        self._process = process
        self._observe = observe

    def create(self) -> None:
        """See ``ObjectStore.create``."""
        self.inner.create()

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``."""
        return self._call("get", key, lambda: self.inner.get(key, size_max))

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``. Observed as a ``get``."""
        return self._call("get", key, lambda: self.inner.get_range(key, start, stop, size_bytes))

    def sha256(self, key: str, size_max: int) -> str | None:
        """See ``ObjectStore.sha256``. Observed as a ``get``."""
        return self._call("get", key, lambda: self.inner.sha256(key, size_max))

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        self._call("put", key, lambda: self.inner.put(key, data), data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``."""
        return self._call("put_if_absent", key, lambda: self.inner.put_if_absent(key, data), data)

    def children(self, folder: str) -> list[str]:
        """See ``ObjectStore.children``."""
        return self._call("children", folder, lambda: self.inner.children(folder))

    def list(self, folder: str) -> list[str]:
        """See ``ObjectStore.list``."""
        return self._call("list", folder, lambda: self.inner.list(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        return self._call("sizes", folder, lambda: self.inner.sizes(folder))

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``."""
        self._call("delete", key, lambda: self.inner.delete(key))

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        return self._call("size", key, lambda: self.inner.size(key))

    def _call(
        self, verb: Verb, key: str, call: Callable[[], T], data: bytes | memoryview = b""
    ) -> T:
        if key.startswith(PROBE_FOLDER):
            return call()  # Threads race there, in an order of their own.
        before = StoreCall(self._process, verb, key, "before", data, place=self.place)
        self._observe(before)
        place = self.place  # An observer may have changed it.
        answer = call()
        self._observe(replace(before, moment="after", answer=answer, place=place))
        return answer
