"""Coroutines beside a worker's loop, which never waits for them.

They run in one asyncio loop, in a thread of its own. The simulator has another loop, which runs in
its turns and by its clock (``testing.polled_calls``).
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

CANCEL_MAX_S = 2.0
"""How long calls that are cancelled may take to end."""


class Calls(Protocol):
    """Runs coroutines."""

    on_done: Callable[[], None]
    """Called after each one, possibly in another thread."""

    def start(self, call: Coroutine[Any, Any, T]) -> "Future[T]":
        """Let a coroutine run, and return what will have its result."""
        ...

    def turn(self) -> None:
        """Let them go on, where they do not by themselves."""
        ...

    def next_due_ms(self) -> float | None:
        """Return when to call ``turn`` next, in milliseconds since 1970; None: never."""
        ...

    def close(self) -> None:
        """Cancel all that run."""
        ...


def nothing() -> None:
    """Do nothing."""


class ThreadCalls:
    """Calls in a thread, which is started with the first one."""

    def __init__(self) -> None:
        self.on_done: Callable[[], None] = nothing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def start(self, call: Coroutine[Any, Any, T]) -> "Future[T]":
        """Let a coroutine run in the thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = Thread(
                target=_run, args=(self._loop,), name="laminar-calls", daemon=True
            )
            self._thread.start()
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        future.add_done_callback(lambda _: self.on_done())
        return future

    def turn(self) -> None:
        """Do nothing: the thread runs by itself."""

    def next_due_ms(self) -> float | None:
        """Return None: the thread runs by itself, and ``on_done`` tells."""
        return None

    def close(self) -> None:
        """Cancel all that run, and end the thread; one that a function blocks is left alone."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        self.on_done = nothing
        cancelled = asyncio.run_coroutine_threadsafe(_cancel_all(), loop)
        with suppress(TimeoutError):
            cancelled.result(2 * CANCEL_MAX_S)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(CANCEL_MAX_S)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    is_stopped = False
    while not is_stopped:
        with suppress(SystemExit, KeyboardInterrupt):  # A task that raises one ends the loop.
            loop.run_forever()
            is_stopped = True
    loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=CANCEL_MAX_S)
    await asyncio.get_running_loop().shutdown_asyncgens()
