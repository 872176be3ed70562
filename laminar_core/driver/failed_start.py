"""Decide how to record a generation that could not be started, by the type of the error.

Monitoring depends on the record. A generation that was *refused* waits for a person: the request
has to change. One that *failed* is started again, by its driver, or by a program that finds the
driver gone. So only a configuration error is a refusal, and every other exception, of any library,
is a failure.
"""

from dataclasses import dataclass
from typing import Literal

from laminar_core.errors import (
    CheckpointDeclined,
    ConfigurationError,
    CorruptCheckpointError,
    DataError,
    ErrorCode,
    FencedError,
    JobFailedError,
    LaminarError,
    LinkBrokenError,
    ProtocolError,
    StorageUnavailable,
)

Ending = Literal["finished", "stopped", "cancelled", "failed", "refused"]
"""How a generation ended, by its record in the store."""

Reaction = Literal["restart", "raise", "give-way"]
"""``restart``: follow the restart strategy. ``give-way``: another driver owns the job."""


@dataclass(frozen=True, slots=True)
class FailedStart:
    """The record to write, if any, and the reaction."""

    ending: Ending | None
    reaction: Reaction


_REFUSED = FailedStart("refused", "raise")
_FATAL = FailedStart("failed", "raise")
_AGAIN = FailedStart("failed", "restart")
_SUCCEEDED = FailedStart(None, "give-way")

_BY_TYPE: dict[type[Exception], FailedStart] = {
    Exception: _FATAL,
    OSError: _AGAIN,  # No descriptors, no space for a socket, a connection that was reset.
    MemoryError: _AGAIN,
    LaminarError: _FATAL,
    ConfigurationError: _REFUSED,
    DataError: _FATAL,
    StorageUnavailable: _AGAIN,
    CorruptCheckpointError: _FATAL,
    CheckpointDeclined: _AGAIN,
    FencedError: _SUCCEEDED,
    JobFailedError: _AGAIN,
    LinkBrokenError: _AGAIN,
    ProtocolError: _FATAL,
}
"""The nearest base of an error decides. Every class below ``LaminarError`` is here or inherits."""


def failed_start(error: Exception, *, asked_for: bool) -> FailedStart:
    """Decide by the nearest base class of ``error``.

    ``asked_for``: a user requested this start and gets the error as the answer. A driver that
    restarts its job by itself has no such user, so a configuration error counts as a failure:
    expired credentials, a missing bucket.
    """
    decided = next(_BY_TYPE[base] for base in type(error).__mro__ if base in _BY_TYPE)
    return _FATAL if decided is _REFUSED and not asked_for else decided


def start_error_code(error: Exception) -> ErrorCode:
    """Return the code that the event of the failed generation carries."""
    return error.code if isinstance(error, LaminarError) else ErrorCode.START_FAILED


def start_error_reason(error: Exception) -> str:
    """Return one line that names the type of an error which is not Laminar's own.

    >>> start_error_reason(OSError(28, "No space left on device"))
    'the start failed: OSError: [Errno 28] No space left on device'
    """
    if isinstance(error, LaminarError):
        return str(error)
    first = next(iter(str(error).splitlines()), "")
    return f"the start failed: {type(error).__name__}: {first}".removesuffix(": ")
