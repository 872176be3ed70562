"""Whether a restart helps follows from the error, and its facts are fields of the message."""

import os
from collections.abc import Callable
from typing import Any

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
from laminar_core.link.messages import decode_to_coordinator, encode
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
    assert len(message.traceback) <= TRACEBACK_LENGTH_MAX + 3
    message = failure(Generation(3), 1, raised(lambda: of_user("table\n" * 40_000)))
    assert ", in of_user" in message.traceback


def test_any_text_can_be_sent() -> None:
    name = os.fsdecode(b"caf\xe9.csv")

    def opened() -> None:
        cause = OSError(f"cannot open {name}")
        raise ValueError(f"\n\nbad input {name}\nat once") from cause

    message = failure(Generation(3), 1, raised(opened))
    assert message.reason.startswith(r"ValueError: bad input caf\udce9.csv (")
    assert r"cannot open caf\udce9.csv" in message.traceback
    assert decode_to_coordinator(encode(message)) == message


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_without_a_text_is_named_by_its_class() -> None:
    assert failure(Generation(3), 1, MuteError()).reason == "MuteError: "


def installed(package: str, source: str, **names: object) -> Callable[[], object]:
    """Return the function ``f`` of a package that is installed."""
    scope: dict[str, Any] = {"__name__": f"{package}.core", **names}
    exec(compile(source, f"/v/site-packages/{package}/core.py", "exec"), scope)
    return scope["f"]


def test_an_installed_package_of_a_user_is_named_where_it_calls_others() -> None:
    frames = installed("frames", "def f():\n    raise KeyError('a')\n")
    company = installed("company", "def g():\n    frames()\n\ndef f():\n    g()\n", frames=frames)
    error = raised(company)
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # In a worker, Laminar calls it.
    said = failure(Generation(3), 1, error).reason
    assert said == "KeyError: 'a' (/v/site-packages/company/core.py, line 2, in g)"
    assert failure(Generation(3), 1, raised(company)).reason.startswith(
        f"KeyError: 'a' ({__file__}, "
    )


def test_an_error_of_laminar_says_itself_what_it_is_about() -> None:
    message = failure(Generation(3), 1, DataError(CODE, "column a is null"), AtWork(0, "slow", 0))
    assert (message.reason, message.traceback) == ("column a is null", "")


def test_a_damaged_file_is_named() -> None:
    error = DamagedFileError(ErrorCode.DIGEST_DIFFERS, "a file is damaged", "a/b.seg", "digest")
    damaged = failure(Generation(3), 1, error).damaged_file
    assert damaged is not None
    assert damaged.path == "a/b.seg"
