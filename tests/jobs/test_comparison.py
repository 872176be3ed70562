"""The comparison of an example job's output with the answer."""

import pyarrow as pa
import pytest

from laminar_core.jobs.comparison import in_order, report


def test_equal_rows_are_equal_in_any_order_and_encoding() -> None:
    plain = pa.table({"key": ["b", "a", "a"], "n": [1, 3, None]})
    encoded = plain.take([2, 0, 1]).set_column(
        0, "key", pa.chunked_array([["a"], ["b", "a"]]).dictionary_encode()
    )
    assert in_order(encoded.append_column("more", [[1, 2, 3]]), plain.column_names) == in_order(
        plain, plain.column_names
    )


def test_a_value_too_few_or_another_one_is_a_difference(capsys: pytest.CaptureFixture) -> None:
    rows = pa.table({"n": [1, 2]})
    for other in (rows.slice(1), pa.table({"n": [1, 3]})):
        with pytest.raises(SystemExit) as left:
            report(other, rows, "totals")
        assert left.value.code == 1
        assert f"{other.num_rows} totals differ from 2 expected" in capsys.readouterr().out
    report(rows, rows, "totals")
    assert capsys.readouterr().out == "2 totals, exactly as expected\n"
