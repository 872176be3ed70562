"""Rows on a terminal: aligned, one line each, and a word if there are none."""

import pyarrow as pa

from laminar_core.pipeline.shown import VALUE_LENGTH_MAX, table_lines


def test_columns_are_aligned_and_nulls_are_empty():
    rows = pa.table({"merchant": ["a", None], "cents": [5, 12]})
    assert list(table_lines(rows)) == ["merchant  cents", "a         5", "          12"]


def test_a_value_stays_in_its_line_and_is_cut_at_a_length():
    (_, first, second) = table_lines(pa.table({"text": ["a\nb", "x" * 100]}))
    assert (first, len(second)) == ("a\\nb", VALUE_LENGTH_MAX)


def test_a_table_without_rows_says_so():
    assert list(table_lines(pa.table({"n": pa.array([], pa.int64())}))) == ["n", "(no rows)"]
