"""The versions of what driver and workers have to have in common."""

import platform
from functools import cache

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from laminar_core._version import __version__
from laminar_core.errors import ConfigurationError, ErrorCode

PYTHON_PARTS, ARROW_PARTS = 2, 1
"""Numbers of a version that must be equal: Python 3.11.x with 3.11.y, pyarrow 21.x with 21.y."""


class Versions(BaseModel):
    """Versions of one process. Laminar's must be equal; of the others only the first numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    laminar: str
    python: str
    pyarrow: str


@cache
def own_versions() -> Versions:
    """Return the versions of this process."""
    return Versions(
        laminar=__version__, python=platform.python_version(), pyarrow=str(pa.__version__)
    )


def require_same(driver: Versions, worker: Versions, host: str) -> None:
    """Verify that a worker on ``host`` runs what the driver runs.

    Raises:
        ConfigurationError: it does not (VERSIONS_DIFFER).
    """
    differing = [
        f"{name} {theirs} and the driver {ours}"
        for name, ours, theirs, parts in (
            ("Laminar", driver.laminar, worker.laminar, None),
            ("Python", driver.python, worker.python, PYTHON_PARTS),
            ("pyarrow", driver.pyarrow, worker.pyarrow, ARROW_PARTS),
        )
        if ours.split(".")[:parts] != theirs.split(".")[:parts]
    ]
    if differing:
        raise ConfigurationError(
            ErrorCode.VERSIONS_DIFFER,
            f"host {host} has {', '.join(differing)}: install the driver's versions on every host, "
            "or send one environment with the job (--conf spark.archives)",
        )
