"""An answer is the same in any order and format, and another one if a row is."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.payments_systems.question import (
    COLUMNS,
    FILES,
    START_US,
    WINDOW_US,
    Answer,
    Question,
    answer_of,
    write_rows,
)

FIRST = ("merchant-07", START_US, 2, 300, 100, 200, 150.0)
SECOND = ("merchant-12", START_US + WINDOW_US, 1, 50, 50, 50, 50.0)


def table(*rows: tuple[object, ...], unit: str = "us") -> pa.Table:
    columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    start = pa.array(columns.pop("window_start")).cast(pa.timestamp("us", "UTC"))
    return pa.table({**columns, "window_start": start.cast(pa.timestamp(unit, "UTC"))})


def written(folder: Path, *parts: pa.Table) -> Answer:
    folder.mkdir()
    (folder / "_metadata.json").write_text("{")
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number}.parquet", compression="zstd")
    return answer_of(str(folder))


def test_the_order_and_the_parts_do_not_matter(tmp_path: Path) -> None:
    answer = written(tmp_path / "one", table(FIRST, SECOND))
    assert answer[:3] == (2, 3, 350)
    assert answer == written(tmp_path / "two", table(SECOND), table(FIRST, unit="ms"))
    (tmp_path / "csv" / "nested").mkdir(parents=True)
    (tmp_path / "csv" / "nested" / "part-1").write_text(
        'merchant-07,"2026-01-01 00:00:00",2,300,100,200,150.0\n'
        'merchant-12,"2026-01-01 00:05:00",1,50,50,50,50.0\n'
    )
    (tmp_path / "csv" / "part-2").touch()
    assert answer == answer_of(str(tmp_path / "csv"))


def test_an_answer_that_is_compressed_otherwise_than_all_are_is_refused(tmp_path: Path) -> None:
    pq.write_table(table(FIRST), tmp_path / "0.parquet", compression="snappy")
    with pytest.raises(ValueError, match=r"answer with .*SNAPPY.*, not zstd"):
        answer_of(str(tmp_path))


def test_numbers_are_as_good_as_names(tmp_path: Path) -> None:
    numbered = table((7, *FIRST[1:]), (12, *SECOND[1:]))
    assert written(tmp_path / "a", numbered) == written(tmp_path / "b", table(FIRST, SECOND))


@pytest.mark.parametrize(
    ("column", "value"),
    [(0, "merchant-08"), (1, START_US + WINDOW_US), (4, 101), (5, 201), (6, 151.0)],
)
def test_another_row_is_another_answer(tmp_path: Path, column: int, value: object) -> None:
    other = (*FIRST[:column], value, *FIRST[column + 1 :])
    answer = written(tmp_path / "one", table(FIRST, SECOND))
    changed = written(tmp_path / "two", table(other, SECOND))
    assert answer[:3] == changed[:3]
    assert answer.mixed != changed.mixed


def test_swapped_values_of_two_rows_are_another_answer(tmp_path: Path) -> None:
    swapped = (*FIRST[:4], *SECOND[4:]), (*SECOND[:4], *FIRST[4:])
    answer = written(tmp_path / "one", table(FIRST, SECOND))
    assert answer.mixed != written(tmp_path / "two", table(*swapped)).mixed


def test_rows_of_one_window_are_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_rows(tmp_path / name, 1_000, 5)
    one, two = (pq.read_table(tmp_path / name) for name in ("one", "two"))
    assert one.equals(two)
    assert len(Question(str(tmp_path / "one"), "", 1).files()) == FILES
    times = one.column("paid_at").cast(pa.int64()).to_pylist()
    assert {time // WINDOW_US for time in times} == {START_US // WINDOW_US}
    assert {*one.column("merchant").to_pylist()} == {0, 1, 2, 3, 4}


def test_a_line_is_read_as_it_was_written() -> None:
    question = Question("a \n folder", "out", 8)
    assert Question.of(question.line()) == question
    assert "\n" not in question.line()
