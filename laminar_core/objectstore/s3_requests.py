"""Single requests to S3: build, count and retry them, and translate their errors.

Retries are divided as follows: botocore follows a redirection to the bucket's region and repeats
nothing else (``total_max_attempts=1``). It knows no deadline, and a conditional write that it
repeats unseen finds its own object and reports a conflict (ADR 0015). This module does all other
retries.
"""

# botocore ships no types, which the strict mode of this package would not accept.
# pyright: standard

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Literal, TypeVar

from botocore.config import Config
from botocore.loaders import Loader
from botocore.session import Session

from laminar_core._version import __version__
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.request_counts import RequestCounter, RequestKind
from laminar_core.objectstore.retries import Budget, MachineClock, RetryClock, RetryPolicy
from laminar_core.objectstore.s3_errors import ERRORS, Failure, Kind, classify
from laminar_core.objectstore.s3_options import S3Options

T = TypeVar("T")
Client = Any
Verb = Literal["read", "write", "list", "delete"]

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


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """``value`` if ``kind`` is None, else the kind of failure; and the number of attempts."""

    value: T | None
    kind: Kind | None
    attempts: int


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
        self.counter = RequestCounter()
        self._policy = RetryPolicy(budget_ms=options.retry_budget_ms)
        self._clock = clock or MachineClock()
        self._random = random or Random()  # noqa: S311 - spreads retries, protects nothing
        self._lock = threading.Lock()
        self._client: Client = None
        self._has_worked = False
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
        return Budget(self._policy, self._clock, self._random)

    def send(
        self,
        verb: Verb,
        key: str,
        attempt: Callable[[Client], T],
        answers: Collection[Kind] = (),
    ) -> Reply[T]:
        """Call ``attempt`` until it succeeds, fails with one of ``answers``, or time is up.

        Args:
            verb: The operation on ``key``, for messages.
            key: Name in the bucket.
            attempt: Sends one request with the client, and reads its answer to the end.
            answers: Failures that are an answer for the caller.

        Raises:
            ConfigurationError: the store refuses, and has never accepted a request.
            StorageUnavailable: it does not answer, is full, or refuses what it accepted before.
        """
        budget = self.budget()
        while True:
            try:
                value = attempt(self._open())
            except ERRORS as error:
                failure = classify(error)
                if failure.kind in answers:
                    self._has_worked = True
                    return Reply(None, failure.kind, budget.failures + 1)
                retried = failure.kind in {Kind.TRANSIENT, Kind.CONFLICT}
                if not (retried and budget.wait_for_another()):
                    raise self._error(verb, key, failure, budget) from error
                self.counter.retried()
            else:
                self._has_worked = True
                return Reply(value, None, budget.failures + 1)

    def try_once(self, attempt: Callable[[Client], object]) -> None:
        """Send something that is good to have and not needed."""
        with suppress(*ERRORS):
            attempt(self._open())

    def gave_up(self, verb: Verb, key: str, said: str, budget: Budget) -> StorageUnavailable:
        """Return the error for an operation that did not succeed within its time."""
        failure = Failure(Kind.TRANSIENT, ErrorCode.STORE_IO, said, "try again")
        error = self._error(verb, key, failure, budget)
        assert isinstance(error, StorageUnavailable)
        return error

    def _error(
        self, verb: Verb, key: str, failure: Failure, budget: Budget
    ) -> StorageUnavailable | ConfigurationError:
        place = f"s3://{self.options.bucket}/{key}"
        if self.options.endpoint_url:
            place += f" at {self.options.endpoint_url}"
        tried = f" (tried {budget.failures} times)" if budget.failures > 1 else ""
        message = f"cannot {verb} {place}: {failure.said}{tried}; {failure.advice}"
        # What worked before may work again: keys are renewed, rights come and go for seconds.
        if failure.kind is Kind.REFUSED and not self._has_worked:
            return ConfigurationError(failure.code, message)
        return StorageUnavailable(failure.code, message)

    def _open(self) -> Client:
        """The client; made by the first request, because making it looks for credentials."""
        with self._lock:
            if self._client is None:
                self._client = _make_client(self.options)
                self._client.meta.events.register("before-send.s3", self._count)
            return self._client

    def _count(self, request: Any, event_name: str, **_: object) -> None:  # noqa: ANN401 - botocore's
        operation = event_name.rpartition(".")[2]
        bytes_up = _content_bytes(request.headers) if operation in _WITH_CONTENTS else 0
        if operation in _KINDS:
            self.counter.request(_KINDS[operation], bytes_up)


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
