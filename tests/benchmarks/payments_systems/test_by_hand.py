"""The answer by hand is the answer of a loop over all rows, by any number of processes."""

from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.payments_systems.by_hand import answer, merged, read_part
from benchmarks.payments_systems.question import Question, answer_of, write_rows
from laminar_core.jobs.payments_data import write_payments


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Payments of several windows, whose merchants have names."""
    folder = tmp_path_factory.mktemp("rows") / "payments"
    write_payments(folder, rows=3_000, files=4, merchants=40, events_per_second=3)
    return folder


def by_a_loop(folder: Path) -> set[tuple[object, ...]]:
    found = defaultdict(list)
    for row in pq.read_table(folder).to_pylist():
        minute = row["paid_at"].minute // 5 * 5
        start = row["paid_at"].replace(minute=minute, second=0, microsecond=0)
        found[row["merchant"], start].append(row["amount_cents"])
    return {
        (*key, len(cents), sum(cents), min(cents), max(cents), sum(cents) / len(cents))
        for key, cents in found.items()
    }


@pytest.mark.parametrize("parts", [1, 3])
def test_it_is_the_answer_of_a_loop(rows: Path, parts: int) -> None:
    files = Question(str(rows), "", parts).files()
    table = merged([read_part(files, part, parts) for part in range(parts)])
    assert {*zip(*table.to_pydict().values(), strict=True)} == by_a_loop(rows)


def test_merchants_with_numbers_are_found_by_them(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", 2_000, 20_000)
    question = Question(str(tmp_path / "rows"), str(tmp_path / "out"), 1)
    answer(question, None)
    found = answer_of(question.output)
    numbers = pq.read_table(tmp_path / "rows").column("merchant").to_pylist()
    assert (found.rows, found.payments) == (len({*numbers}), 2_000)
    halves = merged([read_part(question.files(), part, 2) for part in range(2)])
    (tmp_path / "halves").mkdir()
    pq.write_table(halves, tmp_path / "halves" / "0.parquet", compression="zstd")
    assert answer_of(str(tmp_path / "halves")) == found
