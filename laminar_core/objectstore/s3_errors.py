"""Classify errors of boto3: retry, a meaningful answer, or a mistake of the user.

Sources: "Error responses" and "Conditional requests" of the S3 documentation, and the answers of
other servers than Amazon's. Two things are easy to get wrong: 409 does not mean that an object
exists (412 does), and any failure but a clear refusal leaves open whether a write happened.
"""

# botocore ships no types, which the strict mode of this package would not accept.
# pyright: standard

import re
from http import HTTPStatus
from typing import Any

from botocore import exceptions as boto
from urllib3.exceptions import HTTPError

from laminar_core.errors import ErrorCode
from laminar_core.objectstore.sending import Failure, Kind


class ForeignAnswerError(boto.BotoCoreError):
    """Something other than S3 answered, such as a proxy or a login page: it proves nothing."""

    fmt = "the answer is not S3's: {said}"


ERRORS = (boto.BotoCoreError, boto.ClientError, HTTPError, OSError)
"""All that a call of a client, or reading an answer's body, can raise."""


_CREDENTIALS = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidToken",
    "NotSignedUp",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnrecognizedClientException",
    "XAdminUserNotFound",  # versitygw
}
_DENIED = {"AccessDenied", "AccountProblem", "AllAccessDisabled", "Forbidden", "403"}
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName"}
_REGION = {
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "IncorrectEndpoint",
    "PermanentRedirect",
    "301",
}
_THROTTLED = {"RequestLimitExceeded", "SlowDown", "503"}
_DAMAGED = {
    "BadDigest",
    "IncompleteBody",
    "XAmzContentChecksumMismatch",
    "XAmzContentSHA256Mismatch",
}
_TRANSIENT = {"InternalError", "OperationAborted", "RequestTimeout", "TemporaryRedirect", *_DAMAGED}
_FULL = {"InsufficientCapacity", "QuotaExceeded", "XMinioStorageFull"}
_ABSENT = {"NoSuchKey", "NoSuchUpload", "404"}
_UNKNOWN_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.ProfileNotFound,
    boto.InvalidConfigError,
    boto.ConfigNotFound,
    boto.ConfigParseError,
)
_ON_THE_WAY = (
    boto.ConnectionError,
    boto.HTTPClientError,
    boto.IncompleteReadError,
    boto.ResponseStreamingError,
    boto.ChecksumError,
    boto.FlexibleChecksumError,
    HTTPError,
    OSError,
)

CREDENTIALS_ADVICE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile of ~/.aws, or a role, for the "
    "driver and for every Spark worker"
)
PERMISSIONS_ADVICE = (
    "allow s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload and s3:ListBucket; "
    "a sink also needs s3:ListMultipartUploadParts and s3:ListBucketMultipartUploads "
    "(docs/storage.md has the policy)"
)
_ASK_AGAIN = "check the network and the server, then start again"
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")


def range_of(content_range: str) -> tuple[int, int, int]:
    """Return which bytes came, from the first up to the end, and how many the object has.

    Raises:
        ForeignAnswerError: ``content_range`` does not say that.
    """
    found = _RANGE.fullmatch(content_range)
    if found is None:
        raise ForeignAnswerError(said=f"Content-Range is {content_range[:80]!r}")
    first, last, size_bytes = map(int, found.groups())
    return first, last + 1, size_bytes


def classify(error: Exception) -> Failure:
    """Classify ``error``, which is one of ``ERRORS``."""
    if isinstance(error, boto.ClientError):
        return _answered(error)
    if isinstance(error, ForeignAnswerError):
        advice = "check endpoint_url, and which proxy or login page is between it and this machine"
        return Failure(Kind.TRANSIENT, ErrorCode.STORE_IO, str(error), advice)
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    if isinstance(error, _UNKNOWN_CREDENTIALS):
        return Failure(Kind.REFUSED, ErrorCode.STORE_CREDENTIALS, said, CREDENTIALS_ADVICE)
    if isinstance(error, boto.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        advice = "set AWS_CA_BUNDLE to the certificate of the authority that signed the server's"
        return Failure(Kind.REFUSED, ErrorCode.STORE_CREDENTIALS, said, advice)
    if isinstance(error, _ON_THE_WAY):
        return Failure(Kind.TRANSIENT, ErrorCode.STORE_IO, said, _ASK_AGAIN)
    return Failure(Kind.REFUSED, ErrorCode.INVALID_OPTION, said, "correct the URI of the store")


def _answered(error: boto.ClientError) -> Failure:
    """The server answered, and not what was hoped for."""
    code, status, said = _facts(error)
    match status, code:
        case _ if code in _NO_BUCKET:
            return _refused(ErrorCode.NO_SUCH_BUCKET, said, "create the bucket, or correct the URI")
        case HTTPStatus.PRECONDITION_FAILED, _:
            return Failure(Kind.PRECONDITION_FAILED, ErrorCode.STORE_IO, said, _ASK_AGAIN)
        case HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, _:
            return Failure(Kind.OUT_OF_RANGE, ErrorCode.STORE_IO, said, _ASK_AGAIN)
        case _ if _is_throttled(code, status):
            advice = "spread the load, or use a longer checkpoint interval"
            return Failure(Kind.TRANSIENT, ErrorCode.STORE_THROTTLED, said, advice)
        case _ if code in _TRANSIENT:
            return Failure(Kind.TRANSIENT, ErrorCode.STORE_IO, said, _ASK_AGAIN)
        case HTTPStatus.CONFLICT, _:
            return Failure(Kind.CONFLICT, ErrorCode.STORE_IO, said, _ASK_AGAIN)
        case _ if code in _FULL or status == HTTPStatus.INSUFFICIENT_STORAGE:
            advice = "free some space or choose another store"
            return Failure(Kind.FULL, ErrorCode.STORE_FULL, said, advice)
        case _ if code in _ABSENT:
            return Failure(Kind.NOT_FOUND, ErrorCode.STORE_IO, said, _ASK_AGAIN)
        case _ if code in _CREDENTIALS:
            return _refused(ErrorCode.STORE_CREDENTIALS, said, CREDENTIALS_ADVICE)
        case _ if code in _REGION:
            advice = f"add {_region(error)} to the URI of the store"
            return _refused(ErrorCode.STORE_WRONG_REGION, said, advice)
        case _ if code in _DENIED:
            return _refused(ErrorCode.STORE_ACCESS_DENIED, said, PERMISSIONS_ADVICE)
        case _:
            return _rest(code, status, said)


def _is_throttled(code: str, status: int) -> bool:
    """By S3, or by the key service behind it (``KMS.ThrottlingException``)."""
    return code in _THROTTLED or "Throttling" in code or status == HTTPStatus.TOO_MANY_REQUESTS


def _rest(code: str, status: int, said: str) -> Failure:
    if code == "RequestTimeTooSkewed":
        return _refused(ErrorCode.STORE_CREDENTIALS, said, "set this machine's clock")
    if code == "InvalidObjectState":
        advice = "restore the archived object, and let no lifecycle rule archive checkpoints"
        return _refused(ErrorCode.STORE_ACCESS_DENIED, said, advice)
    if code.startswith("KMS."):
        advice = "let the key of the key service be used by this identity, or choose another"
        return _refused(ErrorCode.STORE_ACCESS_DENIED, said, advice)
    if status == HTTPStatus.NOT_IMPLEMENTED:
        advice = "use a server that implements conditional writes (docs/storage.md)"
        return _refused(ErrorCode.STORE_IGNORES_CONDITIONS, said, advice)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT:
        return Failure(Kind.TRANSIENT, ErrorCode.STORE_IO, said, _ASK_AGAIN)
    advice = "correct the parameters of the store's URI (docs/storage.md)"
    return _refused(ErrorCode.INVALID_OPTION, said, advice)


def _refused(code: ErrorCode, said: str, advice: str) -> Failure:
    return Failure(Kind.REFUSED, code, said, advice)


def _facts(error: boto.ClientError) -> tuple[str, int, str]:
    """Return the code, the status, and a description of both."""
    response: dict[str, Any] = dict(error.response)
    details: dict[str, Any] = response.get("Error", {})
    code = str(details.get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = str(details.get("Message", "")).strip().partition("\n")[0].rstrip(".")
    said = f"{status} {code}" if code != str(status) else code
    return code, status, f"{said}: {message}" if message else said


def _region(error: boto.ClientError) -> str:
    response: dict[str, Any] = dict(error.response)
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    found = response.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region")
    return f"region={found}" if found else "region=… (the bucket's)"
