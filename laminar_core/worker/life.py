"""A worker's heartbeats, which do not depend on its loop.

A user's function may need minutes for one batch, and the loop sends nothing meanwhile. So a
separate thread reports that the process lives, and which operator has been working since when. The
coordinator can then distinguish a slow worker from a lost one: a dead or stopped process sends
nothing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from laminar_core.errors import FencedError
from laminar_core.host.clock import Clock
from laminar_core.link.messages import Alive, encode
from laminar_core.protocol.links import SIGN_INTERVAL_MS


@dataclass(frozen=True, slots=True)
class AtWork:
    """The current activity of the loop; times are the worker's monotonic milliseconds."""

    step_since_ms: float
    operator_id: str
    """Empty: no operator, but the worker itself."""
    operator_since_ms: float


class Activity:
    """Shares the current activity of a worker's loop. The loop writes it; any thread may read it.

    Each change replaces one immutable value, so a reader never sees an incomplete one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_work: AtWork | None = None
        self._busy_ms: dict[str, float] = {}

    def show(self, at_work: AtWork | None) -> None:
        """Replace the value that readers see."""
        self._at_work = at_work

    def shown(self) -> AtWork | None:
        """Return what the loop does now; None: it waits."""
        return self._at_work

    def begin_step(self) -> None:
        """Note that the loop begins a step: one unit of work of one task, which should be short."""
        now_ms = self._clock.monotonic_ms()
        self._add_up(now_ms)
        self.show(AtWork(now_ms, "", now_ms))

    def enter(self, operator_id: str) -> None:
        """Note that this operator works from now on, until another one does."""
        at_work, now_ms = self._at_work, self._clock.monotonic_ms()
        if at_work is None:
            self.show(AtWork(now_ms, operator_id, now_ms))
        elif at_work.operator_id != operator_id:
            self._add_up(now_ms)
            self.show(AtWork(at_work.step_since_ms, operator_id, now_ms))

    def rest(self) -> None:
        """Note that the step is over."""
        if self._at_work is not None and self._at_work.operator_id:
            self._add_up(self._clock.monotonic_ms())
        self.show(None)

    def busy_ms(self, operator_id: str) -> float:
        """Return how long this operator has worked since the start, without its present work.

        Dividing its rows among receivers and sending them counts. For the loop's own thread.
        """
        return self._busy_ms.get(operator_id, 0.0)

    def _add_up(self, now_ms: float) -> None:
        """Count the time of the operator that works until now."""
        at_work = self._at_work
        if at_work is not None and (operator_id := at_work.operator_id):
            busy_ms = now_ms - at_work.operator_since_ms
            self._busy_ms[operator_id] = self._busy_ms.get(operator_id, 0.0) + busy_ms

    def sign(self, generation: int, worker: int) -> Alive:
        """Return the sign of life that describes this moment.

        It carries durations, because no two machines have the same clock.
        """
        at_work = self.shown()
        if at_work is None:
            return Alive(generation=generation, worker=worker)
        now_ms = self._clock.monotonic_ms()
        return Alive(
            generation=generation,
            worker=worker,
            operator_id=at_work.operator_id,
            operator_ms=now_ms - at_work.operator_since_ms,
            step_ms=now_ms - at_work.step_since_ms,
        )


@dataclass(frozen=True, slots=True)
class SignsOfLife:
    """The heartbeats of a worker's second thread. ``send`` has a socket of its own."""

    generation: int
    worker: int
    activity: Activity
    send: Callable[[bytes], None]

    def beat(self) -> None:
        """Send one sign. If the coordinator refuses it, the loop finds that out by itself."""
        with suppress(FencedError):
            self.send(encode(self.activity.sign(self.generation, self.worker)))


@contextmanager
def living(signs: SignsOfLife) -> Iterator[None]:
    """Send signs of life from a thread, for as long as the block runs."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(SIGN_INTERVAL_MS / 1000):
            signs.beat()

    thread = threading.Thread(target=run, name="laminar-life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
