"""Any store, counted by its calls."""

from laminar_core.objectstore.contract import ObjectStore
from laminar_core.objectstore.request_counts import RequestCounter, RequestCounts
from laminar_core.records.limits import RECORD_BYTES_MAX


class CountedObjectStore:
    """An ``ObjectStore`` around another one. A call that fails was sent all the same."""

    def __init__(self, inner: ObjectStore) -> None:
        self.uri = inner.uri
        self._inner = inner
        self._counter = RequestCounter()

    @property
    def counts(self) -> RequestCounts:
        """See ``CountedStore.counts``."""
        return self._counter.counts

    def create(self) -> None:
        """See ``ObjectStore.create``."""
        self._inner.create()

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``."""
        self._counter.request("gets")
        found = self._inner.get(key, size_max)
        if found is not None:
            self._counter.received(len(found))
        return found

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        self._counter.request("gets")
        found = self._inner.get_range(key, start, stop, size_bytes)
        if found is not None:
            self._counter.received(len(found))
        return found

    def sha256(self, key: str, size_max: int) -> str | None:
        """See ``ObjectStore.sha256``."""
        self._counter.request("gets")
        found = self._inner.sha256(key, size_max)
        if found is not None:
            self._counter.received(self._inner.size(key) or 0)
        return found

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        self._counter.request("puts", memoryview(data).nbytes)
        self._inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``."""
        self._counter.request("puts", memoryview(data).nbytes)
        return self._inner.put_if_absent(key, data)

    def children(self, folder: str) -> list[str]:
        """See ``ObjectStore.children``."""
        self._counter.request("lists")
        return self._inner.children(folder)

    def list(self, folder: str) -> list[str]:
        """See ``ObjectStore.list``."""
        self._counter.request("lists")
        return self._inner.list(folder)

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        self._counter.request("lists")
        return self._inner.sizes(folder)

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``."""
        self._counter.request("deletes")
        self._inner.delete(key)

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        self._counter.request("heads")
        return self._inner.size(key)
