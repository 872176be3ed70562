import pytest
from botocore import exceptions as boto
from urllib3.exceptions import ProtocolError

from laminar_core.errors import ErrorCode
from laminar_core.objectstore.s3_errors import classify
from laminar_core.objectstore.sending import Kind


def answered(status: int, code: str = "", **details: str) -> boto.ClientError:
    response = {
        "Error": {"Code": code or str(status), **details},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
    }
    return boto.ClientError(response, "PutObject")


class TestAnswers:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (answered(412, "PreconditionFailed"), Kind.PRECONDITION_FAILED),
            (answered(412), Kind.PRECONDITION_FAILED),
            (answered(416, "InvalidRange"), Kind.OUT_OF_RANGE),
            (answered(409, "ConditionalRequestConflict"), Kind.CONFLICT),
            (answered(409, "ConcurrentModification"), Kind.CONFLICT),
            (answered(409, "OperationAborted"), Kind.TRANSIENT),
            (answered(404, "NoSuchKey"), Kind.NOT_FOUND),
            (answered(404, "NoSuchUpload"), Kind.NOT_FOUND),
            (answered(404), Kind.NOT_FOUND),
            (answered(404, "NoSuchBucket"), Kind.REFUSED),
            (answered(500, "InternalError"), Kind.TRANSIENT),
            (answered(200, "InternalError"), Kind.TRANSIENT),
            (answered(502), Kind.TRANSIENT),
            (answered(503, "SlowDown"), Kind.TRANSIENT),
            (answered(429, "TooManyRequests"), Kind.TRANSIENT),
            (answered(400, "RequestTimeout"), Kind.TRANSIENT),
            (answered(400, "BadDigest"), Kind.TRANSIENT),
            (answered(400, "XAmzContentSHA256Mismatch"), Kind.TRANSIENT),
            (answered(400, "KMS.ThrottlingException"), Kind.TRANSIENT),
            (answered(307, "TemporaryRedirect"), Kind.TRANSIENT),
            (answered(507, "XMinioStorageFull"), Kind.FULL),
            (answered(403, "QuotaExceeded"), Kind.FULL),
            (answered(403, "AccessDenied"), Kind.REFUSED),
            (answered(501, "NotImplemented"), Kind.REFUSED),
            (answered(400, "InvalidArgument"), Kind.REFUSED),
        ],
    )
    def test_what_to_do(self, error, kind):
        assert classify(error).kind is kind

    @pytest.mark.parametrize(
        ("error", "code", "advice"),
        [
            (answered(403, "InvalidAccessKeyId"), ErrorCode.STORE_CREDENTIALS, "AWS_ACCESS_KEY_ID"),
            (answered(403, "SignatureDoesNotMatch"), ErrorCode.STORE_CREDENTIALS, "a role"),
            (answered(400, "ExpiredToken"), ErrorCode.STORE_CREDENTIALS, "every Spark worker"),
            (answered(403, "RequestTimeTooSkewed"), ErrorCode.STORE_CREDENTIALS, "clock"),
            (answered(403, "AccessDenied"), ErrorCode.STORE_ACCESS_DENIED, "s3:ListBucket"),
            (answered(403), ErrorCode.STORE_ACCESS_DENIED, "s3:PutObject"),
            (answered(403), ErrorCode.STORE_ACCESS_DENIED, "s3:ListMultipartUploadParts"),
            (answered(403), ErrorCode.STORE_ACCESS_DENIED, "s3:ListBucketMultipartUploads"),
            (answered(400, "KMS.DisabledException"), ErrorCode.STORE_ACCESS_DENIED, "the key"),
            (answered(403, "InvalidObjectState"), ErrorCode.STORE_ACCESS_DENIED, "lifecycle"),
            (answered(404, "NoSuchBucket"), ErrorCode.NO_SUCH_BUCKET, "create the bucket"),
            (
                answered(301, "PermanentRedirect", Region="eu-west-1"),
                ErrorCode.STORE_WRONG_REGION,
                "add region=eu-west-1 to",
            ),
            (answered(501, "NotImplemented"), ErrorCode.STORE_IGNORES_CONDITIONS, "conditional"),
            (answered(503, "SlowDown"), ErrorCode.STORE_THROTTLED, "longer checkpoint interval"),
            (answered(507), ErrorCode.STORE_FULL, "free some space"),
            (answered(400, "InvalidStorageClass"), ErrorCode.INVALID_OPTION, "URI"),
        ],
    )
    def test_what_it_is_and_what_helps(self, error, code, advice):
        failure = classify(error)
        assert failure.code is code
        assert advice in failure.advice

    def test_what_the_server_said_is_one_line(self):
        error = answered(403, "AccessDenied", Message="not\nyou.")
        assert classify(error).said == "403 AccessDenied: not"
        assert classify(answered(403)).said == "403"


class TestNoAnswer:
    @pytest.mark.parametrize(
        ("error", "kind", "code"),
        [
            (boto.EndpointConnectionError(endpoint_url="x"), Kind.TRANSIENT, ErrorCode.STORE_IO),
            (boto.ConnectTimeoutError(endpoint_url="x"), Kind.TRANSIENT, ErrorCode.STORE_IO),
            (boto.ReadTimeoutError(endpoint_url="x"), Kind.TRANSIENT, ErrorCode.STORE_IO),
            (boto.ConnectionClosedError(endpoint_url="x"), Kind.TRANSIENT, ErrorCode.STORE_IO),
            (
                boto.IncompleteReadError(actual_bytes=1, expected_bytes=2),
                Kind.TRANSIENT,
                ErrorCode.STORE_IO,
            ),
            (boto.ResponseStreamingError(error="x"), Kind.TRANSIENT, ErrorCode.STORE_IO),
            (boto.FlexibleChecksumError(error_msg="x"), Kind.TRANSIENT, ErrorCode.STORE_IO),
            (ProtocolError("x"), Kind.TRANSIENT, ErrorCode.STORE_IO),
            (ConnectionResetError("x"), Kind.TRANSIENT, ErrorCode.STORE_IO),
            (boto.NoCredentialsError(), Kind.REFUSED, ErrorCode.STORE_CREDENTIALS),
            (boto.ProfileNotFound(profile="x"), Kind.REFUSED, ErrorCode.STORE_CREDENTIALS),
            (
                boto.SSLError(endpoint_url="x", error="CERTIFICATE_VERIFY_FAILED"),
                Kind.REFUSED,
                ErrorCode.STORE_CREDENTIALS,
            ),
            (boto.ParamValidationError(report="x"), Kind.REFUSED, ErrorCode.INVALID_OPTION),
        ],
    )
    def test_what_to_do(self, error, kind, code):
        failure = classify(error)
        assert (failure.kind, failure.code) == (kind, code)
        assert type(error).__name__ in failure.said
