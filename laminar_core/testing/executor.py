"""An executor without a thread: submitted functions run in simulated turns."""

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from laminar_core.testing.world import Process, World

_LATENCY_MS = (0.0, 0.0, 1.0, 1.0, 10.0, 80.0)

P = ParamSpec("P")
T = TypeVar("T")


class SimulatedExecutor(Process, Executor):
    """One function after the other, in the order in which they were submitted."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        world.add(self)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue ``fn``."""
        future: Future[T] = Future()
        self._queue.append((future, lambda: fn(*args, **kwargs)))
        self.wake(self.world.now_ms + self._latency_ms())
        return future

    def turn(self) -> float:
        """Run the function submitted first."""
        if self._queue:
            _run(*self._queue.popleft())
        return self._latency_ms() if self._queue else math.inf

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as in the base class
        """Run what is queued, or forget it; nothing runs any more after that."""
        while self._queue and wait and not cancel_futures:
            _run(*self._queue.popleft())
        self.kill()

    def kill(self) -> None:
        """Drop the queue."""
        self._queue.clear()
        self.world.remove(self)

    def _latency_ms(self) -> float:
        return self.world.random.choice(_LATENCY_MS) * self.world.store_slowness


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - whoever asks the future gets it
        future.set_exception(error)
