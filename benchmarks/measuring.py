"""Runs one benchmark, and notes the conditions."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.machine import load
from benchmarks.record import Machine, Record, figures_of
from benchmarks.result import Result
from laminar_core.host.clock import SystemClock

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A function that measures; it may give several results at once."""

    name: str
    measure: Callable[[], list[Result]]

    @property
    def description(self) -> str:
        """The first line of the function's docstring, or the name."""
        return (self.measure.__doc__ or self.name).splitlines()[0]


def measure(benchmark: Benchmark, machine: Machine, tell: Tell, repeat: int) -> Record:
    """Run a benchmark so often, and note the time and the load before and after.

    Args:
        benchmark: the benchmark.
        machine: where it runs.
        tell: gets a progress message per run.
        repeat: how often it runs.
    """
    began, load_before = _now(), load()
    runs: list[list[Result]] = []
    for number in range(1, repeat + 1):
        of_all = f" ({number} of {repeat})" if repeat > 1 else ""
        tell(f"{benchmark.name}{of_all}: {benchmark.description}")
        runs.append(benchmark.measure())
    times = f" --repeat {repeat}" if repeat > 1 else ""
    return Record(
        benchmark=benchmark.name,
        command=f"laminar bench {benchmark.name}{times}",
        began=began,
        ended=_now(),
        machine=machine,
        load_before=load_before,
        load_after=load(),
        runs=repeat,
        figures=figures_of(runs),
    )


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() // 1000, UTC)
