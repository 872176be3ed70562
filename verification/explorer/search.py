"""Breadth first over every state of a world, so that the first trace found is a shortest one."""

import gc
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from laminar_core.host.clock import Clock
from verification.explorer.coordination import Checkpoint
from verification.explorer.system import Move, State, System
from verification.explorer.tasks import Classes
from verification.explorer.topology import World


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, and how one gets there."""

    what: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        steps = [f"{number:3}. {step}" for number, step in enumerate(self.trace, 1)]
        return "\n".join([*steps, f"  => {self.what}"])


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an exploration."""

    world: str
    states: int
    transitions: int
    depth: int
    """Moves of the longest of all shortest ways to a state."""
    ends: int
    """States in which nothing has to happen any more."""
    checkpoints: int
    """Different ones that completed; each was compared with the reference."""
    complete: bool
    """Every reachable state was visited."""
    seconds: float
    violation: Violation | None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values."""
        return asdict(self)


def explore(
    world: World,
    clock: Clock,
    using: Classes | None = None,
    *,
    states_max: int | None = None,
) -> Report:
    """Visit every state, until one is wrong or ``states_max`` have been seen."""
    return Search(world, using or Classes(), states_max).run(clock)


class Search:
    """One search, and what it came across."""

    def __init__(self, world: World, using: Classes, states_max: int | None = None) -> None:
        self._system = System(world, using)
        self._states_max = states_max
        first = self._system.first()
        self._from: dict[State, tuple[State | None, tuple[str, ...]]] = {first: (None, ())}
        self._waiting: deque[State] = deque([first])
        self._transitions = self._depth = self._ends = 0
        self._violation: Violation | None = None

    def run(self, clock: Clock) -> Report:
        """Search with garbage collection off, because everything created is kept."""
        started_ms, collecting = clock.monotonic_ms(), gc.isenabled()
        gc.disable()
        try:
            self._search()
        finally:
            if collecting:
                gc.enable()
        return self._report((clock.monotonic_ms() - started_ms) / 1000)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the distinct checkpoints that completed."""
        return self._system.checkpoints()

    def _search(self) -> None:
        while self._waiting and self._violation is None and not self._enough():
            self._depth += 1
            for _ in range(len(self._waiting)):
                self._visit(self._waiting.popleft())
                if self._violation is not None:
                    break

    def _report(self, seconds: float) -> Report:
        return Report(
            self._system.world.name,
            len(self._from),
            self._transitions,
            self._depth - 1,
            self._ends,
            len(self.checkpoints()),
            complete=not self._waiting and self._violation is None,
            seconds=seconds,
            violation=self._violation,
        )

    def _enough(self) -> bool:
        return self._states_max is not None and len(self._from) >= self._states_max

    def _visit(self, state: State) -> None:
        at_end, one_is_enough = True, self._system.is_over(state)
        for move in self._system.necessary(state):
            at_end = False
            self._take(state, move)
            if one_is_enough:
                break
        if at_end:
            self._ends += 1
            problem = self._system.left_over(state)
            if problem is not None:
                self._found(state, ("nothing more happens",), problem)
        for move in self._system.possible(state):
            self._take(state, move)

    def _take(self, state: State, move: Move) -> None:
        self._transitions += 1
        if move.problem is not None:
            self._found(state, move.said, move.problem)
        elif move.state not in self._from:
            self._from[move.state] = (state, move.said)
            self._waiting.append(move.state)

    def _found(self, state: State, said: tuple[str, ...], problem: str) -> None:
        if self._violation is not None:
            return
        trace, at = ["; ".join(said)], state
        while True:
            before, how = self._from[at]
            if before is None:
                break
            trace.append("; ".join(how))
            at = before
        self._violation = Violation(problem, tuple(reversed(trace)))
