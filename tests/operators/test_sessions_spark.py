"""Spark as the oracle: the same rows, the same sessions, the same results."""

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.sessions import PartialSessions, Sessions
from laminar_core.operators.weights import consolidate, unweighted
from laminar_core.protocol.types import WATERMARK_END_US, Generation
from laminar_core.units import duration_us
from tests.operators.test_aggregation_spark import AGGREGATES, as_rows, events

QUERY = """
SELECT k, session_window.start AS window_start, session_window.end AS window_end,
       count(*) AS rows, count(v) AS known, sum(v) AS total,
       min(v) AS low, max(v) AS high, avg(v) AS mean, sum(x) AS real
FROM events GROUP BY k, session_window(ts, '{gap}')
"""


BEFORE_ALL_US = -7_200_000_000


def sessions(rows: pa.Table, gap: str, early_us: int | None = None) -> pa.Table:
    context = SubtaskContext("s", 0, 1, 128, Generation(1))
    partial = PartialSessions("p", ("k",), "ts", duration_us(gap), AGGREGATES)
    combiner = partial.open(context, rows.schema)
    spec = Sessions("s", ("k",), duration_us(gap), AGGREGATES, 0, early_us)
    merger = spec.open(context, partial.output_schema(rows.schema))
    batches = rows.to_batches(max_chunksize=300)
    random.Random(1).shuffle(batches)
    results: list[pa.RecordBatch] = []
    for index, batch in enumerate(batches):
        if index == 1:
            combiner.on_watermark(BEFORE_ALL_US)
        for combined in combiner.process(batch):
            assert list(merger.process(combined)) == []
        results += merger.on_watermark(BEFORE_ALL_US + index)
    assert bool(results) == (early_us is not None)
    return pa.Table.from_batches([*results, *merger.on_watermark(WATERMARK_END_US)])


@pytest.mark.spark
@pytest.mark.parametrize("gap", ["1 minute", "10 seconds", "1 second", "5 minutes"])
def test_sessions_hold_what_spark_puts_in_them(spark: SparkSession, gap: str) -> None:
    """Many rows are a whole number of gaps apart, so many sessions only touch."""
    rows = events()
    spark.createDataFrame(rows).createOrReplaceTempView("events")
    theirs = as_rows(spark.sql(QUERY.format(gap=gap)).toArrow())
    assert len(theirs) > 3
    assert as_rows(sessions(rows, gap)) == theirs
    emitted = sessions(rows, gap, early_us=1)
    assert emitted.num_rows > 1.5 * len(theirs)
    left = pa.Table.from_batches([unweighted(consolidate(emitted))])
    assert as_rows(left) == theirs
