"""Tables show medians, ranges and targets, and where the figures come from."""

import pytest

from benchmarks.tables import ONE_COLUMN, Table, caption, markdown, plain_table, shown
from tests.benchmarks.test_record import record

GRID = Table("fast", {"it": "speed", "else": "none"}, {"of it": "{}", "of the other": "no_{}"})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (14_012_345.0, "14.0 M"),
        (999_999.0, "1.00 M"),
        (143_977.2, "144,000"),
        (999.7, "1,000"),
        (10.96, "11.0"),
        (0.0105, "0.0105"),
        (0.0, "0"),
        (16.0, "16"),
        (-9.4, "-9.40"),
    ],
)
def test_numbers_have_three_digits_that_count(value: float, words: str) -> None:
    assert shown(value) == words


def test_a_list_has_columns_for_range_unit_and_target() -> None:
    table = Table("fast", {"how fast": "speed", "how long": "pause"}, ONE_COLUMN)
    assert markdown(table, record()).splitlines() == [
        "| figure | median | lowest to highest | unit | target |",
        "|---|---|---|---|---|",
        "| how fast | 20 | 10 to 30 | rows/s | at least 25: missed |",
        "| how long | 4 | | ms | |",
    ]


def test_columns_that_would_be_empty_are_left_out() -> None:
    lines = markdown(Table("fast", {"how long": "pause"}, ONE_COLUMN), record()).splitlines()
    assert lines == ["| figure | median | unit |", "|---|---|---|", "| how long | 4 | ms |"]


def test_a_cell_of_a_grid_has_its_range_or_is_empty() -> None:
    assert markdown(GRID, record()).splitlines() == [
        "| figure | of it | of the other |",
        "|---|---|---|",
        "| it | 20 (10 to 30) | |",
        "| else | | |",
    ]


def test_a_benchmark_without_a_table_lists_its_figures_by_name() -> None:
    assert plain_table(record()).rows == {"`speed`": "speed", "`pause`": "pause"}


def test_the_caption_says_how_when_where_and_how_busy() -> None:
    assert caption(record()) == (
        "Measured with `laminar bench fast`, once, on 2026-11-28 at 09:30 UTC, on 2 cores and "
        "24 GiB (Linux x86_64, Python 3.11.7, Java 17.0.15, PySpark 4.3.0, pyarrow 26.0.1, "
        "Laminar 0.1.0). Load: 0.5 before, 1.5 after. Values: "
        "[fast.json](../benchmarks/results/fast.json).\n"
    )
    idle = record(load_before=None, load_after=None, conditions="nothing else ran", runs=3)
    assert ", 3 times, on" in caption(idle)
    assert "Load: not noted; nothing else ran. Values" in caption(idle)
