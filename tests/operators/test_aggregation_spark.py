"""Spark as the oracle: the same rows, the same windows, the same results."""

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.operators import agg, windows
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import SubtaskContext
from laminar_core.protocol.types import WATERMARK_END_US, Generation

NAMES = ("rows", "known", "total", "low", "high", "mean", "real")
AGGREGATES = (
    agg.count(name="rows"), agg.count("v", name="known"), agg.sum("v", name="total"),
    agg.min("v", name="low"), agg.max("v", name="high"), agg.avg("v", name="mean"),
    agg.sum("x", name="real"),
)  # fmt: skip
QUERY = """
SELECT k, window.start AS window_start, window.end AS window_end,
       count(*) AS rows, count(v) AS known, sum(v) AS total,
       min(v) AS low, max(v) AS high, avg(v) AS mean, sum(x) AS real
FROM events GROUP BY k, window({arguments})
"""


def events() -> pa.Table:
    """Two hours around 1970, with nulls and times exactly on the edges of windows."""
    rng = random.Random(7)
    seconds = [
        rng.choice([60 * rng.randrange(-60, 60), rng.randrange(-3_600, 3_600)])
        for _ in range(2_000)
    ]
    values = [None if rng.random() < 0.1 else rng.randrange(-1_000, 1_000) for _ in seconds]
    return pa.table(
        {
            "k": pa.array([rng.choice(["a", "b", "", None]) for _ in seconds]),
            "ts": pa.array([s * 1_000_000 for s in seconds], pa.timestamp("us", "UTC")),
            "v": pa.array(values, pa.int64()),
            "x": pa.array([None if v is None else v / 4 for v in values], pa.float64()),
        }
    )


def aggregated(rows: pa.Table, window: windows.Window) -> pa.Table:
    context = SubtaskContext("w", 0, 1, 128, Generation(1))
    partial = PartialAggregate("p", ("k",), "ts", window, AGGREGATES)
    exchanged = partial.output_schema(rows.schema)
    combiner = partial.open(context, rows.schema)
    merger = WindowAggregate("w", ("k",), window, AGGREGATES).open(context, exchanged)
    for batch in rows.to_batches(max_chunksize=300):
        for combined in combiner.process(batch):
            assert list(merger.process(combined)) == []
    return pa.Table.from_batches(merger.on_watermark(WATERMARK_END_US))


def as_rows(table: pa.Table) -> list[tuple]:
    names = ["k", "window_start", "window_end", *NAMES]
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True), key=repr)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("window", "arguments"),
    [
        (windows.tumbling("5 minutes"), "ts, '5 minutes'"),
        (windows.sliding("10 minutes", "5 minutes"), "ts, '10 minutes', '5 minutes'"),
        (windows.sliding("1 hour", "4 minutes"), "ts, '1 hour', '4 minutes'"),
        (
            windows.tumbling("7 minutes", offset="90 seconds"),
            "ts, '7 minutes', '7 minutes', '90 seconds'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_windows_hold_what_spark_puts_in_them(
    spark: SparkSession, window: windows.Window, arguments: str
) -> None:
    rows = events()
    spark.createDataFrame(rows).createOrReplaceTempView("events")
    theirs = spark.sql(QUERY.format(arguments=arguments)).toArrow()
    assert as_rows(aggregated(rows, window)) == as_rows(theirs)
