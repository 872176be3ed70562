"""Simulated time: processes take turns, one at a time, and a seed decides how long each lasts.

The process that is due first runs next. A turn lasts a random time, mostly short and sometimes
long. So different seeds put the same events into different orders, and one seed always into the
same.
"""

import math
from collections.abc import Callable
from random import Random
from zlib import crc32

from laminar_core.host.clock import ManualClock
from laminar_core.testing.host_clock import HostClock
from laminar_core.testing.trace import Trace

TURNS_MAX = 200_000
"""A simulation that needs more is not getting anywhere."""

_TURN_MS = (0.1, 0.3, 1.0, 3.0)
_SELDOM, _LONG_MS = 0.01, 60.0


class NotLiveError(Exception):
    """Nothing will ever happen again, or too much has happened without an end."""


class ProcessKilledError(BaseException):
    """Ends a process wherever it is; not an ``Exception``, so that no handler catches it."""


class Process:
    """Something that runs for a moment now and then."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.due_ms = math.inf
        """When it runs next, unless it is woken before."""
        self.busy_until_ms = -math.inf
        """End of its last turn; nothing wakes it before."""
        self.held = False
        """Whether it is suspended until released, whatever is due."""
        self.pace = 1.0
        """Factor by which its turns last longer than others'."""
        self.in_turn = False
        """Whether it is in a turn, during which others may run; a turn is not begun twice."""

    def wake(self, at_ms: float | None = None) -> None:
        """Run at ``at_ms``, by default as soon as possible, or earlier."""
        self.due_ms = min(self.due_ms, self.world.now_ms if at_ms is None else at_ms)

    def turn(self) -> float:
        """Run for a moment; return the time until the next turn, in milliseconds."""
        raise NotImplementedError


class World:
    """The clock, the dice and everything that runs."""

    def __init__(self, seed: int, turns_max: int = TURNS_MAX) -> None:
        self.random = Random(seed)  # noqa: S311 - a simulation, not a secret
        self.clock = ManualClock()
        self.turns = 0
        """Number of turns so far."""
        self.digest = 0
        """Digest of every turn so far: equal digests are equal histories."""
        self.trace = Trace(self.clock.monotonic_ms())
        self.store_slowness = 1.0
        """Background threads, which call the store, take so many times longer."""
        self._turns_max = turns_max
        self._processes: list[Process] = []
        self._planned: dict[int, list[Callable[[], None]]] = {}
        self._hosts: dict[str, HostClock] = {}
        self._spent_ms = 0.0
        self.stretches = 0
        self.stretch = 0
        """Number of the stretch that runs now. A stretch is what a process does without letting
        others run: a turn, or what the main thread of a driver does between two waits."""

    @property
    def now_ms(self) -> float:
        """Milliseconds since 1970."""
        return self.clock.monotonic_ms()

    @property
    def processes(self) -> tuple[Process, ...]:
        """The processes that have not ended."""
        return tuple(self._processes)

    @property
    def deserted(self) -> bool:
        """Whether no process is left."""
        return not self._processes

    def clock_of(self, host: str) -> HostClock:
        """Return the clocks of one machine, which a disaster may change."""
        return self._hosts.setdefault(host, HostClock(lambda: self.now_ms + self._spent_ms))

    def note(self, process: str, what: str) -> None:
        """Append a line to the trace."""
        self.trace.note(self.now_ms, self.turns, process, what)

    def spend(self, duration_ms: float) -> None:
        """Make the turn that runs now last longer, as its own clock shows: work that takes time."""
        self._spent_ms += duration_ms

    def add(self, process: Process) -> None:
        """Add a process; it starts asleep."""
        self._processes.append(process)

    def remove(self, process: Process) -> None:
        """Remove a process, which never runs again."""
        if process in self._processes:
            self._processes.remove(process)

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call ``action`` once, when so much time has passed."""
        timer = _Timer(self, action)
        timer.wake(self.now_ms + delay_ms)
        self.add(timer)

    def at_turn(self, turn: int, action: Callable[[], None]) -> None:
        """Call ``action`` just before this turn; the first one is 1."""
        self._planned.setdefault(turn, []).append(action)

    def run_until(self, done: Callable[[], bool], timeout_ms: float | None = None) -> None:
        """Take turns until ``done()``, or until so much time has passed.

        Raises:
            NotLiveError: neither will ever happen.
        """
        deadline_ms = math.inf if timeout_ms is None else self.now_ms + max(timeout_ms, 0)
        while not done() and self.now_ms < deadline_ms:
            self._take_turn(done, deadline_ms)
        self._begin_stretch()

    def _take_turn(self, done: Callable[[], bool], deadline_ms: float) -> None:
        self.turns += 1
        for action in self._planned.pop(self.turns, ()):
            action()
        process, due_ms = self._next()
        if process is None or due_ms > deadline_ms:
            if done():
                return  # An action of this turn took turns itself, and all that was left.
            if deadline_ms == math.inf:
                raise NotLiveError(f"nothing is due any more; {self._situation()}")
            self._advance_to(deadline_ms)
            return
        if self.turns > self._turns_max:
            raise NotLiveError(f"no end after {self.turns} turns; {self._situation()}")
        self._advance_to(due_ms)
        self._record(process)
        process.due_ms = math.inf
        process.in_turn = True
        outer_ms, self._spent_ms = self._spent_ms, 0.0
        outer_stretch = self.stretch
        self._begin_stretch()
        try:
            wait_ms = process.turn()
        except ProcessKilledError:
            return
        finally:
            process.in_turn = False
            self.stretch = outer_stretch
            spent_ms, self._spent_ms = self._spent_ms, outer_ms
        duration_ms = (self._duration_ms() + spent_ms) * process.pace
        process.busy_until_ms = self.now_ms + duration_ms
        process.wake(process.busy_until_ms + wait_ms)

    def _next(self) -> tuple[Process | None, float]:
        """Return the process whose turn comes first, and when; the earlier added of two.

        Half of the time of a simulation would be spent here with a call for each process.
        """
        first, first_ms = None, math.inf
        for process in self._processes:
            due_ms, busy_ms = process.due_ms, process.busy_until_ms
            next_ms = max(busy_ms, due_ms)
            if next_ms < first_ms and not (process.held or process.in_turn):
                first, first_ms = process, next_ms
        return first, first_ms

    def _begin_stretch(self) -> None:
        self.stretches += 1
        self.stretch = self.stretches

    def _duration_ms(self) -> float:
        if self.random.random() < _SELDOM:
            return _LONG_MS * self.random.random()
        return self.random.choice(_TURN_MS) * self.random.random()

    def _advance_to(self, time_ms: float) -> None:
        self.clock.wait_ms(time_ms - self.now_ms)

    def _record(self, process: Process) -> None:
        self.trace.turn(self.now_ms, self.turns, process.name)
        entry = f"{process.name} {self.now_ms!r}".encode()
        self.digest = crc32(entry, self.digest)

    def _situation(self) -> str:
        running = ", ".join(f"{p.name}{' (held)' if p.held else ''}" for p in self._processes)
        last = " ".join(self.trace.recent(20))
        return f"there are: {running or 'no processes'}; the last turns: {last}"


class _Timer(Process):
    def __init__(self, world: World, action: Callable[[], None]) -> None:
        super().__init__(world, "timer")
        self._action = action

    def turn(self) -> float:
        self.world.remove(self)
        self._action()
        return math.inf
