"""Options for state and its checkpoints, as workers need them."""

from dataclasses import dataclass
from typing import Literal

from laminar_core.codec.envelope import Compression
from laminar_core.state.segment_chain import SEGMENTS_MAX

SnapshotMode = Literal["full", "incremental", "changelog"]
"""The keyed state in a checkpoint: all of it, the changes since the previous one, or the
last of continuous uploads. A savepoint is always full.
"""

CHANGELOG_INTERVAL_MS = 1_000

BackendName = Literal["memory", "rocksdb"]
"""Where the running job keeps keyed state; checkpoints do not depend on it."""

STATE_MEMORY_BYTES = 256 * 1024 * 1024
MEMORY_BYTES_MIN = 16 * 1024 * 1024
"""With less, RocksDB would write many tiny files."""


@dataclass(frozen=True, slots=True)
class StateOptions:
    """State options for all operators of a job; sent to the workers."""

    snapshots: SnapshotMode = "incremental"
    changelog_interval_ms: int = CHANGELOG_INTERVAL_MS
    """Between two uploads of changes, in the mode ``changelog``."""
    segments_max: int = SEGMENTS_MAX
    """Files that make up the state of one subtask, before they are merged in the background."""
    compression: Compression | None = None
    """Compression of state in the store, and of working files."""
    backend: BackendName = "memory"
    memory_bytes: int = STATE_MEMORY_BYTES
    """Memory of one worker, for a backend that keeps its state on disk."""
    directory: str | None = None
    """Folder for working files; None: Spark's local folders, or else the temporary folder."""
    simulated_files: bool = False
    """Working files are in memory, for simulations."""

    @property
    def incremental(self) -> bool:
        """Whether a checkpoint builds on earlier ones."""
        return self.snapshots != "full"
