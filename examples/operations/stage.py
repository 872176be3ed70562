"""The progress of a demonstration: timed steps, and waits with a limit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rich.console import Console

from examples.operations.client import UiError
from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock

POLL_MS = 500
TELL_MS = 10_000
"""Between two lines about what is waited for."""

T = TypeVar("T")


class StepFailed(Exception):  # noqa: N818 - it reads as what happened
    """A step failed; the text describes the last observation."""


@dataclass(frozen=True, slots=True)
class Step:
    """One that was done. ``saw`` are its facts, in the order in which they came up."""

    name: str
    took_s: float
    saw: tuple[str, ...]
    failed: str | None = None


@dataclass(slots=True)
class Stage:
    """Runs the steps; ``steps`` has their results."""

    console: Console
    clock: Clock
    steps: list[Step] = field(default_factory=list[Step])
    _saw: list[str] = field(default_factory=list[str])

    def note(self, fact: str) -> None:
        """Add a fact to the report."""
        self._saw.append(fact)
        self.console.print(f"    {fact}", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; a failure goes into the report, and ends the demonstration.

        Raises:
            StepFailed: it failed.
        """
        self.console.print(f"{len(self.steps) + 1:>2}  {name}", style="bold", markup=False)
        started_ms, self._saw = self.clock.monotonic_ms(), []
        failed: str | None = None
        try:
            yield
        except (StepFailed, UiError, LaminarError, OSError) as error:
            failed = str(error)
            raise StepFailed(f"{name}: {error}") from error
        except KeyboardInterrupt:
            failed = "interrupted"
            raise
        finally:
            took_s = (self.clock.monotonic_ms() - started_ms) / 1000
            self.steps.append(Step(name, round(took_s, 1), tuple(self._saw), failed))

    def wait_until(
        self,
        what: str,
        look: Callable[[], T | None],
        limit_s: float,
        seen: Callable[[], str] = lambda: "nothing yet",
    ) -> T:
        """Poll until ``look`` returns a value; ``seen`` describes the state meanwhile.

        Raises:
            StepFailed: there was none in time.
        """
        started_ms = told_ms = self.clock.monotonic_ms()
        while (found := look()) is None:
            now_ms = self.clock.monotonic_ms()
            if now_ms - started_ms > 1000 * limit_s:
                raise StepFailed(f"{what}: not in {limit_s:.0f} s; seen: {seen()}")
            if now_ms - told_ms > TELL_MS:
                told_ms = now_ms
                waited = f"{(now_ms - started_ms) / 1000:.0f} s"
                self.console.print(
                    f"    … {waited} for {what}; seen: {seen()}",
                    style="dim", markup=False, highlight=False, soft_wrap=True,
                )  # fmt: skip
            self.clock.wait_ms(POLL_MS)
        return found

    def since_s(self, then_ms: float) -> float:
        """Return the seconds since a moment of the monotonic clock."""
        return (self.clock.monotonic_ms() - then_ms) / 1000
