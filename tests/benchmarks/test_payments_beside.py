"""Systems are compared round by round, on equal answers, and tables find all figures."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import payments_beside
from benchmarks.page_tables import TABLES
from benchmarks.payments_beside import (
    BYTEWAX,
    CEILING,
    FLINK,
    KEYS,
    LAMINAR,
    OTHERS,
    UNVERIFIED,
    WORKERS,
    Case,
    Found,
    beside_results,
    entrants,
    generator_results,
    speed_results,
    workers_results,
)
from benchmarks.payments_systems.question import START_US, Question
from benchmarks.result import Result
from benchmarks.topics.system import Cost, SystemFailedError

SYSTEMS = (LAMINAR, *OTHERS)


def found(*systems: str, rounds: int = 2) -> Found:
    """A system that comes later is slower, and its second round takes twice the time."""
    costs = {
        name: [Cost(wall_s=(1.0 + place) * (1 + n), cpu_s=1.0) for n in range(rounds)]
        for place, name in enumerate(systems)
    }
    return Found(1_000_000, costs, answers=rounds * len(systems))


def by_name(results: list[Result]) -> dict[str, Result]:
    return {result.name: result for result in results}


def test_ratios_are_of_one_round_and_the_best_engine_counts() -> None:
    flink = found(LAMINAR, FLINK)
    results = by_name(
        list(beside_results({"payments_beside": found(*SYSTEMS), "payments_beside_12m": flink}))
    )
    assert results["payments_beside_laminar"].values == (1_000_000, 500_000)
    assert results["payments_beside_by_hand_ratio"].values == (2.0, 2.0)
    assert results["payments_beside_whole_files_ratio"].values == (3.0, 3.0)  # To DuckDB.
    assert results["payments_beside_12m_flink_sql_ratio"].value == 2.0
    assert results["payments_beside_equal_answers"].value == 10
    targets = {name: result.target for name, result in results.items() if result.target}
    assert targets == {
        "payments_beside_by_hand_ratio": 0.7,
        "payments_beside_whole_files_ratio": 1.3,
    }


def test_without_verification_of_pages_there_is_a_ratio_to_each_other_system() -> None:
    of_all = found(UNVERIFIED, LAMINAR, CEILING, "duckdb")
    results = by_name(
        list(beside_results({"payments_beside": of_all, "payments_beside_12m": found(LAMINAR)}))
    )
    assert results["payments_beside_unverified_to_by_hand"].values == (3.0, 3.0)
    assert results["payments_beside_unverified_to_duckdb"].values == (4.0, 4.0)
    assert results["payments_beside_unverified_ratio"].values == (0.5, 0.5)  # Of Laminar to it.
    assert "payments_beside_unverified_to_polars" not in results


def test_only_one_of_both_programs_is_asked_not_to_verify() -> None:
    both = entrants("it", (LAMINAR, UNVERIFIED), 2, named=True)
    assert {each.name: "unverified" in each.command for each in both} == {
        LAMINAR: False,
        UNVERIFIED: True,
    }


def test_systems_that_are_absent_are_left_out() -> None:
    alone = {name: found(LAMINAR) for name in ("payments_beside", "payments_beside_12m")}
    assert not [r.name for r in beside_results(alone) if r.name.endswith("_ratio")]


def test_generated_payments_have_a_ratio_to_bytewax() -> None:
    results = by_name(list(generator_results(found(LAMINAR, BYTEWAX))))
    ratio = results["generator_to_bytewax"]
    assert (ratio.values, ratio.target) == ((2.0, 2.0), 2.0)
    assert not [name for name in results if name.endswith("_ratio")]
    assert "generator_to_bytewax" not in by_name(list(generator_results(found(LAMINAR))))


def test_the_gain_of_a_second_worker_is_that_of_one_round() -> None:
    slow = found(LAMINAR, CEILING)
    fast = Found(1_000_000, {LAMINAR: [Cost(0.5, 1.0)], CEILING: [Cost(1.0, 1.0)]})
    results = by_name(
        list(workers_results({"payments_workers_1": slow, "payments_workers_2": fast}))
    )
    assert results["second_worker_laminar"].values == (2.0,)
    assert results["second_worker_by_hand"].values == (2.0,)


def test_every_cell_of_the_tables_of_growth_has_a_figure() -> None:
    results = [
        *(r for n in KEYS for r in speed_results(f"payments_keys_{n}", found(*SYSTEMS))),
        *(r for n in WORKERS for r in speed_results(f"payments_workers_{n}", found(*SYSTEMS))),
    ]
    shown = {
        template.format(word)
        for table in (TABLES["payments-keys"], TABLES["payments-workers"])
        for word in table.rows.values()
        for template in table.columns.values()
    }
    assert shown <= by_name(results).keys()


def test_absent_systems_are_named(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("benchmarks.peers.PEERS", tmp_path)
    (tmp_path / "duckdb.absent").write_text("no such version\n")
    names = [e.name for e in entrants("it", (*SYSTEMS, FLINK), 2, named=True)]
    assert names == [LAMINAR, CEILING]
    said = capsys.readouterr().err
    assert "it: without duckdb: no such version" in said
    assert "it: without flink: make peers gets it" in said


class Writes:
    """A system that answers with so many payments, or not at all."""

    def __init__(self, payments: int | None) -> None:
        self.payments = payments

    def work(self, line: str) -> Cost:
        question = Question.of(line)
        if self.payments is None:
            raise SystemFailedError("it ended: no memory")
        row = {
            "merchant": [1],
            "window_start": pa.array([START_US]).cast(pa.timestamp("us", "UTC")),
            "payments": [self.payments],
            "total_cents": [5],
            "min_cents": [1],
            "max_cents": [4],
            "average_cents": [2.5],
        }
        Path(question.output).mkdir(parents=True)
        pq.write_table(pa.table(row), Path(question.output) / "0.parquet", compression="zstd")
        return Cost(1.0, 1.0)


@pytest.fixture
def turns(tmp_path: Path, monkeypatch) -> payments_beside._Turns:
    monkeypatch.setattr(payments_beside, "_ROOT", tmp_path / "beside")
    return payments_beside._Turns("it", 2)


def put(turns: payments_beside._Turns, **systems: Writes) -> list[Case]:
    turns._systems = [
        (payments_beside.Entrant(name, []), system)
        for name, system in systems.items()  # pyright: ignore[reportAttributeAccessIssue]
    ]
    return [Case("it", Path("rows"), 2)]


def test_a_wrong_answer_ends_the_benchmark(turns) -> None:
    cases = put(turns, laminar=Writes(2), duckdb=Writes(3))
    with pytest.raises(RuntimeError, match="duckdb answers Answer"):
        turns.measure(cases, [])
    cases = put(turns, laminar=Writes(1))
    turns._answers.clear()
    with pytest.raises(RuntimeError, match="payments=1"):
        turns.measure(cases, [])


def test_a_system_that_does_not_answer_is_left_out_from_there_on(turns, capsys) -> None:
    cases = put(turns, laminar=Writes(2), polars=Writes(None), duckdb=Writes(2))
    of_case = turns.measure(cases, [])["it"]
    assert {name: len(costs) for name, costs in of_case.costs.items()} == {
        LAMINAR: payments_beside.ROUNDS,
        "duckdb": payments_beside.ROUNDS,
    }
    assert of_case.answers == 2 * payments_beside.ROUNDS
    assert capsys.readouterr().err.count("without polars from here: it ended: no memory") == 1
    with pytest.raises(SystemFailedError):
        turns.measure(put(turns, laminar=Writes(None)), [])
