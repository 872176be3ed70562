"""The first signal ends a job with a last checkpoint, and a later one ends it at once."""

import signal
from collections.abc import Callable
from functools import partial

from laminar_core.cli.signals import ONE_SIGNAL_MS, stop_on_signals
from laminar_core.host.clock import ManualClock


class Asked:
    """A job that is asked to stop, and is sent another signal meanwhile."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.meanwhile: Callable[[], None] | None = None

    def stop(self) -> None:
        self.acts.append("stop")
        if self.meanwhile is not None:
            self.meanwhile()

    def cancel(self) -> None:
        self.acts.append("cancel")


def test_signals_at_once_are_one_and_later_ones_end_the_job_now(monkeypatch) -> None:
    handlers, clock, job = {}, ManualClock(), Asked()
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    stop_on_signals(job, clock)
    terminate, interrupt = (partial(handlers[n], n, None) for n in (signal.SIGTERM, signal.SIGINT))
    job.meanwhile = terminate
    terminate()
    clock.wait_ms(ONE_SIGNAL_MS)
    terminate()
    assert job.acts == ["stop"]
    clock.wait_ms(1)
    interrupt()
    assert job.acts == ["stop", "cancel"]
