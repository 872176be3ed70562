"""Lookups in real Spark: a worker dies, and rows have what Spark finds, or versions in order."""

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors import LookupTable
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence, UniformInt
from laminar_core.pipeline import Pipeline
from tests.spark.worker_kills import often, result_after_kills

pytestmark = pytest.mark.spark

ROWS, KEYS = 3_000, 40


def source(column: str, splits: int, seed: int) -> DatagenSource:
    """Return rows with a number of their own that grows in each split, and a key."""
    columns = {column: Sequence(), "key": UniformInt(0, KEYS)}
    return DatagenSource(columns, rows=ROWS, splits=splits, batch_rows=50, seed=seed)


PAYMENTS, VERSIONS = source("id", 2, 4), source("version", 1, 9)


def lookup_job(table: Path) -> Pipeline:
    p = Pipeline("lookup")
    payments = p.source("payments", PAYMENTS, rows_per_second=1_000)
    named = payments.lookup(LookupTable.parquet(table), "names", on={"key": "k"}, matches="all")
    named.sink("named", CollectSink())
    versions = p.source("versions", VERSIONS, rows_per_second=1_000)
    return payments.lookup(versions, "newest", on="key").sink("out", CollectSink())


def check_versions(found: list[dict]) -> None:
    """Each row is there once, with a version of its key that is not older than one before."""
    rows = PAYMENTS.rows_between(0, ROWS).to_pylist()
    assert sorted((row["id"], row["key"]) for row in found) == sorted(
        (row["id"], row["key"]) for row in rows
    )
    key_of = {row["version"]: row["key"] for row in VERSIONS.rows_between(0, ROWS).to_pylist()}
    newest: dict[int, int] = defaultdict(lambda: -1)
    for row in found:
        version = -1 if row["version"] is None else row["version"]
        assert version >= newest[row["key"]]
        assert version == -1 or key_of[version] == row["key"]
        newest[row["key"]] = version
    assert len({row["version"] for row in found}) > KEYS


def test_a_worker_dies_and_each_row_has_its_result_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    for file in range(2):  # Some keys are in both files, and some in none.
        keys = list(range(12 * file, 12 * file + 20))
        names = pa.table({"k": keys, "name": [f"{file}-{key}" for key in keys]})
        pq.write_table(names, folder / f"{file}.parquet")
    result = result_after_kills(lookup_job(folder), spark, often(tmp_path), checkpoints=4)

    assert result.generations == 2
    left = spark.createDataFrame(PAYMENTS.rows_between(0, ROWS).to_pandas())
    table = spark.read.parquet(str(folder))
    joined = left.join(table, left["key"] == table["k"], "left").select("id", "key", "k", "name")
    assert sorted(map(repr, result.collected["named"].to_pylist())) == sorted(
        repr(row.asDict()) for row in joined.collect()
    )
    check_versions(result.collected["out"].to_pylist())
