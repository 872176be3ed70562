"""The clocks of one simulated machine: correct until a disaster changes them.

The wall clock may be off by any amount and may step in either direction. The monotonic clock never
goes back, but its rate may differ from other machines'.
"""

from collections.abc import Callable


class HostClock:
    """A ``Clock`` derived from the world's time, which ``world_ms`` returns."""

    def __init__(self, world_ms: Callable[[], float]) -> None:
        self._world_ms = world_ms
        self._wall_offset_ms = 0.0
        self._rate = 1.0
        self._since_ms = self._shown_ms = world_ms()

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970 as this machine believes."""
        return int(self._world_ms() + self._wall_offset_ms)

    def monotonic_ms(self) -> float:
        """Return the milliseconds that have passed on this machine."""
        return self._shown_ms + (self._world_ms() - self._since_ms) * self._rate

    def wait_ms(self, duration_ms: float) -> None:
        """Raise: in a simulation a turn ends instead of waiting."""
        raise NotImplementedError

    def to_world_ms(self, duration_ms: float) -> float:
        """Return the world's duration of this machine's ``duration_ms``."""
        return duration_ms / self._rate

    def step_wall(self, by_ms: float) -> None:
        """Set the wall clock forward, or back."""
        self._wall_offset_ms += by_ms

    def run_at(self, rate: float) -> None:
        """Let the monotonic clock run at ``rate`` seconds a second from now on."""
        self._shown_ms, self._since_ms = self.monotonic_ms(), self._world_ms()
        self._rate = rate
