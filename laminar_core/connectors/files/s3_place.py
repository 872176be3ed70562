"""Files below a prefix of a bucket, read in ranges of one version."""

# botocore ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from laminar_core.connectors.files.places import FileChangedError, FileStat
from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.s3_options import S3Options
from laminar_core.objectstore.s3_requests import Client, S3Requests
from laminar_core.objectstore.s3_transfer import check_range
from laminar_core.objectstore.sending import Kind, Reply

RANGE_BYTES = 8 * 1024**2
"""Bytes of one request: large enough for the bandwidth, small enough to be sent again."""


class S3Place:
    """Objects below a prefix. An object is whole when it is listed; its ETag is its version."""

    whole_at_once = True

    def __init__(self, uri: str) -> None:
        options = S3Options.parse(uri)
        self._root = f"{options.prefix}/" if options.prefix else ""
        self._requests = S3Requests(options)

    def files(self, after: str | None = None) -> Iterator[FileStat]:
        """See ``Place.files``. A prefix without objects is no error: it does not exist as such."""
        where: dict[str, Any] = {**self._requests.common, "Prefix": self._root}
        if after is not None:
            where["StartAfter"] = self._root + after
        while True:
            page = _value(
                self._requests.send(
                    "list", self._root, lambda client: client.list_objects_v2(**where)
                )
            )
            for found in page.get("Contents", []):
                if not found["Key"].endswith("/"):
                    name = found["Key"].removeprefix(self._root)
                    yield _stat(name, found["Size"], found)
            if not page.get("IsTruncated"):
                return
            where["ContinuationToken"] = page["NextContinuationToken"]

    def stat(self, name: str) -> FileStat | None:
        """See ``Place.stat``."""
        target = self._target(name)
        reply: Reply[dict[str, Any]] = self._requests.send(
            "read", target["Key"], lambda client: client.head_object(**target), {Kind.NOT_FOUND}
        )
        head = reply.value
        return None if head is None else _stat(name, head["ContentLength"], head)

    def open(self, found: FileStat) -> "S3File":
        """See ``Place.open``; the first request is sent when it is read."""
        return S3File(self._requests, self._target(found.name), found)

    def _target(self, name: str) -> dict[str, Any]:
        return {**self._requests.common, "Key": self._root + name}


class S3File:
    """One version of an object, fetched in ranges as it is read."""

    def __init__(self, requests: S3Requests, target: dict[str, Any], found: FileStat) -> None:
        self._requests = requests
        self._target = {**target, "IfMatch": found.version}
        self._size_bytes = found.size_bytes
        self._position = 0
        self._fetched = b""
        self._fetched_from = 0

    def read(self, size: int, /) -> bytes:
        """See ``BinaryFile.read``.

        Raises:
            FileNotFoundError: it is gone.
            FileChangedError: it is another object by now.
        """
        at = self._position - self._fetched_from
        if not 0 <= at < len(self._fetched):
            if self._position >= self._size_bytes:
                return b""
            self._fetched_from, at = self._position, 0
            self._fetched = self._fetch(self._position)
        data = self._fetched[at : at + size]
        self._position += len(data)
        return data

    def seek(self, position: int, /) -> int:
        """See ``BinaryFile.seek``."""
        self._position = position
        return position

    def check_unchanged(self) -> None:
        """Do nothing: each request has asked for this version."""

    def close(self) -> None:
        """Forget what was fetched."""
        self._fetched = b""

    def _fetch(self, start: int) -> bytes:
        last = min(start + RANGE_BYTES, self._size_bytes) - 1
        asked = {**self._target, "Range": f"bytes={start}-{last}"}

        def get(client: Client) -> bytes:
            answer = client.get_object(**asked)
            with closing(answer["Body"]) as body:
                check_range(answer, start, last + 1)
                return body.read()

        key = self._target["Key"]
        answers = {Kind.NOT_FOUND, Kind.PRECONDITION_FAILED}
        reply = self._requests.send("read", key, get, answers)
        if reply.kind is Kind.NOT_FOUND:
            raise FileNotFoundError(key)
        if reply.kind is Kind.PRECONDITION_FAILED:
            raise FileChangedError("it is another object by now")
        data = _value(reply)
        if len(data) != last - start + 1:
            raise StorageUnavailable(
                ErrorCode.STORE_IO, f"cannot read {key}: {len(data)} bytes came; try again"
            )
        return data


def _stat(name: str, size_bytes: int, found: dict[str, Any]) -> FileStat:
    modified_us = int(found["LastModified"].timestamp() * 1_000_000)
    return FileStat(name, size_bytes, modified_us, modified_us, found["ETag"])


def _value(reply: Reply[Any]) -> Any:  # noqa: ANN401 - botocore's
    assert reply.value is not None, "no failure is an answer here"
    return reply.value
