"""Joins by windows, semi, anti, forward and until a time of each row: equal to Spark's batch."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, UniformInt
from laminar_core.host.clock import SystemClock
from laminar_core.operators import windows
from laminar_core.pipeline import Pipeline
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.jobs import SECOND_US
from tests.spark.worker_kills import often, result_after_kills, unaligned

pytestmark = pytest.mark.spark

ROWS, KEYS = 1_500, 100
ROW_US = 3_000.0
START_US = 1_700_000_000_000_000
ON = "p.key = a.key"


def source(splits: int, column: str) -> DatagenSource:
    """Return rows with a number of their own, a key, and a time that grows."""
    time = EventTime(START_US, step_us=10_000)
    columns = {column: Sequence(), "key": UniformInt(0, KEYS), "ts": time}
    return DatagenSource(columns, rows=ROWS, splits=splits, batch_rows=100, seed=splits)


PERSONS, AUCTIONS = source(2, "id"), source(3, "auction")


def opened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each row has partners for up to four seconds, by its number; one of five has none known."""
    seconds = [None if number % 5 == 0 else number % 5 for number in batch.column("id").to_pylist()]
    length = pa.array([None if s is None else s * SECOND_US for s in seconds], pa.duration("us"))
    return batch.append_column("until", pc.call_function("add", [batch.column("ts"), length]))


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows pile up before the joins, and the job lasts long enough for a checkpoint."""
    SystemClock().wait_ms(batch.num_rows * ROW_US / 1000)
    return batch


def job() -> Pipeline:
    p = Pipeline("kinds")
    persons = p.source("persons", PERSONS).map(opened, name="opened").watermark("ts")
    auctions = p.source("auctions", AUCTIONS).watermark("ts")
    window, within = windows.tumbling("2 seconds"), ("-1 second", "2 seconds")
    joined = {
        "windows": persons.join(auctions, on="key", window=window, how="full", name="windows"),
        "anti-windows": persons.join(auctions, on="key", window=window, how="anti", name="other"),
        "semi": persons.join(auctions, on="key", within=within, how="semi", name="semi"),
        "anti": persons.join(auctions, on="key", within=within, how="anti", name="anti"),
        "until": persons.join(
            auctions, on="key", within=("0 seconds", "until"), how="left", name="until"
        ),
        "forward": persons.as_of(
            auctions, on="key", direction="forward", max_distance="2 seconds", name="forward"
        ),
    }
    joined["windows"] = joined["windows"].map(slow, name="slow")
    for name, stream in joined.items():
        stream.sink(f"out-{name}", CollectSink())
    return p


PAIRS = "SELECT p.id, a.auction FROM"
CLOSE = "a.ts BETWEEN p.ts - INTERVAL 1 SECOND AND p.ts + INTERVAL 2 SECONDS"
QUERIES = {
    "windows": f"{PAIRS} pw p FULL JOIN aw a ON {ON} AND p.w = a.w",
    "anti-windows": f"SELECT p.id FROM pw p LEFT ANTI JOIN aw a ON {ON} AND p.w = a.w",
    "semi": f"SELECT p.id FROM p LEFT SEMI JOIN a ON {ON} AND {CLOSE}",
    "anti": f"SELECT p.id FROM p LEFT ANTI JOIN a ON {ON} AND {CLOSE}",
    "until": f"{PAIRS} p LEFT JOIN a ON {ON} AND a.ts BETWEEN p.ts AND p.until",
    "forward": f"{PAIRS} p LEFT ASOF JOIN a MATCH_CONDITION (p.ts <= a.ts) "
    f"ON {ON} AND a.ts - p.ts <= INTERVAL 2 SECONDS",
}


def expected(spark: SparkSession) -> dict[str, Counter]:
    """Return the numbers of the rows of each result, as Spark's batch has them."""
    tables = {"p": opened(PERSONS.rows_between(0, ROWS)), "a": AUCTIONS.rows_between(0, ROWS)}
    for name, rows in tables.items():
        table = pa.Table.from_batches([rows])
        spark.createDataFrame(table).createOrReplaceTempView(name)
        windowed = spark.sql(f"SELECT *, window(ts, '2 seconds') AS w FROM {name}")
        windowed.createOrReplaceTempView(f"{name}w")
    spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
    return {
        name: Counter(tuple(row) for row in spark.sql(query).collect())
        for name, query in QUERIES.items()
    }


def test_every_kind_of_join_is_sparks_after_a_kill(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: a worker dies after an unaligned checkpoint with rows in flight on both inputs."""
    result = result_after_kills(job(), spark, often(tmp_path), checkpoints=1, counts=unaligned)
    assert result.rows_late == 0
    wanted = expected(spark)
    for name, rows in wanted.items():
        assert min(len(rows), 100) == 100, name
        found = result.collected[f"out-{name}"].to_pylist()
        columns = ["id", "auction"] if "auction" in found[0] else ["id"]
        assert Counter(tuple(row[c] for c in columns) for row in found) == rows, name
    assert result.generations == 2
    store = CheckpointStore.open(str(tmp_path / "store"), "kinds")
    in_flight: Counter[int] = Counter()
    for manifest in map(store.manifests.read, store.manifests.ids()):
        for entry in manifest.inflight_data:
            if entry.edge.downstream == "windows":
                in_flight[entry.edge.input_index] += entry.row_count
    assert in_flight[0], in_flight
    assert in_flight[1], in_flight
