"""Event time of the output of one subtask of a sink.

A checkpoint records it. It says up to which time visible output is complete, also behind operators
that hold the watermark back.
"""

from collections.abc import Sequence

from laminar_core.operators.base import JsonObject
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.records.sink_outputs import ENDED, IDLE, WATERMARK_US


class OutputTime:
    """The newest watermark that has reached a sink; it never goes back."""

    def __init__(self) -> None:
        self._watermark_us: int | None = None
        self._ended = self._idle = False

    def advance(self, watermark_us: int) -> None:
        """Take a watermark; every row before it is written. The last one says that none comes."""
        self._idle = False
        if watermark_us == WATERMARK_END_US:
            self._ended = True
        elif self._watermark_us is None or watermark_us > self._watermark_us:
            self._watermark_us = watermark_us

    def become_active(self) -> None:
        """A row came, so its event time counts again."""
        self._idle = False

    def become_idle(self) -> None:
        """Hold no event time back until a row or a watermark comes."""
        self._idle = True

    def properties(self) -> JsonObject:
        """Return the properties that a checkpoint records; those that do not hold are left out."""
        found: JsonObject = {}
        if self._watermark_us is not None:
            found[WATERMARK_US] = self._watermark_us
        if self._ended:
            found[ENDED] = True
        if self._idle:
            found[IDLE] = True
        return found

    def restore(self, parts: Sequence[JsonObject]) -> None:
        """Continue from the slowest of ``parts``; from nothing, if one of them knew no time.

        An ended input says so again by itself.
        """
        times = [part.get(WATERMARK_US) for part in parts]
        known = [time for time in times if isinstance(time, int)]
        self._watermark_us = min(known) if known and len(known) == len(times) else None
