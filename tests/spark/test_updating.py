"""Updating operators in real Spark: what is there in the end is the answer of Spark's batch."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, UniformInt
from laminar_core.operators.weights import WEIGHT
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig

pytestmark = pytest.mark.spark

ROWS = 800
QUERIES = {
    "best": """
        SELECT id, key, value, place FROM (
            SELECT *, row_number() OVER (PARTITION BY key ORDER BY value DESC, id) AS place
            FROM bids
        ) WHERE place <= 3
    """,
    "first": """
        SELECT id, key FROM (
            SELECT *, row_number() OVER (PARTITION BY key ORDER BY ts, id) AS place FROM bids
        ) WHERE place = 1
    """,
    "kinds": "SELECT DISTINCT key, value FROM bids",
    "pairs": "SELECT id, key, refund FROM bids FULL JOIN refunds ON key = shop",
    "unpaid": "SELECT id, key FROM bids LEFT ANTI JOIN refunds ON key = shop",
}


def source(rows: int, keys: int, **names: str) -> DatagenSource:
    """Return rows with a number of their own, a key, a value, and a time that grows."""
    columns = {
        names.get("id", "id"): Sequence(),
        names.get("key", "key"): UniformInt(0, keys),
        "value": UniformInt(0, 40),
        "ts": EventTime(1_700_000_000_000_000, step_us=10_000),
    }
    return DatagenSource(columns, rows=rows, splits=2, batch_rows=100, seed=keys)


BIDS, REFUNDS = source(ROWS, 60), source(90, 75, id="refund", key="shop")


def job() -> Pipeline:
    p = Pipeline("updating")
    bids, refunds = p.source("bids", BIDS).watermark("ts"), p.source("refunds", REFUNDS)
    refunds = refunds.watermark("ts")
    best = bids.key_by("key").top("best-rows", 3, by=("value desc", "id"), rank="place")
    first = bids.key_by("key").first("first-rows")
    kinds = bids.select("key", "value").distinct(name="distinct-rows")
    on = {"key": "shop"}
    pairs = bids.join(refunds, on=on, how="full", unbounded=True, name="joined-rows")
    unpaid = bids.join(refunds, on=on, how="anti", ttl="1 day", name="unpaid-rows")
    streams = {"best": best, "first": first, "kinds": kinds, "pairs": pairs, "unpaid": unpaid}
    for name, stream in streams.items():
        stream.sink(name, CollectSink())
    return p


def folded(rows: pa.Table, names: list[str]) -> Counter[tuple]:
    """Return how often each row is there in the end."""
    found: Counter[tuple] = Counter()
    for row in rows.to_pylist():
        found[tuple(row[name] for name in names)] += row.get(WEIGHT, 1)
    assert min(found.values()) >= 0
    return Counter({row: weight for row, weight in found.items() if weight})


def test_what_is_there_in_the_end_is_what_spark_selects(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: top-n, DISTINCT, the first row and joins without bounds, each in one real job."""
    result = job().run(
        spark,
        checkpoint=CheckpointConfig(str(tmp_path / "store"), interval="300 milliseconds"),
        run=RunConfig(workers=2),
    )
    assert result.rows_late == 0
    for name, rows in {
        "bids": BIDS.rows_between(0, ROWS),
        "refunds": REFUNDS.rows_between(0, 90),
    }.items():
        spark.createDataFrame(pa.Table.from_batches([rows])).createOrReplaceTempView(name)
    for name, query in QUERIES.items():
        theirs = spark.sql(query).toArrow()
        wanted = Counter(tuple(row.values()) for row in theirs.to_pylist())
        assert len(wanted) > 5, name
        assert folded(result.collected[name], theirs.column_names) == wanted, name
