"""An error that ends a worker, as a message to the coordinator.

An error of Laminar's names what it is about. Any other error was raised by the code of a user, or
beneath it, so the message has the operator, the place in that code, and the traceback.
"""

import sys
import traceback
from pathlib import PurePath

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    DamagedFileError,
    DataError,
    ErrorCode,
    LaminarError,
    LinkBrokenError,
    ProtocolError,
)
from laminar_core.link.messages import WorkerFailed
from laminar_core.protocol.types import Generation
from laminar_core.records.damage import DamagedFile
from laminar_core.worker.imports import not_importable
from laminar_core.worker.life import AtWork

LINE_LENGTH_MAX = 1_000
"""Characters of the line of another error than Laminar's, which may show whole tables."""
TRACEBACK_LENGTH_MAX = 20_000
"""Characters of a traceback; of a longer one, such as a recursion's, the beginning and the end."""

_RESTART_WOULD_MEET_IT_AGAIN = (ConfigurationError, DataError, ProtocolError)
_NOT_OF_USERS = sys.stdlib_module_names | {"laminar_core", "numpy", "pyarrow", "pyspark"}
_INSTALLED = {"site-packages", "dist-packages"}


def failure(
    generation: Generation, worker: int, error: Exception, at_work: AtWork | None = None
) -> WorkerFailed:
    """Return the message that says why a worker ends, and whether a restart could help.

    ``at_work``: the activity of the worker when it happened.
    """
    if isinstance(error, ImportError) and not isinstance(error, LaminarError):
        error = not_importable(f"{type(error).__name__}: {error}")
    code = error.code if isinstance(error, LaminarError) else ErrorCode.WORKER_FAILED
    is_ours = isinstance(error, LaminarError)
    helps = not isinstance(error, _RESTART_WOULD_MEET_IT_AGAIN)
    return WorkerFailed(
        generation=generation,
        worker=worker,
        code=code,
        reason=str(error) if is_ours else _told(error, at_work),
        traceback="" if is_ours else _traceback_of(error),
        restart_helps=helps or isinstance(error, CorruptCheckpointError),
        links=error.links if isinstance(error, LinkBrokenError) else (),
        damaged_file=(
            DamagedFile(path=error.path, problem=error.problem)
            if isinstance(error, DamagedFileError)
            else None
        ),
    )


def _told(error: Exception, at_work: AtWork | None) -> str:
    """Return one line: the operator, the error, and where in the user's code it was raised."""
    operator = f"operator {at_work.operator_id}: " if at_work and at_work.operator_id else ""
    try:
        lines = str(error).split("\n")
    except Exception:  # noqa: BLE001 - it is the user's, and its class says something, too
        lines = []
    first = next((line.strip() for line in lines if line.strip()), "")
    said = f"{operator}{type(error).__name__}: {first[:LINE_LENGTH_MAX]}{_place_of(error)}"
    return _encodable(said)


def _place_of(error: Exception) -> str:
    """Return the innermost line of the user's code, in brackets; empty if there is none.

    If all of that code is installed as packages are, it is in the file that was called first.
    """
    theirs = [
        (frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _NOT_OF_USERS
    ]
    own = [each for each in theirs if not _INSTALLED & {*PurePath(each[0].co_filename).parts}]
    own = own or [each for each in theirs if each[0].co_filename == theirs[0][0].co_filename]
    if not own:
        return ""
    code, line = own[-1]
    return f" ({code.co_filename}, line {line}, in {code.co_name})"


def _traceback_of(error: Exception) -> str:
    text = _encodable("".join(traceback.format_exception(error)).rstrip())
    if len(text) <= TRACEBACK_LENGTH_MAX:
        return text
    half = TRACEBACK_LENGTH_MAX // 2
    return f"{text[:half]}\n…\n{text[-half:]}"


def _encodable(text: str) -> str:
    """Show what UTF-8 does not have, such as bytes of a file name, as it is written in Python."""
    return text.encode("utf-8", "backslashreplace").decode()
