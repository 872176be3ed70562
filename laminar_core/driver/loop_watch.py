"""Detect the end of loops from the coordinator: ask in waves, and end the loops that are over."""

import math
from collections.abc import Iterable, Mapping

from laminar_core.protocol.termination import LoopCounts, answer, begin_wave, initial

WAVE_INTERVAL_MS = 100
"""Pause between two waves; the second wave finds a loop over."""


class LoopWatch:
    """The waves of one generation."""

    def __init__(self, workers: Iterable[int], loops: Iterable[str]) -> None:
        self._state = initial(workers, loops)
        self._next_ms = 0.0

    @property
    def due_ms(self) -> float:
        """When the next wave begins; infinite during a wave, or if no loop runs."""
        return self._next_ms if self._state.loops and not self._state.missing else math.inf

    def begin(self, now_ms: float) -> int | None:
        """Begin a wave if one is due; return its number, or None. The caller asks every worker."""
        if now_ms < self.due_ms:
            return None
        self._state = begin_wave(self._state)
        return self._state.round_number

    def answered(
        self, round_number: int, worker: int, counts: Mapping[str, LoopCounts], now_ms: float
    ) -> frozenset[str]:
        """Take a worker's answer; return the loops that are now known to be over."""
        self._state, over = answer(self._state, round_number, worker, counts)
        if not self._state.missing:
            self._next_ms = now_ms + WAVE_INTERVAL_MS
        return over
