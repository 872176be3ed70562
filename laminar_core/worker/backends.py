"""Open a worker's state backend, and manage the folder of its working files.

A folder belongs to one worker and one generation. State is never restored from it, so it is removed
at the end; the next worker on the same machine removes folders of killed workers
(``private_folders``).
"""

import importlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.host.extras import needs_extra
from laminar_core.host.private_folders import PrivateFolder
from laminar_core.plan.state_options import StateOptions
from laminar_core.state.chunks import MemoryBackend, Shelf, StateBackend
from laminar_core.worker.deployment import Deployment

if TYPE_CHECKING:
    from laminar_core.state.rocks_chunks import RocksBackend

SPARK_FOLDERS = "SPARK_LOCAL_DIRS"
"""Set by Spark in every Python worker: its own folders, separated by commas."""

_FILES = "rocksdb"


def require_backend(options: StateOptions) -> None:
    """Verify that this process can keep state where the options say.

    Raises:
        MissingExtraError: in RocksDB, and its package is not installed.
    """
    if options.backend == "rocksdb":
        with needs_extra("rocksdb", "jobs with state in RocksDB"):
            importlib.import_module("rocksdict")


def open_backend(deployment: Deployment, subtask_index: int) -> StateBackend:
    """Return the backend that the job's options name.

    It creates files only when state needs them.

    Raises:
        MissingExtraError: the package for it is not installed on this machine.
    """
    if deployment.state.backend == "memory":
        return MemoryBackend()
    require_backend(deployment.state)
    prefix = f"{deployment.job}-{deployment.generation}-{subtask_index}-"
    return WorkingState(working_root(deployment.state, subtask_index), prefix, deployment.state)


def working_root(options: StateOptions, subtask_index: int) -> Path:
    """Return the folder for this user's workers; workers take turns on Spark's local disks."""
    folders = os.environ.get(SPARK_FOLDERS, "").split(",")
    default = folders[subtask_index % len(folders)] or tempfile.gettempdir()
    return Path(options.directory or default) / f"laminar-state-{os.getuid()}"


class WorkingState:
    """RocksDB in a folder of its own, from the first need of it until ``close``."""

    def __init__(self, root: Path, prefix: str, options: StateOptions) -> None:
        self._root = root
        self._prefix = prefix
        self._options = options
        self._files: RocksBackend | None = None
        self._folder: PrivateFolder | None = None

    def shelf(self, schema: pa.Schema) -> Shelf:
        """Make room for tables of ``schema``.

        Raises:
            StorageUnavailable: the folder cannot be made (WORKING_STATE).
        """
        if self._files is None:
            # Imported by those who need it: RocksDB is an extra.
            from laminar_core.state.rocks_chunks import RocksBackend  # noqa: PLC0415

            try:
                self._folder = PrivateFolder.open(self._root, self._prefix)
            except OSError as error:
                raise StorageUnavailable(
                    ErrorCode.WORKING_STATE,
                    f"no folder for the working files of state can be made in {self._root} "
                    f"({error.strerror}): name another one (directory of StateConfig, "
                    "--state-directory)",
                ) from error
            self._files = RocksBackend(
                self._folder.path / _FILES,
                self._options.memory_bytes,
                self._options.compression,
                in_memory_files=self._options.simulated_files,
            )
        return self._files.shelf(schema)

    def close(self) -> None:
        """Remove all files."""
        if self._files is not None:
            self._files.close()
            self._files = None
        if self._folder is not None:
            self._folder.close()
