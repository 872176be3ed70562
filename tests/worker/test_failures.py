"""Whether a restart helps follows from the error, and its facts are fields of the message."""

from collections.abc import Callable

import pyarrow as pa
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
from laminar_core.worker.failures import TRACEBACK_LENGTH_MAX, failure
from laminar_core.worker.life import AtWork

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


def of_user(text: str) -> None:
    raise ValueError(text)


def raised(function: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as info:  # noqa: PT011 - which one, the function says
        function()
    return info.value


def test_an_error_of_a_user_has_the_operator_and_the_place() -> None:
    message = failure(Generation(3), 1, raised(lambda: of_user("so\nor so")), AtWork(0, "slow", 0))
    line = of_user.__code__.co_firstlineno + 1
    assert message.reason == f"operator slow: ValueError: so ({__file__}, line {line}, in of_user)"
    assert message.traceback.startswith("Traceback (most recent call last):")
    assert message.traceback.endswith("ValueError: so\nor so")


def test_the_place_of_an_error_in_a_library_is_where_the_user_called_it() -> None:
    error = raised(lambda: pa.array(["a"]).cast(pa.int64()))
    reason = failure(Generation(3), 1, error).reason
    assert reason.endswith(", in <lambda>)")
    assert reason.startswith("ArrowInvalid: Failed to parse string: 'a'")


def test_an_error_without_a_line_of_a_user_has_no_place() -> None:
    error = raised(lambda: of_user("so"))
    assert error.__traceback__ is not None
    error.__traceback__ = None
    assert failure(Generation(3), 1, error).reason == "ValueError: so"


def test_endless_texts_are_cut() -> None:
    def deep() -> None:
        deep()

    message = failure(Generation(3), 1, raised(lambda: of_user("a" * 5_000_000)))
    assert len(message.reason) < 1_500
    message = failure(Generation(3), 1, raised(deep))
    assert message.traceback.endswith("RecursionError: maximum recursion depth exceeded")
    assert len(message.traceback) <= TRACEBACK_LENGTH_MAX


def test_an_error_of_laminar_says_itself_what_it_is_about() -> None:
    message = failure(Generation(3), 1, DataError(CODE, "column a is null"), AtWork(0, "slow", 0))
    assert (message.reason, message.traceback) == ("column a is null", "")


def test_a_damaged_file_is_named() -> None:
    error = DamagedFileError(ErrorCode.DIGEST_DIFFERS, "a file is damaged", "a/b.seg", "digest")
    damaged = failure(Generation(3), 1, error).damaged_file
    assert damaged is not None
    assert damaged.path == "a/b.seg"
