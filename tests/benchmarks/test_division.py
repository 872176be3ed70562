"""The benchmark of division compares ways that give each receiver the same rows."""

import pyarrow as pa
import pytest

from benchmarks.division import batch_of, by_scans, by_sorting, joined


@pytest.mark.parametrize("workers", [2, 16, 300])
def test_both_ways_give_each_receiver_the_same_rows(workers: int) -> None:
    batch = batch_of(2_000)
    assert list(by_scans(batch, workers)) == list(by_sorting(batch, workers))


def test_collected_batches_have_all_rows_in_order() -> None:
    batches = [batch_of(rows) for rows in (100, 9_000, 2_000, 2_000, 100, 100)]
    out = joined(batches, 4)
    assert [batch.num_rows for batch in out] == [100, 9_000, 4_100, 100]
    assert pa.Table.from_batches(out) == pa.Table.from_batches(batches)
