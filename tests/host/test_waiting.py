"""A wait of the main thread ends in time, and a signal is handled during it."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from laminar_core.driver.local_cluster import LocalCluster
from laminar_core.host import waiting
from laminar_core.host.clock import SystemClock
from laminar_core.host.waiting import wait_for_first
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.store.checkpoint_store import CheckpointStore
from verification.processes.cluster import ProcessCluster

SOON_S = 5.0
LOCAL = LocalCluster(CheckpointStore(MemoryObjectStore(), "payments"), SystemClock())


def test_it_ends_with_the_first_that_is_done() -> None:
    first, second = Future[int](), Future[int]()
    threading.Timer(0.05, first.set_result, (1,)).start()
    wait_for_first((second, first))
    assert first.done()
    assert not second.done()


@pytest.mark.parametrize("timeout_ms", [0, 5, 25])
def test_it_ends_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch, timeout_ms: float) -> None:
    """Goal: the time may be none, less than one wait between signals, and several of them."""
    monkeypatch.setattr(waiting, "SIGNAL_DELAY_MAX_S", 0.01)
    wait_for_first((Future[int](),), timeout_ms)


@pytest.mark.parametrize(
    "wait",
    [wait_for_first, LOCAL.wait, ProcessCluster().wait],
    ids=["alone", "local", "processes"],
)
def test_a_signal_that_another_thread_receives_is_handled(
    wait: Callable[[tuple[Future[Any], ...]], None],
) -> None:
    """Goal: whoever waits for a generation in the main thread can be stopped by a signal.

    Only the main thread runs handlers, and the delivery to another thread does not wake it.
    """
    ended, handled = Future[bool](), threading.Event()

    def handle(number: int, frame: object) -> None:
        del number, frame
        handled.set()

    def receive() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        ended.set_result(handled.wait(SOON_S))

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        receiver = threading.Timer(0.1, receive)  # The main thread waits by then.
        receiver.start()
        wait((ended,))
        receiver.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended.result()
