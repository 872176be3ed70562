"""The rows that all systems join, and the lines in which they are asked."""

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.join_systems.question import (
    FILES,
    LEFT,
    LEFT_SCHEMA,
    RIGHT,
    RIGHT_SCHEMA,
    Question,
    read_totals,
    write_rows,
    write_totals,
)


def test_rows_alternate_between_files_and_no_price_ties_with_another(tmp_path: Path) -> None:
    write_rows(tmp_path, 1_000, 5)
    for side, schema in ((LEFT, LEFT_SCHEMA), (RIGHT, RIGHT_SCHEMA)):
        files = [pq.read_table(tmp_path / side / f"{n}.parquet") for n in range(FILES)]
        assert all(table.schema == schema for table in files)
        assert abs(files[0].num_rows - files[1].num_rows) <= 1
        for table in files:
            times = table.column(schema.names[-1]).to_pylist()
            assert times == sorted(times)
    prices = pq.read_table(tmp_path / RIGHT)
    places = list(zip(*prices.select(["key", "priced_at"]).to_pydict().values(), strict=True))
    assert len(set(places)) == len(places)


def test_a_line_is_read_as_it_was_written() -> None:
    question = Question("as-of", "a folder", "out \n put")
    assert Question.of(question.line()) == question
    assert "\n" not in question.line()


def test_totals_are_read_in_order(tmp_path: Path) -> None:
    path = str(tmp_path / "totals")
    write_totals(path, [(2, 0, 1, 5, 7), (1, 60_000, 3, 4, 5)])
    assert read_totals(path) == [(1, 60_000, 3, 4, 5), (2, 0, 1, 5, 7)]
