"""Totals of totals in real Spark: workers die, and what is left is Spark's batch answer."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence, UniformInt
from laminar_core.operators import agg
from laminar_core.operators.weights import WEIGHT
from laminar_core.pipeline import Pipeline
from tests.spark.worker_kills import often, result_after_kills

pytestmark = pytest.mark.spark

ROWS = 2_000
SOURCE = DatagenSource(
    {"id": Sequence(), "user": UniformInt(0, 200), "amount": UniformInt(1, 6)},
    rows=ROWS,
    splits=2,
    batch_rows=50,
    seed=2,
)
QUERY = """
SELECT total, count(*) AS users, min(user) AS first_user, max(orders) AS most,
       avg(orders) AS orders, percentile(user, 0.5) AS middle
FROM (SELECT user, sum(amount) AS total, count(*) AS orders FROM orders GROUP BY user)
GROUP BY total
"""


def totals_job() -> Pipeline:
    p = Pipeline("totals")
    orders = p.source("in", SOURCE, rows_per_second=1_000)
    totals = orders.key_by("user").aggregate(
        "per-user", agg.sum("amount", name="total"), agg.count(name="orders"), emit="retract"
    )
    per_total = totals.key_by("total").aggregate(
        "per-total",
        agg.count(name="users"),
        agg.min("user", name="first_user"),
        agg.max("orders", name="most"),
        agg.avg("orders", name="orders"),
        agg.percentile("user", 0.5, name="middle"),
    )
    return per_total.sink("out", CollectSink())


def test_workers_die_and_totals_of_totals_are_those_of_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    result = result_after_kills(totals_job(), spark, often(tmp_path), checkpoints=4)

    assert result.generations == 2
    emitted, answer = result.collected["out"], batch_answer(spark)
    assert emitted.num_rows > 2 * len(answer)
    assert left_of(emitted) == answer


def left_of(emitted: pa.Table) -> Counter[tuple]:
    left: Counter[tuple] = Counter()
    for row in emitted.to_pylist():
        weight = row.pop(WEIGHT)
        left[tuple(row.values())] += weight
    assert set(left.values()) <= {0, 1}
    return +left


def batch_answer(spark: SparkSession) -> Counter[tuple]:
    rows = SOURCE.rows_between(0, ROWS)
    spark.createDataFrame(pa.Table.from_batches([rows])).createOrReplaceTempView("orders")
    try:
        return Counter(tuple(row) for row in spark.sql(QUERY).collect())
    finally:
        spark.catalog.dropTempView("orders")
