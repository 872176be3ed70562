"""Transfer large objects in parts, several at a time, up and down.

An upload in parts becomes visible when it is completed, and its condition is checked then. So a
lost answer leads to one more completion; after 409 the object is uploaded anew as Amazon requires,
because the upload is gone. A download keeps to the version of its first part, by ETag.
"""

# botocore ships no types, which the strict mode of this package would not accept.
# pyright: standard

import hashlib
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from botocore.response import StreamingBody

from laminar_core.objectstore.contract import other_length, too_large
from laminar_core.objectstore.s3_errors import ERRORS, ForeignAnswerError, range_of
from laminar_core.objectstore.s3_options import PARTS_MAX
from laminar_core.objectstore.s3_requests import Client, S3Requests
from laminar_core.objectstore.sending import Kind, Reply, value_of

T = TypeVar("T")

_PIECE_BYTES = 1 << 20


def plan_parts(size_bytes: int, part_bytes: int) -> list[tuple[int, int]]:
    """Return start and end of each part; parts grow so that there are at most ``PARTS_MAX``.

    >>> plan_parts(20, 8)
    [(0, 8), (8, 16), (16, 20)]
    """
    part_bytes = max(part_bytes, math.ceil(size_bytes / PARTS_MAX))
    starts = range(0, size_bytes, part_bytes)
    return [(start, min(start + part_bytes, size_bytes)) for start in starts]


def check_range(answer: Mapping[str, Any], start: int, stop: int) -> None:
    """Check that a part of an object is the one that was asked for, before it is read.

    Raises:
        ForeignAnswerError: it is another one, or has not its length.
    """
    if "ContentRange" not in answer:
        return
    first, end, _ = range_of(answer["ContentRange"])
    if (first, end, answer["ContentLength"]) != (start, stop, stop - start):
        raise ForeignAnswerError(said=f"other bytes than those from {start} up to {stop}")


class PartPool:
    """Threads that move parts, made when they are needed; one pool for all callers."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def run(self, actions: Iterable[Callable[[], T]]) -> list[T]:
        """Run the actions and return their results in order.

        After an error no further action begins, and none is left running.
        """
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.threads, "laminar-s3")
        given_up = threading.Event()
        futures = [self._executor.submit(_unless(given_up, action)) for action in actions]
        try:
            wait(futures)
        except BaseException:  # A signal: the parts that are under way would outlive the upload.
            given_up.set()
            wait(futures)
            raise
        failed = [future for future in futures if future.exception() is not None]
        errors = [future for future in failed if not isinstance(future.exception(), _GivenUp)]
        return [future.result() for future in errors or failed or futures]


class _GivenUp(Exception):  # noqa: N818 - nothing is wrong with this part
    """Another part failed before this one was begun."""


def _unless(given_up: threading.Event, action: Callable[[], T]) -> Callable[[], T]:
    def run() -> T:
        if given_up.is_set():
            raise _GivenUp
        try:
            return action()
        except BaseException:
            given_up.set()
            raise

    return run


class Upload:
    """The upload of one object in parts."""

    def __init__(
        self, requests: S3Requests, pool: PartPool, key: str, data: bytes | memoryview
    ) -> None:
        self._requests = requests
        self._pool = pool
        self._key = key
        self._data = memoryview(data).cast("B")
        self._target = {**requests.common, "Key": key}

    def write(self, metadata: Mapping[str, str], **conditions: str) -> Reply[None]:
        """Upload and complete the object; ``attempts`` in the reply counts completions.

        The answer can be PRECONDITION_FAILED, CONFLICT, or NOT_FOUND if the upload no longer
        exists. If the upload is not completed, or its outcome is unknown, its parts are removed as
        far as possible; the bucket's lifecycle rule removes the rest.

        Raises:
            StorageUnavailable, ConfigurationError: as ``S3Requests.send``.
        """
        upload_id, parts = self.stage(metadata)
        completed = False
        try:
            reply = self._complete(upload_id, parts, conditions)
            completed = reply.kind is None
        finally:
            if not completed:
                self._abort(upload_id)
        return reply

    def stage(self, metadata: Mapping[str, str]) -> tuple[str, list[dict[str, object]]]:
        """Upload the parts, and return the upload and what completes it; no reader sees it yet.

        Raises:
            StorageUnavailable, ConfigurationError: as ``S3Requests.send``; the parts are removed as
                far as possible.
        """
        upload_id = self._begin(metadata)
        staged = False
        try:
            parts = self._upload_parts(upload_id)
            staged = True
        finally:
            if not staged:
                self._abort(upload_id)
        return upload_id, parts

    def _begin(self, metadata: Mapping[str, str]) -> str:
        def attempt(client: Client) -> str:
            answer = client.create_multipart_upload(
                **self._target, **self._requests.creation, Metadata=metadata
            )
            return answer["UploadId"]

        return value_of(self._requests.send("write", self._key, attempt))

    def _upload_parts(self, upload_id: str) -> list[dict[str, object]]:
        planned = plan_parts(len(self._data), self._requests.options.part_size)
        return self._pool.run(
            partial(self._upload_part, upload_id, number, start, stop)
            for number, (start, stop) in enumerate(planned, 1)
        )

    def _upload_part(self, upload_id: str, number: int, start: int, stop: int) -> dict[str, object]:
        body = bytes(self._data[start:stop])

        def attempt(client: Client) -> dict[str, object]:
            answer = client.upload_part(
                **self._target, UploadId=upload_id, PartNumber=number, Body=body
            )
            return {"PartNumber": number, "ETag": answer["ETag"]}

        return value_of(self._requests.send("write", self._key, attempt))

    def _complete(
        self, upload_id: str, parts: Sequence[dict[str, object]], conditions: Mapping[str, str]
    ) -> Reply[None]:
        def attempt(client: Client) -> None:
            client.complete_multipart_upload(
                **self._target,
                **conditions,
                UploadId=upload_id,
                MultipartUpload={"Parts": parts},
            )

        answers = {Kind.PRECONDITION_FAILED, Kind.CONFLICT, Kind.NOT_FOUND}
        return self._requests.send("write", self._key, attempt, answers)

    def _abort(self, upload_id: str) -> None:
        self._requests.try_once(
            lambda client: client.abort_multipart_upload(**self._target, UploadId=upload_id)
        )


class Download:
    """One object read, in parts if it is large."""

    def __init__(self, requests: S3Requests, pool: PartPool, key: str, size_max: int) -> None:
        self._requests = requests
        self._pool = pool
        self._key = key
        self._size_max = size_max
        self._target = {**requests.common, "Key": key}

    def read(self) -> bytes | None:
        """Return the object, all of one version; None if there is none.

        Raises:
            CorruptCheckpointError: it is longer than ``size_max``; none of it was read.
            StorageUnavailable, ConfigurationError: as ``S3Requests.send``.
        """
        budget = self._requests.budget()
        while True:
            reply = self._requests.send("read", self._key, self._begin, {Kind.NOT_FOUND})
            if reply.value is None:
                return None
            if isinstance(reply.value, bytes):
                return reply.value
            pieces = self._read_parts(reply.value)
            if None not in pieces:
                return b"".join(filter(None, pieces))
            if not budget.wait_for_another():
                raise self._requests.gave_up("read", self._key, "it keeps changing", budget)

    def sha256(self) -> str | None:
        """Return the digest of the object, read in one stream; None if there is none.

        Raises:
            As ``read`` does.
        """
        return self._requests.send("read", self._key, self._digest, {Kind.NOT_FOUND}).value

    def _digest(self, client: Client) -> str:
        with closing(self._open(client)["Body"]) as body:
            digest = hashlib.sha256()
            for piece in body.iter_chunks(_PIECE_BYTES):
                digest.update(self._counted(piece))
            return digest.hexdigest()

    def _open(self, client: Client) -> dict[str, Any]:
        """Ask for the whole object; nothing of it is read if it is too long."""
        answer = client.get_object(**self._target, ChecksumMode="ENABLED")
        if (size := answer["ContentLength"]) > self._size_max:
            answer["Body"].close()
            bucket = self._requests.options.bucket
            raise too_large(f"s3://{bucket}/{self._key}", size, self._size_max)
        return answer

    def _begin(self, client: Client) -> "bytes | _Begun":
        """Read a small object, verified by its checksum, or begin a download in parts.

        A request for the whole object reveals its size, so one is enough for most objects.
        """
        options = self._requests.options
        answer = self._open(client)
        size = answer["ContentLength"]
        if options.parallel > 1 and size > options.multipart_threshold:
            return _Begun(answer["Body"], answer["ETag"], size)
        with closing(answer["Body"]) as body:
            return self._counted(body.read())

    def _read_parts(self, begun: "_Begun") -> list[bytes | None]:
        """The parts; None in place of one that would be of another version."""
        first, *later = plan_parts(begun.size_bytes, self._requests.options.part_size)
        # What else that answer would bring is not waited for.
        with closing(begun.body):
            return self._pool.run(
                [
                    partial(self._read_first, begun, *first),
                    *(partial(self._read_later, begun.etag, *part) for part in later),
                ]
            )

    def _read_first(self, begun: "_Begun", start: int, stop: int) -> bytes | None:
        try:
            data = self._counted(begun.body.read(stop - start))
        except ERRORS:
            data = b""
        return data if len(data) == stop - start else self._read_later(begun.etag, start, stop)

    def _counted(self, data: bytes) -> bytes:
        self._requests.counter.received(len(data))
        return data

    def _read_later(self, etag: str, start: int, stop: int) -> bytes | None:
        def attempt(client: Client) -> bytes | None:
            answer = client.get_object(
                **self._target, Range=f"bytes={start}-{stop - 1}", IfMatch=etag
            )
            with closing(answer["Body"]) as body:
                if answer["ETag"] != etag:  # A server may ignore either header.
                    return None
                check_range(answer, start, stop)
                data = self._counted(body.read())
            return data if len(data) == stop - start else None

        answers = {Kind.PRECONDITION_FAILED, Kind.NOT_FOUND}
        return self._requests.send("read", self._key, attempt, answers).value


@dataclass(frozen=True, slots=True)
class _Begun:
    """A large object that the server has begun to send."""

    body: StreamingBody
    etag: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RangeDownload:
    """Some bytes of an object whose length is known, read with one request."""

    requests: S3Requests
    key: str
    start: int
    stop: int
    size_bytes: int

    def read(self) -> bytes | None:
        """Return the bytes; None if there is no such object.

        Raises:
            CorruptCheckpointError: the object has another length.
            StorageUnavailable, ConfigurationError: as ``S3Requests.send``.
        """
        answers = {Kind.NOT_FOUND, Kind.OUT_OF_RANGE}
        reply = self.requests.send("read", self.key, self._attempt, answers)
        if reply.kind is Kind.OUT_OF_RANGE:
            self._compare(value_of(self.requests.send("read", self.key, self._size)))
        return reply.value

    def _attempt(self, client: Client) -> bytes:
        wanted = f"bytes={self.start}-{self.stop - 1}"
        answer = client.get_object(**self.requests.common, Key=self.key, Range=wanted)
        with closing(answer["Body"]) as body:
            # A server may ignore the header, and send the whole object.
            partly: str | None = answer.get("ContentRange")
            self._compare(answer["ContentLength"] if partly is None else range_of(partly)[2])
            check_range(answer, self.start, self.stop)
            data = body.read()
        self.requests.counter.received(len(data))
        return data if partly is not None else data[self.start : self.stop]

    def _size(self, client: Client) -> int:
        return client.head_object(**self.requests.common, Key=self.key)["ContentLength"]

    def _compare(self, size_bytes: int) -> None:
        if size_bytes != self.size_bytes:
            where = f"s3://{self.requests.options.bucket}/{self.key}"
            raise other_length(where, size_bytes, self.size_bytes)
