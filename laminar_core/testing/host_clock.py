"""The clocks of one simulated machine: right until a disaster sets them wrong.

The wall clock may be off by any amount and may step in either direction. The monotonic clock never
goes back, but it may run at another rate than those of other machines.
"""

from collections.abc import Callable


class HostClock:
    """A ``Clock`` that follows the world's, which ``world_ms`` tells."""

    def __init__(self, world_ms: Callable[[], float]) -> None:
        self._world_ms = world_ms
        self._wall_offset_ms = 0.0
        self._rate = 1.0
        self._since_ms = self._shown_ms = world_ms()

    def now_ms(self) -> int:
        """The wall clock, in milliseconds since 1970 or what this machine takes for it."""
        return int(self._world_ms() + self._wall_offset_ms)

    def monotonic_ms(self) -> float:
        """Milliseconds that have passed on this machine."""
        return self._shown_ms + (self._world_ms() - self._since_ms) * self._rate

    def wait_ms(self, duration_ms: float) -> None:
        """Nobody waits in a simulation: a turn ends instead."""
        raise NotImplementedError

    def to_world_ms(self, duration_ms: float) -> float:
        """How long the world takes for what this machine measures as ``duration_ms``."""
        return duration_ms / self._rate

    def step_wall(self, by_ms: float) -> None:
        """Set the wall clock forward, or back."""
        self._wall_offset_ms += by_ms

    def run_at(self, rate: float) -> None:
        """Let the monotonic clock go on at ``rate`` seconds a second."""
        self._shown_ms, self._since_ms = self.monotonic_ms(), self._world_ms()
        self._rate = rate
