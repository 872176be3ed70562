"""Classify errors of obstore against Azure: retry, a meaningful answer, or a mistake of the user.

obstore's errors have a class for a few statuses; the status itself and Azure's code are only in
their text. Sources: "Blob service error codes" and "Specifying conditional headers" of the REST
reference. 409 has many meanings, and only one of its codes says that the blob exists.
"""

import re
from http import HTTPStatus

from obstore.exceptions import BaseError

from laminar_core.errors import ErrorCode
from laminar_core.objectstore.sending import Failure, Kind

ERRORS: tuple[type[Exception], ...] = (BaseError, OSError)
"""All that a call of obstore, or reading an answer's body, can raise."""

_STATUS = re.compile(r"status code: (\d{3})|\(code: (\d{3})\)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_QUERY = re.compile(r"\?\S*")
"""The part of a URL that may be a signature."""
_CODE_MEANS_EXISTS = {"BlobAlreadyExists"}
_NO_CONTAINER = {"ContainerNotFound", "ResourceNotFound", "InvalidResourceName", "OutOfRangeInput"}
_CREDENTIALS = {
    "AuthenticationFailed",
    "AuthorizationFailure",  # Also sent if the network rules of the account refuse the caller.
    "InvalidAuthenticationInfo",
    "NoAuthenticationInformation",
}
_TRANSIENT = {
    "AccountBeingCreated",
    "ContainerBeingDeleted",
    "InternalError",
    "OperationTimedOut",
    "Md5Mismatch",
}
_THROTTLED = {"ServerBusy", "IngressExceedsAccountLimit", "EgressExceedsAccountLimit"}
_FULL = {"AccountLimitExceeded", "BlobCountExceedsLimit"}
_KEPT = {"BlobArchived", "BlobBeingRehydrated", "BlobImmutableDueToPolicy"}
_TOKEN = "performing token request"  # noqa: S105 - words of obstore

CREDENTIALS_ADVICE = (
    "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, or a client id with its secret, or use "
    "a managed identity, for the driver and for every Spark worker"
)
PERMISSIONS_ADVICE = "give this identity the role Storage Blob Data Contributor on the container"
_ASK_AGAIN = "check the network and the server, then start again"


def classify(error: Exception) -> Failure:
    """Classify ``error``, which is one of ``ERRORS``."""
    text = str(error).partition("\n\n")[0]
    status = _first(_STATUS, text)
    code = _first(_CODE, text)
    said = _said(text, status, code)
    if _TOKEN in text:
        return _without_token(status, said)
    if not status:
        return _unanswered(text, said)
    return _answered(int(status), code, said)


def _unanswered(text: str, said: str) -> Failure:
    """No answer came, or obstore refuses to send anything."""
    if "CERTIFICATE" in text.upper():
        return _refused(ErrorCode.STORE_CREDENTIALS, said, "let this machine trust the certificate")
    return Failure(Kind.TRANSIENT, ErrorCode.STORE_IO, said, _ASK_AGAIN)


def _without_token(status: str, said: str) -> Failure:
    """The service that hands out tokens refused, or did not answer."""
    refused = status and int(status) < HTTPStatus.INTERNAL_SERVER_ERROR
    if refused and int(status) != HTTPStatus.TOO_MANY_REQUESTS:
        return _refused(ErrorCode.STORE_CREDENTIALS, said, CREDENTIALS_ADVICE)
    return Failure(Kind.TRANSIENT, ErrorCode.STORE_CREDENTIALS, said, CREDENTIALS_ADVICE)


def _answered(status: int, code: str, said: str) -> Failure:
    """Azure answered, and not what was hoped for."""
    match status:
        case _ if code in _NO_CONTAINER:
            advice = "create the container, or correct the URI"
            return _refused(ErrorCode.NO_SUCH_BUCKET, said, advice)
        case HTTPStatus.NOT_FOUND:
            return Failure(Kind.NOT_FOUND, ErrorCode.STORE_IO, said, _ASK_AGAIN)
        case HTTPStatus.PRECONDITION_FAILED:
            return Failure(Kind.PRECONDITION_FAILED, ErrorCode.STORE_IO, said, _ASK_AGAIN)
        case HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return Failure(Kind.OUT_OF_RANGE, ErrorCode.STORE_IO, said, _ASK_AGAIN)
        case _ if code in _CODE_MEANS_EXISTS:
            return Failure(Kind.PRECONDITION_FAILED, ErrorCode.STORE_IO, said, _ASK_AGAIN)
        case _ if code in _FULL or status == HTTPStatus.INSUFFICIENT_STORAGE:
            advice = "free some space or choose another store"
            return Failure(Kind.FULL, ErrorCode.STORE_FULL, said, advice)
        case _ if code in _THROTTLED or status == HTTPStatus.TOO_MANY_REQUESTS:
            advice = "spread the load, or use a longer checkpoint interval"
            return Failure(Kind.TRANSIENT, ErrorCode.STORE_THROTTLED, said, advice)
        case HTTPStatus.UNAUTHORIZED:
            return _refused(ErrorCode.STORE_CREDENTIALS, said, CREDENTIALS_ADVICE)
        case HTTPStatus.FORBIDDEN if code in _CREDENTIALS:
            return _refused(ErrorCode.STORE_CREDENTIALS, said, CREDENTIALS_ADVICE)
        case HTTPStatus.FORBIDDEN:
            return _refused(ErrorCode.STORE_ACCESS_DENIED, said, PERMISSIONS_ADVICE)
        case HTTPStatus.NOT_IMPLEMENTED:
            advice = "use a server that implements conditional writes"
            return _refused(ErrorCode.STORE_IGNORES_CONDITIONS, said, advice)
        case _:
            return _rest(status, code, said)


def _rest(status: int, code: str, said: str) -> Failure:
    if code in _KEPT:
        advice = "let no rule archive checkpoints or make them immutable"
        return _refused(ErrorCode.STORE_ACCESS_DENIED, said, advice)
    passes = code in _TRANSIENT or status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT}
    if passes or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Failure(Kind.TRANSIENT, ErrorCode.STORE_IO, said, _ASK_AGAIN)
    return _refused(
        ErrorCode.INVALID_OPTION, said, "correct the URI of the store (docs/storage.md)"
    )


def _refused(code: ErrorCode, said: str, advice: str) -> Failure:
    return Failure(Kind.REFUSED, code, said, advice)


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next(filter(None, found.groups()), "") if found else ""


def _said(text: str, status: str, code: str) -> str:
    if status:
        return f"{status} {code}".strip()
    return _QUERY.sub("", text.partition("\n")[0]).rstrip(".")
