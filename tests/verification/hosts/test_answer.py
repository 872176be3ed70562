"""The answer of the payments is Arrow's, and output that differs from it is found."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verification.hosts import answer
from verification.hosts.answer import PAYMENTS, Answer, aggregate, prepare_loop, rows_of
from verification.hosts.waiting import HostsError

MINUTE_US = 60_000_000
NAMES = ("merchant", "window_start", "payments", "total_cents", "min_cents", "max_cents")
RIGHT = Counter([("a", 0, 2, 30, 10, 20), ("b", 0, 1, 5, 5, 5)])


def answer_in(output: Path) -> Answer:
    return Answer(PAYMENTS, output, output, NAMES, RIGHT)


def test_payments_are_summed_by_merchant_and_window(tmp_path: Path) -> None:
    times = pa.array([0, MINUTE_US, 6 * MINUTE_US], pa.timestamp("us", "UTC"))
    rows = pa.table({"merchant": ["a", "a", "a"], "amount_cents": [10, 20, 5], "paid_at": times})
    pq.write_table(rows, tmp_path / "rows.parquet")
    found = sorted((merchant, *numbers) for merchant, _, *numbers in rows_of(aggregate(tmp_path)))
    assert found == [("a", 1, 5, 5, 5), ("a", 2, 30, 10, 20)]


def committed(monkeypatch: pytest.MonkeyPatch, *rows: tuple) -> None:
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(NAMES)})
    monkeypatch.setattr(answer, "read_committed", lambda _: table)


def test_output_may_be_incomplete_while_the_job_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = answer_in(tmp_path)
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
    with pytest.raises(HostsError, match=r"too often|wrong"):
        answer_in(tmp_path).check_so_far()


def test_no_output_yet_is_no_mistake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert answer_in(tmp_path / "output").check_so_far() == 0
    monkeypatch.setattr(answer, "read_committed", lambda _: pa.table({}))
    assert answer_in(tmp_path).check_so_far() == 0


def test_a_row_may_be_there_as_often_as_it_has_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = ("a", 0, 2, 30, 10, 20)
    found = Answer(PAYMENTS, tmp_path, tmp_path, NAMES, Counter({row: 2}))
    committed(monkeypatch, row, row)
    assert found.check() == found.count == 2
    committed(monkeypatch, row, row, row)
    with pytest.raises(HostsError, match="1 are there too often"):
        found.check_so_far()


def test_a_job_is_told_its_folders_or_those_of_a_bucket(tmp_path: Path) -> None:
    found = Answer(PAYMENTS, tmp_path / "input", tmp_path / "output", NAMES, RIGHT)
    assert found.input_uri == str(tmp_path / "input")
    inside = replace(found, bucket="s3://bucket/job?endpoint_url=http://host:9000")
    assert inside.output_uri == "s3://bucket/job/output?endpoint_url=http://host:9000"


def test_a_loop_has_to_write_each_payment_with_its_outcome(tmp_path: Path) -> None:
    found = prepare_loop(tmp_path, 500)
    assert found.count == 500
    assert {len(row) for row in found.rows} == {6}
    assert {row[3] for row in found.rows} == {1, 2, 3, 4, 5}, "attempts"
