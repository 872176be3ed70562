"""Single requests to S3: build, count and retry them, and translate their errors.

Retries are divided as follows: botocore follows a redirection to the bucket's region and repeats
nothing else (``total_max_attempts=1``); ``RequestSender`` does all other retries.
"""

# botocore ships no types, which the strict mode of this package would not accept.
# pyright: standard

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http import HTTPStatus
from random import Random
from typing import Any, TypeVar

from botocore.config import Config
from botocore.loaders import Loader
from botocore.session import Session

from laminar_core._version import __version__
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.request_counts import RequestKind
from laminar_core.objectstore.retries import Budget, RetryClock, RetryPolicy
from laminar_core.objectstore.s3_errors import ERRORS, ForeignAnswerError, classify
from laminar_core.objectstore.s3_options import S3Options
from laminar_core.objectstore.sending import Kind, Reply, RequestSender, Verb

T = TypeVar("T")
Client = Any

_CALLERS = 8
"""Connections that are kept for callers, beside those that move parts."""
_KINDS: dict[str, RequestKind] = {
    "PutObject": "puts",
    "UploadPart": "puts",
    "CreateMultipartUpload": "puts",
    "CompleteMultipartUpload": "puts",
    "AbortMultipartUpload": "deletes",
    "DeleteObject": "deletes",
    "GetObject": "gets",
    "HeadObject": "heads",
    "ListObjectsV2": "lists",
    "ListMultipartUploads": "lists",
    "ListParts": "lists",
}
_PROMISED = {
    "PutObject": ["ETag"],
    "UploadPart": ["ETag"],
    "CreateMultipartUpload": ["UploadId"],
    "CompleteMultipartUpload": ["ETag"],
    "GetObject": ["ETag", "ContentLength"],
    "HeadObject": ["ETag", "ContentLength"],
    "ListObjectsV2": ["IsTruncated"],
    "ListMultipartUploads": ["IsTruncated"],
    "ListParts": ["IsTruncated"],
}
"""In every answer of S3 to such a request. An answer without it says nothing about the bucket."""
_PROMISED_IF_TRUNCATED = {
    "ListObjectsV2": ["NextContinuationToken"],
    "ListMultipartUploads": ["NextKeyMarker", "NextUploadIdMarker"],
}
_LOADER = Loader()
"""Reads the description of S3, a megabyte, once per process and not once per store."""
_MAKING = threading.Lock()
_WITH_CONTENTS = {"PutObject", "UploadPart"}
_WRITTEN_WITH = {
    "ServerSideEncryption": "sse",
    "SSEKMSKeyId": "sse_kms_key_id",
    "BucketKeyEnabled": "bucket_key",
    "StorageClass": "storage_class",
    "ACL": "acl",
}


class S3Requests:
    """Everything that is sent for one store. Safe to use from several threads."""

    def __init__(
        self,
        options: S3Options,
        *,
        clock: RetryClock | None = None,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self._sender = RequestSender(
            self._place_of,
            ERRORS,
            classify,
            RetryPolicy(budget_ms=options.retry_budget_ms),
            clock=clock,
            random=random,
        )
        self.counter = self._sender.counter
        self._lock = threading.Lock()
        self._client: Client = None
        self.common = _given(
            Bucket=options.bucket,
            RequestPayer=options.request_payer,
            ExpectedBucketOwner=options.expected_bucket_owner,
        )
        """Parameters common to all requests."""
        self.creation = _given(
            **{name: getattr(options, field) for name, field in _WRITTEN_WITH.items()}
        )
        """Parameters of every request that makes an object."""

    def budget(self) -> Budget:
        """Return a new retry budget, which starts now."""
        return self._sender.budget()

    def send(
        self,
        verb: Verb,
        key: str,
        attempt: Callable[[Client], T],
        answers: Collection[Kind] = (),
    ) -> Reply[T]:
        """Send with the client; see ``RequestSender.send``."""
        return self._sender.send(verb, key, lambda: attempt(self._open()), answers)

    def create_marked(
        self,
        key: str,
        mark: str,
        write: Callable[[], Reply[bool]],
        winner: Callable[[], str | None],
    ) -> bool:
        """See ``RequestSender.create_marked``."""
        return self._sender.create_marked(key, mark, write, winner)

    def try_once(self, attempt: Callable[[Client], object]) -> None:
        """Send something that is good to have and not needed."""
        with suppress(*ERRORS):
            attempt(self._open())

    def gave_up(self, verb: Verb, key: str, said: str, budget: Budget) -> StorageUnavailable:
        """Return the error for an operation that did not succeed within its time."""
        return self._sender.gave_up(verb, key, said, budget)

    def _place_of(self, key: str) -> str:
        place = f"s3://{self.options.bucket}/{key}"
        at = self.options.endpoint_url
        return f"{place} at {at}" if at else place

    def _open(self) -> Client:
        """The client; made by the first request, because making it looks for credentials."""
        with self._lock:
            if self._client is None:
                self._client = _make_client(self.options)
                self._client.meta.events.register("before-send.s3", self._count)
                self._client.meta.events.register("after-call.s3", _check_answer)
            return self._client

    def _count(self, request: Any, event_name: str, **_: object) -> None:  # noqa: ANN401 - botocore's
        operation = event_name.rpartition(".")[2]
        bytes_up = _content_bytes(request.headers) if operation in _WITH_CONTENTS else 0
        if operation in _KINDS:
            self.counter.request(_KINDS[operation], bytes_up)


def _check_answer(
    http_response: Any,  # noqa: ANN401 - botocore's
    parsed: Mapping[str, Any],
    event_name: str,
    **_: object,
) -> None:
    if http_response.status_code >= HTTPStatus.MULTIPLE_CHOICES:
        return
    operation = event_name.rpartition(".")[2]
    promised = _PROMISED.get(operation, [])
    if parsed.get("IsTruncated"):
        promised = _PROMISED_IF_TRUNCATED.get(operation, [])
    missing = [name for name in promised if parsed.get(name) is None]
    if missing:
        if "Body" in parsed:
            parsed["Body"].close()
        raise ForeignAnswerError(said=f"{operation} without {' and '.join(missing)}")


def _make_client(options: S3Options) -> Client:
    style = options.addressing_style or ("path" if options.endpoint_url else None)
    config = Config(
        connect_timeout=options.connect_timeout_ms / 1000,
        read_timeout=options.read_timeout_ms / 1000,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=options.parallel + _CALLERS,
        tcp_keepalive=True,
        # Asked for where the whole object is read: servers differ in what they send for a range.
        response_checksum_validation="when_required",
        user_agent_extra=f"laminar/{__version__}",
        **_given(
            s3=_given(addressing_style=style) or None,
            request_checksum_calculation=options.checksums,
        ),
    )
    # A session is not safe to use from several threads, the clients that it makes are.
    with _MAKING:
        session = Session(profile=options.profile)
        session.register_component("data_loader", _LOADER)
        try:
            return session.create_client(
                "s3", options.region, endpoint_url=options.endpoint_url, config=config
            )
        except ValueError as error:  # Of boto3's own settings; those of the URI are checked.
            problem = f"boto3 cannot use its environment or configuration: {error}"
            raise ConfigurationError(ErrorCode.INVALID_OPTION, problem) from error


def _given(**parameters: object) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _content_bytes(headers: Mapping[str, str | bytes]) -> int:
    """Length of what is uploaded, without the frame that a checksum puts around it."""
    found = headers.get("X-Amz-Decoded-Content-Length") or headers.get("Content-Length") or 0
    return int(found)
