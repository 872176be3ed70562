"""How state is kept and written."""

from dataclasses import dataclass
from typing import Literal

from laminar_core.codec.arrow import Compression
from laminar_core.state.segment_chain import SEGMENTS_MAX

SnapshotMode = Literal["full", "incremental", "changelog"]
"""What a checkpoint writes of keyed state: all of it, what changed since the one before, or the
last of what was uploaded continuously. A savepoint is always full."""

CHANGELOG_INTERVAL_MS = 1_000

BackendName = Literal["memory", "rocksdb"]
"""Where keyed state is while the job runs; checkpoints are the same."""

STATE_MEMORY_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The same for all operators of a job; travels to the workers."""

    snapshots: SnapshotMode = "incremental"
    changelog_interval_ms: int = CHANGELOG_INTERVAL_MS
    """Between two uploads of changes, in the mode ``changelog``."""
    segments_max: int = SEGMENTS_MAX
    """Files that make up the state of one subtask, before they are merged in the background."""
    compression: Compression | None = None
    """Of state in the store, and of working files."""
    backend: BackendName = "memory"
    memory_bytes: int = STATE_MEMORY_BYTES
    """Of one worker, for a backend that keeps its state elsewhere."""
    directory: str | None = None
    """Of working files; None: Spark's local folders, or else that of temporary files."""
    simulated_files: bool = False
    """Working files are in memory, for simulations."""

    @property
    def incremental(self) -> bool:
        """A checkpoint builds on what was written before it."""
        return self.snapshots != "full"
