"""The benchmark of small batches compares every total with a sum over all rows."""

import pyarrow as pa
import pytest

from benchmarks import small


def rows(*pairs: tuple[str, int]) -> pa.RecordBatch:
    return pa.record_batch(
        {"merchant": [name for name, _ in pairs], "amount": [amount for _, amount in pairs]}
    )


def totals(*of: tuple[str, int, int, int]) -> pa.RecordBatch:
    columns = zip(*of, strict=True)
    return pa.record_batch(dict(zip(("merchant", *small._NAMES), map(list, columns), strict=True)))


def test_the_newest_total_of_each_key_counts() -> None:
    came = [rows(("a", 5), ("b", 1)), rows(("a", 2))]
    small._check(came, [totals(("a", 1, 5, 5), ("b", 1, 1, 1)), totals(("a", 2, 7, 5))])


@pytest.mark.parametrize("wrong", [("a", 2, 8, 5), ("a", 1, 7, 5), ("b", 2, 7, 5)])
def test_a_wrong_total_is_found(wrong: tuple[str, int, int, int]) -> None:
    with pytest.raises(AssertionError, match="a running total is wrong"):
        small._check([rows(("a", 5), ("a", 2))], [totals(wrong)])


def test_waits_are_counted_by_row_after_the_first_second() -> None:
    probe = small._Probe()
    at = pa.array([1_000_000], pa.timestamp("us", tz="UTC"))
    later = pa.array([2_500_000, 2_600_000], pa.timestamp("us", tz="UTC"))
    probe.given = [
        (1_001_000.0, pa.record_batch({"at": at})),
        (2_601_000.0, pa.record_batch({"at": later})),
    ]
    assert probe.waits_ms().tolist() == [101.0, 1.0]
