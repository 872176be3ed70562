"""Options for keyed state and its checkpoints."""

from dataclasses import dataclass
from typing import get_args

from laminar_core.codec.arrow import Compression
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.plan.state_options import (
    MEMORY_BYTES_MIN,
    STATE_MEMORY_BYTES,
    BackendName,
    SnapshotMode,
    StateOptions,
)
from laminar_core.state.segment_chain import SEGMENTS_MAX
from laminar_core.units import Duration, duration_ms


@dataclass(frozen=True, slots=True)
class StateConfig:
    """State of all operators of a job. May be another one whenever the job is started."""

    snapshots: SnapshotMode = "incremental"
    """The contents of a checkpoint: the ``full`` state, the changes since the last one
    (``incremental``), or the changes since the last of many uploads in between (``changelog``).
    """
    changelog_interval: Duration = "1 second"
    """Between two uploads, with ``changelog``."""
    segments_max: int = SEGMENTS_MAX
    """Parts that the state of an operator in a worker is in; more are merged beside the job."""
    compression: Compression | None = None
    """Compression of state files: ``lz4`` or ``zstd``."""
    backend: BackendName = "memory"
    """Where the running job keeps the state of windows: in ``memory``, or on disk with ``rocksdb``,
    where it may be larger than memory.
    """
    memory_bytes: int = STATE_MEMORY_BYTES
    """Memory per worker for ``rocksdb``: its buffers, and rows that are gathered and merged."""
    directory: str | None = None
    """Folder for the working files of ``rocksdb``, on a local disk; by default Spark's local
    folders.
    """

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ConfigurationError: a value is out of range.
        """
        if self.snapshots not in get_args(SnapshotMode):
            modes = ", ".join(get_args(SnapshotMode))
            raise _invalid(f"snapshots is one of {modes}, not {self.snapshots!r}")
        if self.segments_max < 2:  # noqa: PLR2004 - two files are the least that can be merged
            raise _invalid(f"segments_max must be at least 2, not {self.segments_max}")
        if self.compression not in (None, *get_args(Compression)):
            raise _invalid(f"compression is None, 'lz4' or 'zstd', not {self.compression!r}")
        if self.backend not in get_args(BackendName):
            raise _invalid(f"backend is one of memory, rocksdb, not {self.backend!r}")
        if self.memory_bytes < MEMORY_BYTES_MIN:
            least = f"{MEMORY_BYTES_MIN // 1024**2}MiB"
            raise _invalid(f"memory_bytes must be at least {least}, not {self.memory_bytes}")
        self.options()

    def options(self) -> StateOptions:
        """Return the options for the runtime.

        Raises:
            ConfigurationError: the interval is not a valid duration.
        """
        return StateOptions(
            snapshots=self.snapshots,
            changelog_interval_ms=duration_ms(self.changelog_interval),
            segments_max=self.segments_max,
            compression=self.compression,
            backend=self.backend,
            memory_bytes=self.memory_bytes,
            directory=self.directory,
        )


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, f"StateConfig: {message}")
