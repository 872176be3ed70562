"""The payments job beside others: the same files, the same question, one run.

Laminar (``jobs/payments.py`` in Spark, a checkpoint every second), numpy and pyarrow written by
hand with a process per worker (the ceiling), engines that have whole files (DuckDB, Polars,
DataFusion), and Flink SQL. Laminar also takes part without verification of pages, which no other
system does. All systems stay up and take turns, so each is warm, and other work on
the machine meets all of them. The ratio within a round is the figure. Every answer is compared with
the first system's before anything is reported. ``make peers`` gets the others; what is not
there is named and left out. After ``BUDGET_S`` no further round begins, and a system that takes ten
minutes for an answer is left out from there on.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Series
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Self

import click
import pyspark

from benchmarks import dataset
from benchmarks.join_systems import flink_sql as flink
from benchmarks.payments_systems import flink_sql
from benchmarks.payments_systems.generated import write_note
from benchmarks.payments_systems.question import Answer, Question, answer_of, write_rows
from benchmarks.peers import PEERS, is_there, python_environment
from benchmarks.result import Result
from benchmarks.topics.system import Cost, System, SystemFailedError
from laminar_core.spark.jvm import ensure_java

WORKERS = (1, 2, 4, 8)
KEYS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
KEYS_ROWS = 12_000_000
GENERATED_KEYS = 10_000
FLINK_ROWS = 12_000_000
"""So few that a round of Flink SQL does not take a minute."""
WARM_ROWS = 1_200_000
ROUNDS = 5
BUDGET_S = 240.0
TWO = 2
LAMINAR, CEILING, FLINK, BYTEWAX = "laminar", "by_hand", "flink_sql", "bytewax"
UNVERIFIED = "unverified"
"""Laminar without verification of pages, which no other system does."""
WHOLE_FILES = ("duckdb", "polars", "datafusion")
OTHERS = (CEILING, *WHOLE_FILES)
TO_CEILING, TO_WHOLE_FILES, SECOND_WORKER, TO_BYTEWAX = 0.7, 1.3, 1.7, 2.0
"""The targets of ratios."""
_BESIDE, _FLINK, _GENERATOR = "payments_beside", "payments_beside_12m", "generator"
_MILLION = 1_000_000
_ROOT = dataset.ROOT / "beside"


@dataclass(frozen=True, slots=True)
class Entrant:
    """A system of the comparison: its command, and its lines for a question."""

    name: str
    command: list[str]
    environment: Mapping[str, str] | None = None
    settings: tuple[str, ...] = ()
    lines: Callable[[Question, int], list[str]] = lambda question, _: [question.line()]


@dataclass(frozen=True, slots=True)
class Case:
    """Rows, and the number of workers that answer."""

    name: str
    folder: Path
    rows: int
    workers: int = TWO
    systems: tuple[str, ...] = (LAMINAR, *OTHERS)
    """Who answers, of those that are here."""


@dataclass(slots=True)
class Found:
    """The costs of a case, by system and round."""

    rows: int
    costs: dict[str, list[Cost]] = field(default_factory=dict[str, list[Cost]])
    answers: int = 0
    """How many answers were compared, and equal."""

    def speeds(self, name: str) -> list[float]:
        """Return rows per second of each round."""
        return [self.rows / cost.wall_s for cost in self.costs.get(name, [])]


def beside() -> list[Result]:
    """Payments beside numpy in two processes, DuckDB, Polars, DataFusion and Flink SQL."""
    rows = dataset.THROUGHPUT_ROWS
    cases = [
        Case(_BESIDE, dataset.payments(rows), rows, systems=(LAMINAR, UNVERIFIED, *OTHERS)),
        Case(_FLINK, dataset.payments(FLINK_ROWS), FLINK_ROWS, systems=(LAMINAR, FLINK)),
    ]
    everybody = (LAMINAR, UNVERIFIED, *OTHERS, FLINK)
    few = Case("warm", dataset.payments(WARM_ROWS), WARM_ROWS, systems=everybody)
    with _Turns("payments-beside", TWO) as turns:
        turns.start(everybody, named=True)
        found = turns.measure(cases, [few])
    return list(beside_results(found))


def generator() -> list[Result]:
    """Generated payments of merchants with numbers, beside Bytewax with Arrow written by hand."""
    cases = [_generated(dataset.THROUGHPUT_ROWS)]
    with _Turns("generator", TWO) as turns:
        turns.start((LAMINAR, BYTEWAX), named=False)
        found = turns.measure(cases, [_generated(WARM_ROWS)])
    return list(generator_results(found[_GENERATOR]))


def _generated(rows: int) -> Case:
    folder = dataset.ROOT / f"generated-{rows}"
    write_note(folder, rows, GENERATED_KEYS)
    return Case(_GENERATOR, folder, rows, systems=(LAMINAR, BYTEWAX))


def keys() -> list[Result]:
    """Payments of a thousand to ten million merchants, beside numpy, DuckDB and Polars."""
    cases = [_of_keys(count, KEYS_ROWS) for count in KEYS]
    with _Turns("payments-keys", TWO) as turns:
        turns.start((LAMINAR, *OTHERS), named=False)
        found = turns.measure(cases, [_of_keys(KEYS[0], WARM_ROWS)])
    return [result for name, of_case in found.items() for result in speed_results(name, of_case)]


def workers() -> list[Result]:
    """Payments with one to eight workers, beside as many processes of numpy, and DuckDB."""
    rows = dataset.RECOVERY_ROWS
    folder = dataset.payments(rows)
    cases = [Case(f"payments_workers_{n}", folder, rows, n) for n in WORKERS]
    warm = [Case("warm", dataset.payments(WARM_ROWS), WARM_ROWS, n) for n in WORKERS]
    with _Turns("payments-workers", max(WORKERS)) as turns:
        turns.start((LAMINAR, CEILING, "duckdb"), named=True)
        found = turns.measure(cases, warm)
    return list(workers_results(found))


def _of_keys(count: int, rows: int) -> Case:
    folder = dataset.ROOT / f"payments-{rows}-of-{count}"
    if not folder.exists():
        draft = dataset.fresh(f".{folder.name}")
        write_rows(draft, rows, count)
        draft.rename(folder)
    return Case(f"payments_keys_{count}", folder, rows)


# --- turns ----------------------------------------------------------------------------------------


class _Turns:
    """Starts the systems, and gives each its turn.

    Args:
        benchmark: its name, for messages.
        workers: the highest number of workers.
    """

    def __init__(self, benchmark: str, workers: int) -> None:
        self._benchmark = benchmark
        self._workers = workers
        self._systems: list[tuple[Entrant, System]] = []
        self._stack = ExitStack()
        self._number = 0
        self._answers: dict[Path, tuple[str, Answer]] = {}
        """The answer of the first system, by the folder with the rows."""

    def __enter__(self) -> Self:
        shutil.rmtree(_ROOT, ignore_errors=True)
        _ROOT.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        shutil.rmtree(_ROOT, ignore_errors=True)

    def start(self, names: Series[str], *, named: bool) -> None:
        """Start those of these systems that are here."""
        for entrant in entrants(self._benchmark, names, self._workers, named=named):
            log = _ROOT / f"{entrant.name}.log"
            system = self._stack.enter_context(System(entrant.command, log, entrant.environment))
            for line in entrant.settings:
                system.work(line)
            self._systems.append((entrant, system))

    def measure(self, cases: Series[Case], warm: Series[Case]) -> dict[str, Found]:
        """Let all systems answer: ``warm`` once without measuring, then rounds of all cases."""
        ends_s = perf_counter() + BUDGET_S
        for case in warm:
            self._round(case, Found(case.rows))
        found = {case.name: Found(case.rows) for case in cases}
        for number in range(ROUNDS):
            if number and perf_counter() > ends_s:
                break
            for case in cases:
                self._round(case, found[case.name])
        return found

    def _round(self, case: Case, found: Found) -> None:
        for entrant, system in list(self._systems):
            if entrant.name not in case.systems:
                continue
            try:
                cost = self._ask(entrant, system, case)
            except SystemFailedError as error:
                if entrant.name in (LAMINAR, UNVERIFIED):
                    raise
                said = f"{self._benchmark}: {case.name}: without {entrant.name} from here: {error}"
                click.echo(said, err=True)
                self._systems.remove((entrant, system))
            else:
                found.costs.setdefault(entrant.name, []).append(cost)
                found.answers += 1

    def _ask(self, entrant: Entrant, system: System, case: Case) -> Cost:
        """Let one system answer, compare the answer, and delete it.

        Raises:
            RuntimeError: it answers otherwise than the first system, or not about all rows.
            SystemFailedError: it does not answer.
        """
        self._number += 1
        output = _ROOT / f"{entrant.name}-{self._number}"
        question = Question(str(case.folder.absolute()), str(output.absolute()), case.workers)
        cost = system.work(*entrant.lines(question, self._number))
        answer = answer_of(question.output)
        shutil.rmtree(output)
        first, expected = self._answers.setdefault(case.folder, (entrant.name, answer))
        if answer != expected or answer.payments != case.rows:
            raise RuntimeError(
                f"{case.name}: {entrant.name} answers {answer}, {first} answers {expected}"
            )
        took = f"{cost.wall_s:.2f} s ({cost.cpu_s:.2f} s of CPU)"
        click.echo(f"{self._benchmark}: {case.name}: {entrant.name}: {took}", err=True)
        return cost


# --- who takes part -------------------------------------------------------------------------------


def entrants(benchmark: str, names: Series[str], workers: int, *, named: bool) -> Iterator[Entrant]:
    """Yield those of these systems that are here; name those that are not.

    ``named``: merchants have names, not numbers.
    """
    python = [sys.executable, "-m"]
    systems = "benchmarks.payments_systems"
    stores = str(_ROOT / "stores")
    if LAMINAR in names:
        yield Entrant(LAMINAR, [*python, f"{systems}.job", stores, str(workers)])
    if UNVERIFIED in names:
        command = [*python, f"{systems}.job", f"{stores}-{UNVERIFIED}", str(workers), UNVERIFIED]
        yield Entrant(UNVERIFIED, command)
    if CEILING in names:
        yield Entrant(CEILING, [*python, f"{systems}.by_hand", str(workers)])
    for engine in (engine for engine in WHOLE_FILES if engine in names):
        if is_there(engine, benchmark):
            environment = python_environment(engine, TWO)
            yield Entrant(engine, [*python, f"{systems}.whole_files", engine], environment)
    if BYTEWAX in names and is_there("bytewax", benchmark):
        command = [*python, f"{systems}.bytewax_flow", stores, str(workers)]
        yield Entrant(BYTEWAX, command, python_environment("bytewax", TWO))
    if FLINK in names and is_there("flink", benchmark):
        yield _flink(named=named)


def _flink(*, named: bool) -> Entrant:
    hadoop = Path(pyspark.__file__).with_name("jars")
    command = flink.command(ensure_java() / "bin" / "java", PEERS / "flink", hadoop)

    def lines(question: Question, number: int) -> list[str]:
        return flink_sql.statements(question, number, named=named)

    settings = tuple(flink.settings(_ROOT / "flink"))
    return Entrant(FLINK, command, settings=settings, lines=lines)


# --- figures --------------------------------------------------------------------------------------


def speed_results(name: str, found: Found) -> Iterator[Result]:
    """Yield speed and CPU of each system, and Laminar's speed relative to the others."""
    for system, costs in found.costs.items():
        yield Result.of_rounds(f"{name}_{system}", found.speeds(system), "rows/s", "higher")
        cpu_s = [cost.cpu_s / found.rows * _MILLION for cost in costs]
        unit = "s of CPU per million rows"
        yield Result.of_rounds(f"{name}_{system}_cpu", cpu_s, unit, "lower")
    for system in found.costs:
        if system != LAMINAR:
            target = TO_CEILING if (name, system) == (_BESIDE, CEILING) else None
            yield _ratio(f"{name}_{system}_ratio", found, [system], target)
    yield Result(f"{name}_equal_answers", found.answers, "answers", "higher")


def beside_results(found: Mapping[str, Found]) -> Iterator[Result]:
    """Yield the figures of the comparison, and the ratio to the best engine of whole files."""
    for name, of_case in found.items():
        yield from speed_results(name, of_case)
    of_all = found[_BESIDE]
    others = [system for system in OTHERS if system in of_all.costs]
    if engines := [system for system in others if system in WHOLE_FILES]:
        yield _ratio(f"{_BESIDE}_whole_files_ratio", of_all, engines, TO_WHOLE_FILES)
    if UNVERIFIED in of_all.costs:
        for other in others:
            yield _ratio(f"{_BESIDE}_{UNVERIFIED}_to_{other}", of_all, [other], ours=UNVERIFIED)


def generator_results(found: Found) -> Iterator[Result]:
    """Yield speed and CPU of both systems, and the ratio of their speeds."""
    for result in speed_results(_GENERATOR, found):
        if result.name != f"{_GENERATOR}_{BYTEWAX}_ratio":
            yield result
    if BYTEWAX in found.costs:
        yield _ratio("generator_to_bytewax", found, [BYTEWAX], TO_BYTEWAX)


def workers_results(found: Mapping[str, Found]) -> Iterator[Result]:
    """Yield the figures of all numbers of workers, and the gain of the second one."""
    for name, of_case in found.items():
        yield from speed_results(name, of_case)
    one, two = (found[f"payments_workers_{count}"] for count in (1, TWO))
    for system in one.costs:
        speeds = zip(one.speeds(system), two.speeds(system), strict=False)
        target = SECOND_WORKER if system == LAMINAR else None
        gain = [second / first for first, second in speeds]
        yield Result.of_rounds(f"second_worker_{system}", gain, "ratio", "higher", target)


def _ratio(
    name: str,
    found: Found,
    systems: Series[str],
    target: float | None = None,
    ours: str = LAMINAR,
) -> Result:
    """Return the speed of ``ours`` to that of the fastest of these systems, round by round."""
    best = map(max, zip(*(found.speeds(system) for system in systems), strict=True))
    pairs = zip(found.speeds(ours), best, strict=False)  # One may have had fewer rounds.
    ratios = [speed / theirs for speed, theirs in pairs]
    return Result.of_rounds(name, ratios, "ratio", "higher", target)
