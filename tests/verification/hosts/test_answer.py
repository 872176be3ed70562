"""The answer of the payments is Arrow's, and output that differs from it is found."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verification.hosts import answer
from verification.hosts.answer import PaymentsAnswer, aggregate, rows_of
from verification.hosts.waiting import HostsError

MINUTE_US = 60_000_000
RIGHT = frozenset({("a", 0, 2, 30, 10, 20), ("b", 0, 1, 5, 5, 5)})


def test_payments_are_summed_by_merchant_and_window(tmp_path: Path) -> None:
    times = pa.array([0, MINUTE_US, 6 * MINUTE_US], pa.timestamp("us", "UTC"))
    rows = pa.table({"merchant": ["a", "a", "a"], "amount_cents": [10, 20, 5], "paid_at": times})
    pq.write_table(rows, tmp_path / "rows.parquet")
    found = sorted((merchant, *numbers) for merchant, _, *numbers in rows_of(aggregate(tmp_path)))
    assert found == [("a", 1, 5, 5, 5), ("a", 2, 30, 10, 20)]


def committed(monkeypatch: pytest.MonkeyPatch, *rows: tuple) -> None:
    names = ["merchant", "window_start", "payments", "total_cents", "min_cents", "max_cents"]
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    monkeypatch.setattr(answer, "read_committed", lambda _: table)


def test_output_may_be_incomplete_while_the_job_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = PaymentsAnswer(tmp_path, tmp_path, RIGHT)
    committed(monkeypatch, ("a", 0, 2, 30, 10, 20))
    assert found.check_so_far() == 1
    with pytest.raises(HostsError, match="1 rows of 2"):
        found.check()
    committed(monkeypatch, *RIGHT)
    assert found.check() == 2


@pytest.mark.parametrize(
    "row", [("a", 0, 2, 30, 10, 20), ("a", 0, 1, 10, 10, 10), ("c", 0, 1, 5, 5, 5)]
)
def test_a_row_that_is_doubled_or_wrong_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, row: tuple
) -> None:
    committed(monkeypatch, ("a", 0, 2, 30, 10, 20), row)
    with pytest.raises(HostsError, match=r"twice|wrong"):
        PaymentsAnswer(tmp_path, tmp_path, RIGHT).check_so_far()


def test_no_output_yet_is_no_mistake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert PaymentsAnswer(tmp_path, tmp_path / "output", RIGHT).check_so_far() == 0
    monkeypatch.setattr(answer, "read_committed", lambda _: pa.table({}))
    assert PaymentsAnswer(tmp_path, tmp_path, RIGHT).check_so_far() == 0
