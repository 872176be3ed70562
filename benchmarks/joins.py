"""The interval join and the as-of join: Laminar beside one core in batch, and beside Flink SQL.

All systems read the same Parquet files, stay up and take turns, so each is warm, and other work on
the machine meets all of them. Totals of the results are compared before anything is reported. Each
round has a run over all rows and one over a tenth of them: their difference is the cost of further
rows, without start and end of a run. ``make peers`` gets Flink, Polars and DuckDB; what is not
there is named and left out. Other sizes than by default:

    python -m benchmarks.joins --rows 200000 --rounds 1
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click
import pyspark

from benchmarks.join_systems import flink_sql
from benchmarks.join_systems.question import Question, Total, read_totals, write_rows
from benchmarks.peers import PEERS, is_there, python_environment
from benchmarks.printed import print_record
from benchmarks.result import Result
from benchmarks.topics.system import Cost, System
from laminar_core.spark.jvm import ensure_java

ROWS = 2_000_000
ROUNDS = 2
KEYS = (100_000, 1_000_000)
JOINS = ("interval", "as-of")
_ROOT = Path(__file__).parents[1]
_FEW = 10
_MILLION = 1_000_000


class Case(NamedTuple):
    """A join, and how many keys there are."""

    join: str
    keys: int

    @property
    def name(self) -> str:
        """The name in results."""
        return f"{self.join.replace('-', '_')}_{self.keys // 1_000}k"


@dataclass(frozen=True, slots=True)
class Entrant:
    """A system of the comparison: its command, its lines for a question, and its totals."""

    name: str
    command: list[str]
    environment: Mapping[str, str] | None = None
    settings: tuple[str, ...] = ()
    lines: Callable[[Question, int], list[str]] = lambda question, _: [question.line()]
    totals: Callable[[str], list[Total]] = read_totals


class Round(NamedTuple):
    """The costs of all rows, and of a tenth of them; ``rows`` are those of both sides."""

    rows: int
    all_of_them: Cost
    few_of_them: Cost

    @property
    def cpu_s(self) -> float:
        """CPU seconds for a million rows, with start and end of the run."""
        return self.all_of_them.cpu_s / self.rows * _MILLION

    @property
    def further_cpu_s(self) -> float:
        """CPU seconds for a million more rows."""
        further = self.rows - self.rows // _FEW
        return (self.all_of_them.cpu_s - self.few_of_them.cpu_s) / further * _MILLION


Rounds = Mapping[str, list[Round]]
"""The rounds of a case, by system."""


def joins() -> list[Result]:
    """Join orders and prices: Laminar, one core of numpy, Polars and DuckDB, and Flink SQL."""
    return measure(ROWS, ROUNDS)


def measure(rows: int, rounds: int) -> list[Result]:
    """Let all systems join so many rows of each side, in so many rounds, and compare the results.

    Raises:
        RuntimeError: a system found something else than the others.
    """
    folder = _ROOT / "build" / "benchmark-joins"
    shutil.rmtree(folder, ignore_errors=True)
    for keys in KEYS:
        write_rows(folder / f"all-{keys}", rows, keys)
        write_rows(folder / f"few-{keys}", rows // _FEW, keys)
    cases = [Case(join, keys) for join in JOINS for keys in KEYS]
    with ExitStack() as stack:
        entrants = list(_entrants(folder))
        turns = _Turns(folder, 2 * rows)
        systems = [(e, stack.enter_context(_start(e, folder))) for e in entrants]
        for case in cases:
            for entrant, system in systems:  # Warms the system.
                turns.join(entrant, system, case, "few")
            for _ in range(rounds):
                for entrant, system in systems:
                    turns.take(entrant, system, case)
    return [result for case in cases for result in _results(case, turns.found[case])]


class _Turns:
    """Gives each system its turn."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder = folder
        self._rows = rows
        self._number = 0
        self._expected: dict[tuple[Case, str], tuple[str, list[Total]]] = {}
        """The totals of the first system that answered, and its name."""
        self.found: dict[Case, dict[str, list[Round]]] = {}

    def take(self, entrant: Entrant, system: System, case: Case) -> None:
        """Join a tenth of the rows, and all of them."""
        few, every = (self.join(entrant, system, case, size) for size in ("few", "all"))
        took = ", ".join(
            f"{cost.wall_s:.2f} s ({cost.cpu_s:.2f} s of CPU)" for cost in (few, every)
        )
        click.echo(f"joins: {case.name}: {entrant.name}: {took}", err=True)
        of_case = self.found.setdefault(case, {})
        of_case.setdefault(entrant.name, []).append(Round(self._rows, every, few))

    def join(self, entrant: Entrant, system: System, case: Case, size: str) -> Cost:
        """Join the rows of this size, and compare the result."""
        self._number += 1
        output = str(self._folder / f"{entrant.name}-{self._number}")
        question = Question(case.join, str(self._folder / f"{size}-{case.keys}"), output)
        cost = system.work(*entrant.lines(question, self._number))
        totals = entrant.totals(output)
        first, expected = self._expected.setdefault((case, size), (entrant.name, totals))
        if totals != expected or not totals:
            raise RuntimeError(f"{case.name}, {size}: {entrant.name} and {first} differ")
        return cost


def _start(entrant: Entrant, folder: Path) -> System:
    system = System(entrant.command, folder / f"{entrant.name}.log", entrant.environment)
    for line in entrant.settings:
        system.work(line)
    return system


# --- who takes part -------------------------------------------------------------------------------


def _entrants(folder: Path) -> Iterator[Entrant]:
    """Yield all systems that are here, and name those that are not."""
    python = [sys.executable, "-m"]
    yield Entrant("laminar", [*python, "benchmarks.join_systems.job", str(folder / "laminar")])
    batch = [*python, "benchmarks.join_systems.batch"]
    yield Entrant("numpy", [*batch, "numpy"])
    for engine in ("polars", "duckdb"):
        if is_there(engine, "joins"):
            yield Entrant(engine, [*batch, engine], python_environment(engine, 1))
    if is_there("flink", "joins"):
        hadoop = Path(pyspark.__file__).with_name("jars")
        command = flink_sql.command(ensure_java() / "bin" / "java", PEERS / "flink", hadoop)
        settings = tuple(flink_sql.settings(folder / "flink"))
        yield Entrant(
            "flink_sql",
            command,
            settings=settings,
            lines=flink_sql.statements,
            totals=flink_sql.totals,
        )


# --- figures --------------------------------------------------------------------------------------


def _results(case: Case, found: Rounds) -> Iterator[Result]:
    for name, rounds in found.items():
        speed = [r.rows / r.all_of_them.wall_s for r in rounds]
        yield Result.of_rounds(f"{case.name}_{name}", speed, "rows/s", "higher")
        unit = "s of CPU per million rows"
        cpu_s = [r.cpu_s for r in rounds]
        yield Result.of_rounds(f"{case.name}_{name}_cpu", cpu_s, unit, "lower")
        further = [r.further_cpu_s for r in rounds]
        yield Result.of_rounds(f"{case.name}_{name}_cpu_further", further, unit, "lower")
    for name, rounds in found.items():
        if name != "laminar":
            pairs = list(zip(found["laminar"], rounds, strict=True))
            ratios = {
                "": [mine.cpu_s / theirs.cpu_s for mine, theirs in pairs],
                "_further": [mine.further_cpu_s / theirs.further_cpu_s for mine, theirs in pairs],
            }
            for what, values in ratios.items():
                result = f"{case.name}_laminar_to_{name}{what}"
                yield Result.of_rounds(result, values, "ratio of CPU", "lower")


def main() -> None:
    """Print the results as ``laminar bench --json`` does, in one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    print_record("joins", lambda: measure(given.rows, given.rounds))


if __name__ == "__main__":
    main()
