"""Signals to the driver of a job: SIGINT and SIGTERM end it."""

import signal
from types import FrameType

from laminar_core.host.clock import Clock
from laminar_core.pipeline import StreamingJob

ONE_SIGNAL_MS = 250
"""Signals closer to each other are one."""


def stop_on_signals(job: StreamingJob, clock: Clock) -> None:
    """First signal: end with a checkpoint. Second: end now.

    ``timeout`` sends a signal to the process and again to its group: at once, so it is one.
    """
    first_ms: float | None = None

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal first_ms
        del number, frame
        if first_ms is None:
            first_ms = clock.monotonic_ms()  # Before: the next one may interrupt what follows.
            job.stop()
            first_ms = clock.monotonic_ms()
        elif clock.monotonic_ms() - first_ms > ONE_SIGNAL_MS:
            job.cancel()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
