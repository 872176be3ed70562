"""Backpressure of one task: how long full outputs have kept it from working."""

from collections.abc import Sequence

from laminar_core.host.clock import Clock
from laminar_core.worker.outputs import EdgeOutput


class OutputRoom:
    """The room in a task's outputs. It reads the clock only when the room comes or goes."""

    def __init__(self, outputs: Sequence[EdgeOutput], clock: Clock) -> None:
        self._outputs = outputs
        self._clock = clock
        self._full_since_ms: float | None = None
        self._full_ms = 0.0

    def is_there(self) -> bool:
        """Return whether all outputs have room, and note since when they have none."""
        has_room = all(output.has_room for output in self._outputs)
        if has_room != (self._full_since_ms is None):
            self._turned(self._clock.monotonic_ms())
        return has_room

    def full_ms(self) -> float:
        """Return how long an output was full when the task looked, since the start."""
        since_ms = self._full_since_ms
        return self._full_ms + (0.0 if since_ms is None else self._clock.monotonic_ms() - since_ms)

    def _turned(self, now_ms: float) -> None:
        if self._full_since_ms is None:
            self._full_since_ms = now_ms
        else:
            self._full_ms += now_ms - self._full_since_ms
            self._full_since_ms = None
