"""Operators of a task that act at times of the clock, asked between two units of work.

A cut is one step of its task, so nothing here happens between a barrier and its snapshot.
"""

from collections.abc import Sequence

from laminar_core.host.clock import Clock
from laminar_core.operators.base import AnySubtask, KeepsRowsWaiting, TimedSubtask
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
        self._waiting = [
            (position, operator)
            for position, operator in self._timed
            if isinstance(operator, KeepsRowsWaiting)
        ]
        self._chain = chain
        self._clock = clock

    def work(self) -> bool:
        """Let every operator act that is due; return whether one was."""
        return self._act(self._timed)

    @property
    def may_keep_rows(self) -> bool:
        """Whether one of the operators can have rows that wait in it."""
        return bool(self._waiting)

    def has_pending(self) -> bool:
        """Return whether rows wait in one of the operators."""
        return any(operator.has_pending for _, operator in self._waiting)

    def has_more_to_do(self) -> bool:
        """Return whether one of the operators acts later, on rows that wait or by a timer."""
        return self.has_pending() or self.wait_ms() is not None

    def is_full(self, first: int = 0) -> bool:
        """Return whether an operator from position ``first`` on takes no further rows for now."""
        return any(at >= first and operator.is_full for at, operator in self._waiting)

    def work_on_waiting(self, first: int) -> bool:
        """Let operators act in which rows wait, from position ``first`` on.

        So they can while event time advances through the one at ``first``, in pieces.
        """
        return self._act([one for one in self._waiting if one[0] >= first])

    def _act(self, timed: Sequence[tuple[int, TimedSubtask]]) -> bool:
        acted = False
        for position, operator in timed:
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
