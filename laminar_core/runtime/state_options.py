"""How state is kept and written."""

from dataclasses import dataclass
from typing import Literal

from laminar_core.state.arrow_codec import Compression
from laminar_core.state.chain import SEGMENTS_MAX

SnapshotMode = Literal["full", "incremental", "changelog"]
"""What a checkpoint writes of keyed state: all of it, what changed since the one before, or the
last of what was uploaded continuously. A savepoint is always full."""

CHANGELOG_INTERVAL_MS = 1_000


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The same for all operators of a job; travels to the workers."""

    snapshots: SnapshotMode = "incremental"
    changelog_interval_ms: int = CHANGELOG_INTERVAL_MS
    """Between two uploads of changes, in the mode ``changelog``."""
    segments_max: int = SEGMENTS_MAX
    """Files that make up the state of one subtask, before they are merged in the background."""
    compression: Compression | None = None

    @property
    def incremental(self) -> bool:
        """A checkpoint builds on what was written before it."""
        return self.snapshots != "full"
