"""An error that ends a worker, as a message to the coordinator.

An error of Laminar's names what it is about. Any other error was raised by the code of a user, or
beneath it, so the message has the operator, the place in that code, and the traceback.
"""

import sysconfig
import traceback
from pathlib import Path

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
"""Characters of a traceback; of a longer one, such as a recursion's, the end."""

_RESTART_WOULD_MEET_IT_AGAIN = (ConfigurationError, DataError, ProtocolError)
_NOT_OF_USERS = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


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
    first, *_ = str(error).splitlines() or [""]
    return f"{operator}{type(error).__name__}: {first[:LINE_LENGTH_MAX]}{_place_of(error)}"


def _place_of(error: Exception) -> str:
    """Return the innermost line of the user's code, in brackets; empty if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_compiled = frame.filename.endswith((".pyx", ".pxi"))
        if not is_compiled and not frame.filename.startswith(("<frozen", *_NOT_OF_USERS)):
            return f" ({frame.filename}, line {frame.lineno}, in {frame.name})"
    return ""


def _traceback_of(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).rstrip()[-TRACEBACK_LENGTH_MAX:]
