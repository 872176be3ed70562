"""Send the event time of the slowest split to the workers, so that no split gets too far ahead."""

from collections.abc import Callable

from laminar_core.host.clock import Clock
from laminar_core.link.messages import Progress, WatermarkTarget
from laminar_core.protocol.split_drift import SlowestReaders

TARGET_INTERVAL_MS = 100
"""Least time between two messages: many workers report at once, and all of them get each one."""


class Steering:
    """The slowest splits of one generation; ``broadcast`` sends to all workers."""

    def __init__(
        self, generation: int, broadcast: Callable[[WatermarkTarget], None], clock: Clock
    ) -> None:
        self._generation = generation
        self._broadcast = broadcast
        self._clock = clock
        self._slowest = SlowestReaders()
        self._target_us: int | None = None
        """The newest event time that was sent."""
        self._next_ms = 0.0

    def take(self, report: Progress) -> None:
        """Take a worker's progress; send the slowest event time if it is another one by now."""
        for operator_id, source in report.sources.items():
            self._slowest.report(operator_id, report.worker, source.slowest_us)
        target_us, now_ms = self._slowest.target_us, self._clock.monotonic_ms()
        if target_us == self._target_us or now_ms < self._next_ms:
            return  # Workers report all the time, so what is left out now goes out soon.
        self._target_us, self._next_ms = target_us, now_ms + TARGET_INTERVAL_MS
        self._broadcast(WatermarkTarget(generation=self._generation, time_us=target_us))
