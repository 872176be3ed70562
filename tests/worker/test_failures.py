"""Whether a restart helps follows from the error, and its facts are fields of the message."""

import pytest

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    DamagedFileError,
    DataError,
    ErrorCode,
    FencedError,
    ProtocolError,
)
from laminar_core.protocol.types import Generation
from laminar_core.worker.failures import failure

CODE = ErrorCode.WRONG_SCHEMA


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (ConfigurationError(CODE, "a"), False),
        (DataError(CODE, "a"), False),
        (ProtocolError(CODE, "a"), False),
        (CorruptCheckpointError(CODE, "a"), True),
        (FencedError(CODE, "a"), True),
        (ValueError("a"), True),
    ],
)
def test_a_restart_does_not_help_against_what_it_would_meet_again(
    error: Exception,
    helps: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    message = failure(Generation(3), 1, error)
    assert (message.generation, message.worker, message.restart_helps) == (3, 1, helps)


def test_an_error_of_somebody_else_is_named_by_its_class() -> None:
    message = failure(Generation(3), 1, ValueError("so"))
    assert (message.code, message.reason) == (ErrorCode.WORKER_FAILED, "ValueError: so")


def test_a_damaged_file_is_named() -> None:
    error = DamagedFileError(ErrorCode.DIGEST_DIFFERS, "a file is damaged", "a/b.seg", "digest")
    damaged = failure(Generation(3), 1, error).damaged_file
    assert damaged is not None
    assert damaged.path == "a/b.seg"
