"""The comparison finds every kind of wrong row, and agrees with Spark on what is right."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.oracle import DIFFERENCES_MAX, batch_answer, compare

AT = datetime(2026, 1, 1, 12, 5, tzinfo=UTC)
END = datetime(2026, 1, 1, 12, 10, tzinfo=UTC)


def answer(*rows: tuple[str, int], kind: pa.DataType | None = None) -> pa.Table:
    """Shape (len(rows), merchant | window_start | payments)."""
    merchants, counts = zip(*rows, strict=True) if rows else ((), ())
    return pa.table(
        {
            "merchant": pa.array(merchants, pa.string()).cast(kind or pa.string()),
            "window_start": pa.array([AT] * len(rows), pa.timestamp("us", "UTC")),
            "payments": pa.array(counts, pa.int64()),
        }
    )


def test_the_order_of_rows_does_not_count() -> None:
    assert compare(answer(("a", 1), ("b", 2)), answer(("b", 2), ("a", 1))).exact


def test_the_encoding_of_strings_does_not_count() -> None:
    encoded = answer(("a", 1), kind=pa.dictionary(pa.int32(), pa.string()))
    assert compare(answer(("a", 1)), encoded).exact


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (answer(("a", 1)), "b at 2026-01-01 12:05 is missing"),
        (answer(), "a at 2026-01-01 12:05 is missing"),
        (answer(("a", 1), ("b", 3)), "b at 2026-01-01 12:05: payments is 3 instead of 2"),
        (
            answer(("a", 1), ("b", 2), ("c", 1)),
            "c at 2026-01-01 12:05 should not be there",
        ),
        (answer(("a", 1), ("b", 2), ("b", 2)), "b at 2026-01-01 12:05 is there 2 times"),
    ],
)
def test_every_kind_of_difference_is_found_and_named(found: pa.Table, difference: str) -> None:
    comparison = compare(answer(("a", 1), ("b", 2)), found)
    assert not comparison.exact
    assert comparison.differences[0] == difference


def test_only_the_first_differences_are_reported() -> None:
    expected = answer(*((f"m{n}", n) for n in range(50)))
    assert len(compare(expected, answer()).differences) == DIFFERENCES_MAX


@pytest.mark.spark
def test_the_batch_query_aggregates_by_merchant_and_five_minutes(spark, tmp_path: Path) -> None:
    payments = pa.table(
        {
            "merchant": ["a", "a", "b"],
            "amount_cents": [100, 201, 7],
            "paid_at": pa.array([AT, AT, AT], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(payments, tmp_path / "part.parquet")
    rows = batch_answer(spark, tmp_path).sort_by("merchant").to_pylist()
    assert rows[0] == {
        "merchant": "a",
        "window_start": AT,
        "window_end": END,
        "payments": 2,
        "total_cents": 301,
        "min_cents": 100,
        "max_cents": 201,
        "average_cents": 150.5,
    }
    assert [row["merchant"] for row in rows] == ["a", "b"]
