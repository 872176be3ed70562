"""Operators of a task that act at times of the clock, asked between two units of work.

A cut is one step of its task, so nothing here happens between a barrier and its snapshot.
"""

from collections.abc import Sequence

from laminar_core.host.clock import Clock
from laminar_core.operators.base import AnySubtask, TimedSubtask
from laminar_core.worker.operator_chain import Chain


class TimedOperators:
    """Calls those operators of a chain whose time has come."""

    def __init__(
        self, operators: Sequence[tuple[str, AnySubtask]], chain: Chain, clock: Clock
    ) -> None:
        self._timed = [
            (position, operator)
            for position, (_, operator) in enumerate(operators)
            if isinstance(operator, TimedSubtask)
        ]
        self._chain = chain
        self._clock = clock

    def work(self) -> bool:
        """Let every operator act that is due; return whether one was."""
        acted = False
        for position, operator in self._timed:
            due_ms, now_ms = operator.next_due_ms(), self._clock.now_ms()
            if due_ms is not None and due_ms <= now_ms:
                self._chain.emit(position, operator.on_time(now_ms))
                acted = True
        return acted

    def wait_ms(self) -> float | None:
        """Return the time until the next operator is due; None: none will be."""
        dues_ms = [operator.next_due_ms() for _, operator in self._timed]
        known = [due_ms for due_ms in dues_ms if due_ms is not None]
        return max(min(known) - self._clock.now_ms(), 0.0) if known else None
