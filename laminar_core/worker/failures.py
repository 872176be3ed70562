"""An error that ends a worker, as a message to the coordinator."""

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

_RESTART_WOULD_MEET_IT_AGAIN = (ConfigurationError, DataError, ProtocolError)


def failure(generation: Generation, worker: int, error: Exception) -> WorkerFailed:
    """Return the message that says why a worker ends, and whether a restart could help."""
    if isinstance(error, ImportError) and not isinstance(error, LaminarError):
        error = not_importable(f"{type(error).__name__}: {error}")
    code = error.code if isinstance(error, LaminarError) else ErrorCode.WORKER_FAILED
    said = str(error) if isinstance(error, LaminarError) else f"{type(error).__name__}: {error}"
    helps = not isinstance(error, _RESTART_WOULD_MEET_IT_AGAIN)
    return WorkerFailed(
        generation=generation,
        worker=worker,
        code=code,
        reason=said,
        restart_helps=helps or isinstance(error, CorruptCheckpointError),
        links=error.links if isinstance(error, LinkBrokenError) else (),
        damaged_file=(
            DamagedFile(path=error.path, problem=error.problem)
            if isinstance(error, DamagedFileError)
            else None
        ),
    )
