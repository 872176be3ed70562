"""A store in a bucket of Amazon S3, or of a server with its protocol and conditional writes.

Create-if-absent is ``If-None-Match: *``, with PUT or when an upload in parts is completed. A writer
can receive 412 because of its own object, if the answer to an earlier attempt was lost. So each
call marks its object, and reads the mark of the stored object after a 412 to a retry. Decided in
ADR 0015.
"""

# botocore ships no types, which the strict mode of this package would not accept.
# pyright: standard

import builtins
from collections.abc import Callable, Iterator
from random import Random
from secrets import token_hex
from typing import Any

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.objectstore.retries import RetryClock
from laminar_core.objectstore.s3_options import S3Options
from laminar_core.objectstore.s3_requests import Client, S3Requests
from laminar_core.objectstore.s3_staged import StagedUploads
from laminar_core.objectstore.s3_transfer import Download, PartPool, RangeDownload, Upload
from laminar_core.objectstore.sending import Kind, Reply, value_of
from laminar_core.records.limits import RECORD_BYTES_MAX
from laminar_core.records.paths import check_folder, check_key

_MARK = "laminar-write"
_ABSENT = {"IfNoneMatch": "*"}


class S3ObjectStore:
    """Objects in a bucket, below a prefix. Safe to use from several threads.

    ``uri`` opens the same store in another process; it contains no secret. boto3 finds the
    credentials, and all settings that are not in the URI: environment, ``~/.aws``, roles.
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
        self._options = S3Options.parse(uri)
        self.uri = self._options.uri
        self._root = f"{self._options.prefix}/" if self._options.prefix else ""
        self._requests = S3Requests(self._options, clock=clock, random=random)
        self.pool = PartPool(self._options.parallel)
        """Threads for parts, and for several requests at a time."""
        self._new_mark = new_mark

    @property
    def counts(self) -> RequestCounts:
        """See ``CountedStore.counts``. Includes retries and parts."""
        return self._requests.counter.counts

    def create(self) -> None:
        """See ``ObjectStore.create``.

        Does nothing: the owner creates the bucket, a prefix needs nothing.
        """

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``."""
        return Download(self._requests, self.pool, self._name(key), size_max).read()

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        return RangeDownload(self._requests, self._name(key), start, stop, size_bytes).read()

    def sha256(self, key: str, size_max: int) -> str | None:
        """See ``ObjectStore.sha256``."""
        return Download(self._requests, self.pool, self._name(key), size_max).sha256()

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        name = self._name(key)
        if not self._in_parts(data):
            self._put(name, data, {})
            return
        budget = self._requests.budget()
        while Upload(self._requests, self.pool, name, data).write({}).kind is not None:
            if not budget.wait_for_another():
                raise self._requests.gave_up("write", name, "the upload keeps vanishing", budget)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``. The call's own object never causes False."""
        name = self._name(key)
        mark = {_MARK: self._new_mark()}
        if self._in_parts(data):
            return self._create_in_parts(name, data, mark)
        return self._requests.create_marked(
            name,
            mark[_MARK],
            lambda: self._put(name, data, mark, **_ABSENT),
            lambda: self._winner(name),
        )

    def children(self, folder: str) -> builtins.list[str]:
        """See ``ObjectStore.children``."""
        above = self._root + check_folder(folder)
        names: list[str] = []
        for page in self._pages(above, Delimiter="/"):
            names += [found["Key"] for found in page.get("Contents", [])]
            names += [found["Prefix"] for found in page.get("CommonPrefixes", [])]
        # The console makes an object named like the folder itself.
        return sorted({name.removeprefix(above) for name in names} - {""})

    def list(self, folder: str) -> builtins.list[str]:
        """See ``ObjectStore.list``."""
        return sorted(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        above = self._root + check_folder(folder)
        return {
            found["Key"].removeprefix(self._root): found["Size"]
            for page in self._pages(above)
            for found in page.get("Contents", [])
            if not found["Key"].endswith("/")
        }

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``. A bucket with versions keeps the object as an old version."""
        target = self._target(self._name(key))
        self._requests.send(
            "delete", target["Key"], lambda client: client.delete_object(**target), {Kind.NOT_FOUND}
        )

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        head = self._head(self._name(key))
        return None if head is None else head["ContentLength"]

    def check_conditions(self, key: str) -> str | None:
        """See ``SelfProbing.check_conditions``. An upload in parts must not replace an object."""
        if not self._options.uploads_in_parts:
            return None
        upload = Upload(self._requests, self.pool, self._name(key), b"late")
        if upload.write({}, **_ABSENT).kind is Kind.PRECONDITION_FAILED:
            return None
        return (
            "an upload in parts replaced an object that was there; with multipart_threshold=5GiB "
            "in its URI nothing is uploaded in parts"
        )

    def staged_uploads(self) -> StagedUploads:
        """Return the uploads below the prefix of this store that are not completed."""
        return StagedUploads(self._requests, self.pool, self._root)

    def _name(self, key: str) -> str:
        return self._root + check_key(key)

    def _target(self, name: str) -> dict[str, Any]:
        return {**self._requests.common, "Key": name}

    def _in_parts(self, data: bytes | memoryview) -> bool:
        size_bytes = memoryview(data).nbytes
        in_parts = size_bytes > self._options.multipart_threshold
        if in_parts and not self._options.uploads_in_parts:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{size_bytes} bytes are too much for one request: give {self._options.place} a "
                "smaller multipart_threshold, on a server that honours conditions there",
            )
        return in_parts

    def _put(
        self, name: str, data: bytes | memoryview, metadata: dict[str, str], **conditions: str
    ) -> Reply[bool]:
        body = bytes(data)

        def attempt(client: Client) -> bool:
            client.put_object(
                **self._target(name),
                **self._requests.creation,
                **conditions,
                Metadata=metadata,
                Body=body,
            )
            return True

        answers = {Kind.PRECONDITION_FAILED} if conditions else ()
        return self._requests.send("write", name, attempt, answers)

    def _create_in_parts(self, name: str, data: bytes | memoryview, mark: dict[str, str]) -> bool:
        # Cheaper than an upload that is refused at its end because the name is taken.
        if self._head(name) is not None:
            return False
        budget = self._requests.budget()
        while True:
            reply = Upload(self._requests, self.pool, name, data).write(mark, **_ABSENT)
            if reply.kind is None:
                return True
            if (winner := self._winner(name)) is not None:
                return winner == mark[_MARK]
            if not budget.wait_for_another():
                raise self._requests.gave_up("write", name, "the upload keeps failing", budget)

    def _winner(self, name: str) -> str | None:
        """The mark of the call that wrote what is there, "" if it has none; None: nothing is."""
        head = self._head(name)
        return None if head is None else head.get("Metadata", {}).get(_MARK, "")

    def _head(self, name: str) -> dict[str, Any] | None:
        target = self._target(name)
        return self._requests.send(
            "read", name, lambda client: client.head_object(**target), {Kind.NOT_FOUND}
        ).value

    def _pages(self, prefix: str, **parameters: str) -> Iterator[dict[str, Any]]:
        where = {**self._requests.common, "Prefix": prefix, **parameters}
        while True:
            page = value_of(
                self._requests.send("list", prefix, lambda client: client.list_objects_v2(**where))
            )
            yield page
            if not page.get("IsTruncated"):
                return
            where["ContinuationToken"] = page["NextContinuationToken"]
