"""A store in a container of Azure Blob Storage, through obstore.

Every blob is written with one request, because obstore has no condition for uploads in parts.
Create-if-absent is ``If-None-Match: *``, and each call marks its blob as on S3 (ADR 0015).
Decided in ADR 0108.
"""

# obstore's listings may be Arrow tables, whose type it leaves unknown.
# pyright: reportUnknownMemberType=false

import builtins
import hashlib
import math
from collections.abc import Callable
from random import Random
from secrets import token_hex
from typing import Literal

import obstore
from obstore.store import AzureStore

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.azure_options import (
    ONE_PUT_BYTES_MAX,
    SMALL_PUT_BYTES_MAX,
    AzureOptions,
)
from laminar_core.objectstore.azure_requests import AzureRequests
from laminar_core.objectstore.contract import other_length, too_large
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.objectstore.retries import RetryClock
from laminar_core.objectstore.sending import Kind, Reply, value_of
from laminar_core.records.limits import RECORD_BYTES_MAX
from laminar_core.records.paths import check_folder, check_key

_MARK = "laminar_write"
"""Azure's names of metadata are those of identifiers: no hyphen."""
_PAGE = 5_000
_PIECE_BYTES = 1 << 20


class AzureObjectStore:
    """Blobs in a container, below a prefix. Safe to use from several threads.

    ``uri`` opens the same store in another process; it contains no secret. obstore finds the
    credentials in the environment, or asks for those of a managed identity.
    """

    def __init__(
        self,
        uri: str,
        *,
        clock: RetryClock | None = None,
        random: Random | None = None,
        new_mark: Callable[[], str] = token_hex,
    ) -> None:
        """Read ``uri``; nothing is sent yet. The other arguments are for tests.

        Raises:
            ConfigurationError: the URI has an unknown parameter, or contains a secret.
        """
        self._options = AzureOptions.parse(uri)
        self.uri = self._options.uri
        self._root = f"{self._options.prefix}/" if self._options.prefix else ""
        self._requests = AzureRequests(self._options, clock=clock, random=random)
        self._counter = self._requests.counter
        self._new_mark = new_mark

    @property
    def counts(self) -> RequestCounts:
        """See ``CountedStore.counts``. Includes retries; pages are those of the full length."""
        return self._counter.counts

    def create(self) -> None:
        """See ``ObjectStore.create``.

        Does nothing: the owner creates the container, a prefix needs nothing.
        """

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``."""
        name = self._name(key)

        def attempt(store: AzureStore) -> bytes:
            data = bytes(self._opened(store, name, size_max).bytes())
            self._counter.received(len(data))
            return data

        return self._requests.send("read", name, attempt, {Kind.NOT_FOUND}).value

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        name = self._name(key)

        def attempt(store: AzureStore) -> bytes:
            self._counter.request("gets")
            answer = obstore.get(store, name, options={"range": (start, stop)})
            if (found := answer.meta["size"]) != size_bytes:
                raise other_length(self._place_of(name), found, size_bytes)
            data = bytes(answer.bytes())
            self._counter.received(len(data))
            return data

        reply = self._requests.send("read", name, attempt, {Kind.NOT_FOUND, Kind.OUT_OF_RANGE})
        if reply.kind is Kind.OUT_OF_RANGE and (found := self._size(name)) is not None:
            raise other_length(self._place_of(name), found, size_bytes)
        return reply.value

    def sha256(self, key: str, size_max: int) -> str | None:
        """See ``ObjectStore.sha256``."""
        name = self._name(key)

        def attempt(store: AzureStore) -> str:
            digest = hashlib.sha256()
            for piece in self._opened(store, name, size_max).stream(_PIECE_BYTES):
                digest.update(piece)
                self._counter.received(len(piece))
            return digest.hexdigest()

        return self._requests.send("read", name, attempt, {Kind.NOT_FOUND}).value

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        self._write(self._name(key), data, "overwrite", {})

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``. The call's own blob never causes False."""
        name = self._name(key)
        # Cheaper than an upload that is refused at its end because the name is taken.
        is_large = memoryview(data).nbytes > SMALL_PUT_BYTES_MAX
        if is_large and self._size(name) is not None:
            return False
        mark = self._new_mark()
        return self._requests.create_marked(
            name,
            mark,
            lambda: self._write(name, data, "create", {_MARK: mark}),
            lambda: self._winner(name),
        )

    def children(self, folder: str) -> builtins.list[str]:
        """See ``ObjectStore.children``."""
        above = self._root + check_folder(folder)

        def attempt(store: AzureStore) -> builtins.list[str]:
            self._counter.request("lists")
            found = obstore.list_with_delimiter(store, above or None)
            names = [blob["path"] for blob in found["objects"]]
            names += [f"{prefix}/" for prefix in found["common_prefixes"]]
            self._count_further_pages(len(names))
            return names

        names = value_of(self._requests.send("list", above, attempt))
        return sorted({name.removeprefix(above) for name in names} - {""})

    def list(self, folder: str) -> builtins.list[str]:
        """See ``ObjectStore.list``."""
        return sorted(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        above = self._root + check_folder(folder)

        def attempt(store: AzureStore) -> dict[str, int]:
            self._counter.request("lists")
            pages = obstore.list(store, above or None, chunk_size=_PAGE)
            found = {blob["path"]: blob["size"] for page in pages for blob in page}
            self._count_further_pages(len(found))
            return found

        found = value_of(self._requests.send("list", above, attempt))
        return {name.removeprefix(self._root): size for name, size in found.items()}

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``. An account with versions keeps the blob as an old version."""
        name = self._name(key)

        def attempt(store: AzureStore) -> None:
            self._counter.request("deletes")
            obstore.delete(store, name)

        self._requests.send("delete", name, attempt, {Kind.NOT_FOUND})

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        return self._size(self._name(key))

    def _name(self, key: str) -> str:
        return self._root + check_key(key)

    def _opened(self, store: AzureStore, name: str, size_max: int) -> "obstore.GetResult":
        """Ask for the whole blob; nothing of it is read if it is too long."""
        self._counter.request("gets")
        answer = obstore.get(store, name)
        if (size := answer.meta["size"]) > size_max:
            raise too_large(self._place_of(name), size, size_max)
        return answer

    def _place_of(self, name: str) -> str:
        return f"az://{self._options.bucket}/{name}"

    def _write(
        self,
        name: str,
        data: bytes | memoryview,
        mode: Literal["create", "overwrite"],
        metadata: dict[str, str],
    ) -> Reply[bool]:
        body = memoryview(data).cast("B")
        if body.nbytes > ONE_PUT_BYTES_MAX:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{body.nbytes} bytes are too much for one request to {self._options.place}: use "
                "more subtasks, so that each one's files are smaller",
            )

        def attempt(store: AzureStore) -> bool:
            self._counter.request("puts", body.nbytes)
            obstore.put(store, name, body, mode=mode, attributes=metadata, use_multipart=False)
            return True

        answers = {Kind.PRECONDITION_FAILED} if mode == "create" else ()
        return self._requests.send("write", name, attempt, answers, size_bytes=body.nbytes)

    def _winner(self, name: str) -> str | None:
        """The mark of the call that wrote what is there, "" if it has none; None: nothing is."""

        def attempt(store: AzureStore) -> str:
            self._counter.request("heads")
            answer = obstore.get(store, name, options={"head": True})
            return answer.attributes.get(_MARK, "")

        return self._requests.send("read", name, attempt, {Kind.NOT_FOUND}).value

    def _size(self, name: str) -> int | None:
        def attempt(store: AzureStore) -> int:
            self._counter.request("heads")
            return obstore.head(store, name)["size"]

        return self._requests.send("read", name, attempt, {Kind.NOT_FOUND}).value

    def _count_further_pages(self, found: int) -> None:
        """Count the pages after the first; obstore does not say how many it asked for."""
        for _ in range(1, math.ceil(found / _PAGE)):
            self._counter.request("lists")
