"""Large objects in parts, several at a time, up and down.

An upload in parts is visible when it is completed, and not before. A condition is checked then,
so it is completed once more if the answer is lost, and uploaded anew after 409: Amazon asks for
that, because the upload is gone. A download keeps to the version of its first part, by ETag.
"""

# botocore ships no types, which the strict mode of this package would not accept.
# pyright: standard

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from typing import TypeVar

from laminar_core.storage.s3_errors import Kind
from laminar_core.storage.s3_options import PARTS_MAX
from laminar_core.storage.s3_requests import Client, Reply, S3Requests

T = TypeVar("T")


def plan_parts(size_bytes: int, part_bytes: int) -> list[tuple[int, int]]:
    """Where parts start and end, at most ``PARTS_MAX``; larger ones if need be.

    >>> plan_parts(20, 8)
    [(0, 8), (8, 16), (16, 20)]
    """
    part_bytes = max(part_bytes, math.ceil(size_bytes / PARTS_MAX))
    starts = range(0, size_bytes, part_bytes)
    return [(start, min(start + part_bytes, size_bytes)) for start in starts]


class PartPool:
    """Threads that move parts, made when they are needed; one pool for all callers."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def run(self, actions: Iterable[Callable[[], T]]) -> list[T]:
        """Results in order. After an error no further part is begun, and none is under way."""
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
    """One object written in parts."""

    def __init__(
        self, requests: S3Requests, pool: PartPool, key: str, data: bytes | memoryview
    ) -> None:
        self._requests = requests
        self._pool = pool
        self._key = key
        self._data = memoryview(data).cast("B")
        self._target = {**requests.common, "Key": key}

    def write(self, metadata: Mapping[str, str], **conditions: str) -> Reply[None]:
        """Upload and complete it; ``attempts`` are those at the completion.

        The answer can be PRECONDITION_FAILED, CONFLICT, or NOT_FOUND: the upload is not there
        (any more). If nothing is completed, or nobody knows, its parts are removed as far as
        possible; the bucket's lifecycle rule is for the rest.

        Raises:
            StorageUnavailable, ConfigurationError: as ``S3Requests.send``.
        """
        upload_id = self._begin(metadata)
        completed = False
        try:
            parts = self._upload_parts(upload_id)
            reply = self._complete(upload_id, parts, conditions)
            completed = reply.kind is None
        finally:
            if not completed:
                self._abort(upload_id)
        return reply

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

    def __init__(self, requests: S3Requests, pool: PartPool, key: str) -> None:
        self._requests = requests
        self._pool = pool
        self._key = key
        self._target = {**requests.common, "Key": key}

    def read(self) -> bytes | None:
        """The object, of one version from beginning to end; None if there is none.

        Raises:
            StorageUnavailable, ConfigurationError: as ``S3Requests.send``.
        """
        budget = self._requests.budget()
        while True:
            reply = self._requests.send("read", self._key, self._read_first, {Kind.NOT_FOUND})
            if reply.value is None:
                return None
            first, etag, size = reply.value
            later = [self._read_later(etag, *part) for part in self._rest(len(first), size)]
            pieces = [first, *(self._pool.run(later) if later else ())]
            if all(piece is not None for piece in pieces):
                return b"".join(pieces) if later else first
            if not budget.wait_for_another():
                raise self._requests.gave_up("read", self._key, "it keeps changing", budget)

    def _rest(self, done: int, size: int) -> list[tuple[int, int]]:
        planned = plan_parts(size - done, self._requests.options.part_size)
        return [(done + start, done + stop) for start, stop in planned]

    def _read_first(self, client: Client) -> tuple[bytes, str, int]:
        """All of a small object, with its checksum; of a large one no more than a part.

        The answer to a request for the whole object tells its size, so one request is enough for
        most objects. Where it turns out to be large, the rest of this answer is not waited for.
        """
        options = self._requests.options
        answer = client.get_object(**self._target, ChecksumMode="ENABLED")
        size = answer["ContentLength"]
        with closing(answer["Body"]) as body:
            in_parts = options.parallel > 1 and size > options.multipart_threshold
            data = body.read(options.part_size) if in_parts else body.read()
        self._requests.counter.received(len(data))
        return data, answer["ETag"], size

    def _read_later(self, etag: str, start: int, stop: int) -> Callable[[], bytes | None]:
        """Reads a part, or None if it would be that of another version of the object."""

        def attempt(client: Client) -> bytes | None:
            answer = client.get_object(
                **self._target, Range=f"bytes={start}-{stop - 1}", IfMatch=etag
            )
            with closing(answer["Body"]) as body:
                data = body.read()
            self._requests.counter.received(len(data))
            # A server may ignore either header.
            same = answer["ETag"] == etag and len(data) == stop - start
            return data if same else None

        answers = {Kind.PRECONDITION_FAILED, Kind.NOT_FOUND}
        return lambda: self._requests.send("read", self._key, attempt, answers).value


def value_of(reply: Reply[T]) -> T:
    """What a request gave that has no other answers."""
    assert reply.value is not None, reply
    return reply.value
