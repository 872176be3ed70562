"""Late rows and early results in real Spark: a worker dies, and each row is somewhere once."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, UniformInt
from laminar_core.host.clock import SystemClock
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from tests.spark.worker_kills import often, result_after_kills

pytestmark = pytest.mark.spark

ROWS, SECOND_US = 4_000, 1_000_000
START_US, LATE_BY_US, ROW_US = 1_700_000_000_000_000, 60 * SECOND_US, 300.0
SOURCE = DatagenSource(
    {"id": Sequence(), "shop": UniformInt(0, 20), "ts": EventTime(START_US, step_us=10_000)},
    rows=ROWS,
    splits=2,
    batch_rows=100,
)


def with_late_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One of many rows is a minute older than its neighbours."""
    row_id, shop, ts = batch.columns
    times = ts.cast(pa.int64())
    is_late = pc.equal(pc.bit_wise_and(row_id, 63), 0)
    older = pc.subtract(times, pc.multiply(is_late.cast(pa.int64()), LATE_BY_US))
    return pa.record_batch({"id": row_id, "shop": shop, "ts": older.cast(ts.type)})


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    SystemClock().wait_ms(batch.num_rows * ROW_US / 1000)
    return batch


def job() -> Pipeline:
    p = Pipeline("late-rows")
    schema = with_late_rows(SOURCE.rows_between(0, 1)).schema
    rows = p.source("in", SOURCE).map(with_late_rows, schema=schema).watermark("ts")
    totals = (
        rows.rebalance()
        .map(slow, name="slow")
        .key_by("shop")
        .window(windows.tumbling("5 seconds"), time="ts")
        .aggregate("totals", agg.count(), agg.sum("id"), early="1 second", late_rows=True)
    )
    totals.sink("out", CollectSink())
    totals.side("late").sink("late", CollectSink())
    return p


def expected(late: set[int]) -> dict[tuple[int, int], tuple[int, int]]:
    """Number of rows, and sum of ids, of each shop and window."""
    counts: Counter[tuple[int, int]] = Counter()
    sums: Counter[tuple[int, int]] = Counter()
    for row in with_late_rows(SOURCE.rows_between(0, ROWS)).to_pylist():
        if row["id"] not in late:
            second = int(row["ts"].timestamp())
            counts[row["shop"], second - second % 5] += 1
            sums[row["shop"], second - second % 5] += row["id"]
    return {place: (counts[place], sums[place]) for place in counts}


def test_a_worker_dies_and_each_row_is_counted_or_given_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    result = result_after_kills(job(), spark, often(tmp_path), checkpoints=4)

    late = [row["id"] for row in result.collected["late"].to_pylist()]
    assert len(late) == len(set(late)) == result.rows_late > 0
    found: dict[tuple[int, int], tuple[int, int]] = {}
    emitted = result.collected["out"].to_pylist()
    for row in emitted:
        place = row["shop"], int(row["window_start"].timestamp())
        found[place] = max(found.get(place, (0, 0)), (row["count"], row["sum_id"]))
    assert found == expected(set(late))
    assert len(emitted) > len(found), "some results were early"
    assert result.generations == 2
