"""The totals that the demo compares with, computed once more row by row."""

from collections import defaultdict

from examples.kafka_to_kafka.topic import payments, totals


def test_totals_are_those_of_each_merchant_and_window() -> None:
    table = payments(3_000)
    expected = defaultdict(list)
    for row in table.to_pylist():
        seconds = int(row["paid_at"].timestamp())
        expected[row["merchant"], seconds - seconds % 300].append(row["amount_cents"])
    found = totals(table).to_pylist()
    assert len(found) == len(expected) > 100
    for row in found:
        cents = expected[row["merchant"], int(row["window_start"].timestamp())]
        assert (row["payments"], row["total_cents"]) == (len(cents), sum(cents))
        assert (row["min_cents"], row["max_cents"]) == (min(cents), max(cents))
        assert (row["window_end"] - row["window_start"]).total_seconds() == 300
