"""Report what a slow checkpoint waits for at each subtask.

The report is bounded, whatever the number of channels, and sent at most once a second. With it the
coordinator can name what an expired checkpoint waited for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from laminar_core.link.messages import WaitingChannel, WaitingVertex
from laminar_core.protocol.types import CheckpointId
from laminar_core.protocol.waiting import WaitsFor, waiting
from laminar_core.worker.snapshots import WorkerPart
from laminar_core.worker.task import Task

REPORTED_AFTER_MS = 1_000.0
"""A checkpoint that is complete by then is not reported, and one that is not once a second."""

VERTICES_MAX = 16
CHANNELS_MAX = 4


@dataclass(frozen=True, slots=True)
class Waits:
    """The oldest checkpoint under way in a worker."""

    checkpoint_id: CheckpointId
    vertices: tuple[WaitingVertex, ...]


def waits_of(tasks: Iterable[Task], parts: Mapping[CheckpointId, WorkerPart]) -> Waits | None:
    """Return what the oldest checkpoint under way waits for here; None if there is none."""
    found: dict[CheckpointId, dict[str, WaitingVertex]] = {}
    for task in tasks:
        vertex_id = task.parts.vertex_id
        for checkpoint_id, part in parts.items():
            if part.lacks_state_of(vertex_id):
                upload = WaitingVertex(vertex_id=vertex_id, waits_for=WaitsFor.UPLOAD)
                found.setdefault(checkpoint_id, {})[vertex_id] = upload
        now = waiting(task.protocol_state)
        if now is not None:
            shown = [task.parts.senders.get(c) for c in sorted(now.channels)[:CHANNELS_MAX]]
            channels = tuple(WaitingChannel(upstream=s[0], sender=s[1]) for s in shown if s)
            found.setdefault(now.checkpoint_id, {})[vertex_id] = WaitingVertex(
                vertex_id=vertex_id,
                waits_for=now.waits_for,
                channels=channels,
                channel_count=len(now.channels),
            )
    if not found:
        return None
    oldest = min(found)
    return Waits(oldest, tuple(found[oldest].values())[:VERTICES_MAX])


class WaitClock:
    """Decides when a report is due."""

    def __init__(self) -> None:
        self._oldest: CheckpointId | None = None
        self._next_ms = 0.0

    def is_due(self, oldest: CheckpointId | None, now_ms: float) -> bool:
        """Return whether the oldest checkpoint has been under way for long; once a second."""
        if oldest != self._oldest:
            self._oldest, self._next_ms = oldest, now_ms + REPORTED_AFTER_MS
        if oldest is None or now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + REPORTED_AFTER_MS
        return True
