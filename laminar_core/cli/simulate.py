"""``laminar simulate``: the real runtime in a simulated world full of disasters."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from laminar_core.cli.groups import examples
from laminar_core.cli.options import json_option
from laminar_core.host.terminal import say
from laminar_core.records.limits import NUMBER_MAX
from laminar_core.testing.campaign import SeedReport, simulate_seeds

SEEDS = 200
VIOLATED_EXIT_CODE = 1
TRACE_LINES = 120
"""Lines shown of the first failed seed; ``--seed S --trace`` shows all."""

_MS_PER_HOUR = 3_600_000


@click.command(
    epilog=examples("laminar simulate --seeds 50"),
)
@click.option(
    "--seeds",
    "count",
    type=click.IntRange(1, NUMBER_MAX),
    default=SEEDS,
    show_default=True,
    help="Number of seeds to run.",
)
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="First seed.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), help="Run only this seed, exactly as it ran before."
)
@click.option("--trace", is_flag=True, help="Print the events of each run, even if it passed.")
@json_option
def simulate(*, count: int, first: int, seed: int | None, trace: bool, as_json: bool) -> None:
    """Simulate small jobs with faults, and check the outcome.

    The faults are crashes, stalls and lost answers. Each seed stands for a job, a configuration and
    a series of faults. The code of workers, coordinator and store is the real one. Time, network
    and disk are simulated, so a seed that fails will fail again.

    The exit code is 1 if an invariant was violated.
    """
    seeds = range(first, first + count) if seed is None else range(seed, seed + 1)
    display: _Display = _Text(len(seeds), each=seed is not None, trace=trace)
    _run(seeds, _Json(trace=trace) if as_json else display)


def _run(seeds: range, display: "_Display") -> None:
    total = Summary()
    reports = simulate_seeds(seeds)
    try:
        with display:
            for report in reports:
                total.add(report)
                display.seed(report)
    except KeyboardInterrupt:
        total.interrupted = True
        raise
    finally:
        display.summary(total)
    if total.failed:
        raise SystemExit(VIOLATED_EXIT_CODE)


@dataclass
class Summary:
    """The totals of a campaign."""

    seeds: int = 0
    failed: list[int] = field(default_factory=list[int])
    faults: Counter[str] = field(default_factory=Counter[str])
    checkpoints: Counter[str] = field(default_factory=Counter[str])
    turns: int = 0
    simulated_ms: float = 0.0
    interrupted: bool = False

    def add(self, report: SeedReport) -> None:
        """Add one seed."""
        self.seeds += 1
        self.faults.update(report.hits)
        self.checkpoints.update(report.checkpoints)
        self.turns += report.turns
        self.simulated_ms += report.simulated_ms
        if not report.passed:
            self.failed.append(report.setting.seed)


class _Display:
    """Prints the progress of a campaign."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def seed(self, report: SeedReport) -> None:
        """One more seed."""
        raise NotImplementedError

    def summary(self, total: Summary) -> None:
        """All of them."""
        raise NotImplementedError


class _Json(_Display):
    """One object per seed, one for all of them."""

    def __init__(self, *, trace: bool) -> None:
        self._trace = trace

    def seed(self, report: SeedReport) -> None:
        line = {"event": "seed", **report.as_dict()}
        if self._trace or not report.passed:
            line["trace"] = list(report.trace)
        click.echo(json.dumps(line))

    def summary(self, total: Summary) -> None:
        said = {
            "seeds": total.seeds,
            "failed": total.failed,
            "interrupted": total.interrupted,
            "faults": dict(sorted(total.faults.items())),
            "checkpoints": dict(sorted(total.checkpoints.items())),
            "turns": total.turns,
            "simulated_ms": round(total.simulated_ms, 3),
        }
        click.echo(json.dumps({"event": "summary", **said}))


class _Text(_Display):
    """A bar, what failed with its trace, and totals."""

    def __init__(self, seeds: int, *, each: bool, trace: bool) -> None:
        self._each = each
        self._trace = trace
        console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("seeds"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]} failed"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("seeds", total=seeds, failed=0)
        self._failed = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if not self._bar.disable:  # Else Rich before 14.3 would print an empty line.
            self._bar.stop()

    def seed(self, report: SeedReport) -> None:
        self._failed += not report.passed
        if self._each or self._trace or not report.passed:
            self._print(report)
        self._bar.update(self._task, advance=1, failed=self._failed)

    def _print(self, report: SeedReport) -> None:
        seed = report.setting.seed
        for violation in report.violations:
            say(f"seed {seed} violates {violation.check}: {violation.problem}")
        if report.passed:
            say(f"seed {seed} is well")
        say(f"  {report.setting.describe()}")
        for line in self._lines(report):
            say(f"  {line}")
        say(f"  digest {report.digest:08x} after {report.turns:,} turns")
        say(f"  again: laminar simulate --seed {seed} --trace")

    def _lines(self, report: SeedReport) -> Sequence[str]:
        if self._trace:
            return report.trace
        return () if report.passed or self._failed > 1 else report.trace[-TRACE_LINES:]

    def summary(self, total: Summary) -> None:
        ending = " until it was interrupted" if total.interrupted else ""
        say(
            f"{total.seeds:,} seeds{ending}, {len(total.failed):,} failed; {total.turns:,} turns, "
            f"{total.simulated_ms / _MS_PER_HOUR:,.2f} simulated hours"
        )
        say(f"faults: {_counted(total.faults)}")
        say(f"checkpoints: {_counted(total.checkpoints)}")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{kind} {n:,}" for kind, n in sorted(counts.items())) or "none"
