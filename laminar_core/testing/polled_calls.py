"""Coroutines by a simulated clock: the same history for the same seed.

A small event loop without a thread, sockets or files. It runs what is ready when it is asked to,
and knows when the next timer is due.
"""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

from laminar_core.host.calls import nothing
from laminar_core.host.clock import Clock

T = TypeVar("T")


class _PolledLoop(asyncio.AbstractEventLoop):
    """The part of an event loop that tasks, timeouts and sleeps need."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._clock.monotonic_ms() / 1000

    def get_debug(self) -> bool:
        """Return False: nothing is checked."""
        return False

    def is_closed(self) -> bool:
        """Return False: there is nothing to close."""
        return False

    def is_running(self) -> bool:
        """Return True: it is asked only from within."""
        return True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore what ended with its process."""

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it in this turn."""
        self._ready.append(handle := asyncio.Handle(callback, args, self, context))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it after so many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it at this time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it where it is; it is looked at when its time comes."""

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        """Return a task of this loop."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def next_due_s(self) -> float | None:
        """Return when something can run next."""
        if self._ready:
            return self.time()
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def run_ready(self) -> None:
        """Run all that can run now."""
        outer = events._get_running_loop()  # noqa: SLF001 - for event loops, says asyncio
        events._set_running_loop(self)  # noqa: SLF001
        try:
            while self._ready or (self._timers and self._timers[0][0] <= self.time()):
                while self._timers and self._timers[0][0] <= self.time():
                    self._ready.append(heappop(self._timers)[2])
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001
        finally:
            events._set_running_loop(outer)  # noqa: SLF001


class PolledCalls:
    """Calls that run in turns."""

    def __init__(self, clock: Clock) -> None:
        self.on_done: Callable[[], None] = nothing
        self._clock = clock
        self._loop = _PolledLoop(clock)
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def running_count(self) -> int:
        """The number of calls that have not ended."""
        return len(self._tasks)

    def start(self, call: Coroutine[Any, Any, T]) -> "Future[T]":
        """Let a coroutine run until it waits for something."""
        future: Future[T] = Future()
        task = self._loop.create_task(call)
        self._tasks.add(task)

        def done(ended: "asyncio.Task[T]") -> None:
            self._tasks.discard(ended)
            if ended.cancelled():
                future.cancel()
            elif (error := ended.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(ended.result())
            self.on_done()

        task.add_done_callback(done)
        self._loop.run_ready()
        return future

    def turn(self) -> None:
        """Run all that can run now."""
        self._loop.run_ready()

    def next_due_ms(self) -> float | None:
        """Return when a timer of a coroutine is due, in milliseconds since 1970."""
        due_s = self._loop.next_due_s()
        if due_s is None:
            return None
        return self._clock.now_ms() + max(due_s * 1000 - self._clock.monotonic_ms(), 0.0)

    def close(self) -> None:
        """Cancel all that run."""
        self.on_done = nothing
        for task in list(self._tasks):
            task.cancel()
        self._loop.run_ready()
