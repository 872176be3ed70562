"""Errors of obstore are classified by texts that versions 0.11 and 0.12 wrote."""

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError

from laminar_core.errors import ErrorCode
from laminar_core.objectstore.azure_errors import classify
from laminar_core.objectstore.sending import Kind

SENT = "Error performing PUT https://a.blob.core.windows.net/c/k?sig=hidden in 3.2ms - "


def answered(status: int, code: str = "") -> GenericError:
    body = f'<?xml version="1.0"?>\n<Error>\n  <Code>{code}</Code>\n</Error>' if code else ""
    return GenericError(f"{SENT}Server returned non-2xx status code: {status} Words: {body}")


@pytest.mark.parametrize(
    ("status", "code", "kind", "error"),
    [
        (404, "BlobNotFound", Kind.NOT_FOUND, ErrorCode.STORE_IO),
        (404, "", Kind.NOT_FOUND, ErrorCode.STORE_IO),
        (404, "ContainerNotFound", Kind.REFUSED, ErrorCode.NO_SUCH_BUCKET),
        (409, "BlobAlreadyExists", Kind.PRECONDITION_FAILED, ErrorCode.STORE_IO),
        (412, "ConditionNotMet", Kind.PRECONDITION_FAILED, ErrorCode.STORE_IO),
        (416, "InvalidRange", Kind.OUT_OF_RANGE, ErrorCode.STORE_IO),
        (409, "ContainerBeingDeleted", Kind.TRANSIENT, ErrorCode.STORE_IO),
        (409, "", Kind.TRANSIENT, ErrorCode.STORE_IO),
        (409, "BlobArchived", Kind.REFUSED, ErrorCode.STORE_ACCESS_DENIED),
        (500, "InternalError", Kind.TRANSIENT, ErrorCode.STORE_IO),
        (503, "ServerBusy", Kind.TRANSIENT, ErrorCode.STORE_THROTTLED),
        (429, "", Kind.TRANSIENT, ErrorCode.STORE_THROTTLED),
        (507, "", Kind.FULL, ErrorCode.STORE_FULL),
        (401, "NoAuthenticationInformation", Kind.REFUSED, ErrorCode.STORE_CREDENTIALS),
        (403, "AuthenticationFailed", Kind.REFUSED, ErrorCode.STORE_CREDENTIALS),
        (403, "AuthorizationPermissionMismatch", Kind.REFUSED, ErrorCode.STORE_ACCESS_DENIED),
        (501, "NotImplemented", Kind.REFUSED, ErrorCode.STORE_IGNORES_CONDITIONS),
        (400, "InvalidHeaderValue", Kind.REFUSED, ErrorCode.INVALID_OPTION),
    ],
)
def test_an_answer_is_classified_by_its_status_and_code(status, code, kind, error):
    failure = classify(answered(status, code))
    assert (failure.kind, failure.code) == (kind, error)
    assert failure.said == f"{status} {code}".strip()


def test_a_class_of_obstore_does_not_decide_that_something_exists():
    text = str(answered(409, "ContainerBeingDeleted"))
    assert classify(AlreadyExistsError(text)).kind is Kind.TRANSIENT


def test_a_deletion_in_a_batch_has_its_status_elsewhere():
    text = "Object at location a not found: Bulk delete request failed for key a: … (code: 404)"
    assert classify(FileNotFoundError(text)).kind is Kind.NOT_FOUND


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Server returned non-2xx status code: 403 Forbidden: ", Kind.REFUSED),
        ("Server returned non-2xx status code: 429 Too Many: ", Kind.TRANSIENT),
        ("Server returned non-2xx status code: 503 Unavailable: ", Kind.TRANSIENT),
        ("HTTP error: error sending request", Kind.TRANSIENT),
    ],
)
def test_a_token_that_cannot_be_had_is_about_credentials(said, kind):
    error = GenericError(f"Generic MicrosoftAzure error: Error performing token request: {said}")
    failure = classify(error)
    assert (failure.kind, failure.code) == (kind, ErrorCode.STORE_CREDENTIALS)
    assert "AZURE_STORAGE_ACCOUNT_KEY" in failure.advice


def test_no_answer_is_no_answer_and_no_signature_is_shown():
    failure = classify(GenericError(f"{SENT}HTTP error: error sending request\n\nDebug source:\n?"))
    assert (failure.kind, failure.code) == (Kind.TRANSIENT, ErrorCode.STORE_IO)
    assert failure.said.endswith("error sending request")
    assert "hidden" not in failure.said


def test_a_certificate_that_is_not_trusted_is_a_mistake_to_correct():
    error = GenericError(f"{SENT}HTTP error: invalid peer certificate: UnknownIssuer")
    assert classify(error).kind is Kind.REFUSED
