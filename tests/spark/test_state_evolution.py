"""In Spark: a job is stopped, and continues with other columns, names and aggregates.

What it has written in the end, in both runs together, is the answer of Spark's batch.
"""

import json
from collections import Counter
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, UniformInt
from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.driver.events import CheckpointCompleted, GenerationStarted, JobEvent
from laminar_core.driver.options import JobResult
from laminar_core.driver.restart import NoRestart
from laminar_core.operators import agg
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.cli.command_line import Answer, CommandLine

pytestmark = pytest.mark.spark

ROWS, PACE = 2_000, 200
BIDS, REFUNDS = (
    DatagenSource(
        {
            "id": Sequence(),
            key: UniformInt(0, 40),
            "value": UniformInt(0, 90),
            "ts": EventTime(1_700_000_000_000_000, step_us=100_000),
        },
        rows=rows,
        splits=2,
        batch_rows=20,
        seed=rows,
    )
    for key, rows in (("key", ROWS), ("shop", ROWS // 4))
)
RENAMES = ("totals.value=price", "taken.value=price")
PROGRAM = """
from tests.spark.test_state_evolution import job

def changed():
    return job({folder!r}, changed=True)
"""
TOTALS = (
    "SELECT key, sum(value) AS total, count(value) AS n, avg(value) AS mean FROM bids GROUP BY 1"
)
PAIRS = """
    SELECT bids.id, refunds.id AS id_right FROM bids JOIN refunds ON key = shop
    AND refunds.ts BETWEEN bids.ts - INTERVAL 10 SECONDS AND bids.ts + INTERVAL 10 SECONDS
"""


def new_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    row_id, key, value, ts = batch.columns
    tip = pa.array([2 * n for n in row_id.to_pylist()], pa.int64())
    return pa.record_batch({"id": row_id, "key": key, "price": value, "ts": ts, "tip": tip})


def taken(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def job(folder: str, *, changed: bool) -> Pipeline:
    """Totals and pairs of bids; ``changed`` with another name, a new column, and a mean."""
    p, pace = Pipeline("evolving"), None if changed else PACE
    bids = p.source("bids", BIDS, rows_per_second=pace).watermark("ts", name="time")
    value, tip, mean = "value", (), ()
    if changed:
        bids = bids.map(new_columns, name="columns")
        value, tip, mean = "price", ("tip",), (agg.avg("price", name="mean"),)
    rows = bids.rebalance().map(taken, name="taken")
    sums = (agg.sum(value, name="total"), agg.count(value, name="n"))
    totals = rows.key_by("key").aggregate("totals", *sums, *mean)
    refunds = p.source("refunds", REFUNDS, rows_per_second=pace).watermark("ts", name="refund-time")
    within = ("-10 seconds", "10 seconds")
    pairs = rows.select("id", "key", "ts").join(
        refunds, on={"key": "shop"}, within=within, name="pairs"
    )
    totals.changes().sink("totals-out", ParquetSink(f"{folder}/totals"))
    pairs.select("id", "id_right").sink("pairs-out", ParquetSink(f"{folder}/pairs"))
    return rows.select("id", *tip).sink("read-out", ParquetSink(f"{folder}/read"))


def run(
    spark: SparkSession, folder: str, *, changed: bool, rename: tuple[str, ...] = ()
) -> tuple[JobResult, GenerationStarted]:
    """Run the job; the one that is not changed stops once a checkpoint is complete."""
    completed: SimpleQueue[CheckpointCompleted] = SimpleQueue()
    started: list[GenerationStarted] = []

    def listen(event: JobEvent) -> None:
        if isinstance(event, GenerationStarted):
            started.append(event)
        elif isinstance(event, CheckpointCompleted):
            completed.put(event)

    running = job(folder, changed=changed).start(
        spark,
        checkpoint=CheckpointConfig(
            f"{folder}/store", interval="100 milliseconds", alignment="unaligned"
        ),
        run=RunConfig(workers=2, rename=rename, restart=NoRestart()),
        listener=listen,
    )
    if not changed:
        completed.get(timeout=300)
        running.stop()
    return running.result(timeout_s=300), started[0]


def newest(folder: str) -> CheckpointManifest:
    manifests = CheckpointStore.open(f"{folder}/store", "evolving").manifests
    return manifests.read(manifests.ids()[-1])


def looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, *renames: str
) -> Answer:
    """Ask what the changed job would continue from."""
    monkeypatch.chdir(folder)
    (folder / "job.py").write_text(PROGRAM.format(folder=str(folder)))
    words = [word for rename in renames for word in ("--rename", rename)]
    cli = CommandLine(monkeypatch, capsys)
    return cli("recover", "job.py:changed", "--dry-run", "--json", "--store", "store", *words)


def test_a_job_goes_on_with_a_column_a_mean_and_a_name_more(
    spark: SparkSession, tmp_path: Path, monkeypatch, capsys
) -> None:
    folder = str(tmp_path)
    result, _ = run(spark, folder, changed=False)
    assert result.outcome == "stopped"
    manifest = newest(folder)
    before = read_committed(f"{folder}/read").column("id").to_pylist()

    refused = looked_at(tmp_path, monkeypatch, capsys)
    assert refused.code
    assert "lacks sum(price), count(price)" in refused.out
    said = json.loads(looked_at(tmp_path, monkeypatch, capsys, *RENAMES).out)
    assert (said["verdict"], said["problems"]) == ("restore", [])
    evolved = " ".join(said["evolved"])
    assert "totals: other aggregates, with mean" in evolved
    assert "other names: sum(price) was sum(value), count(price) was count(value)" in evolved

    result, started = run(spark, folder, changed=True, rename=RENAMES)
    assert result.outcome == "finished"
    assert started.restored_checkpoint_id == manifest.checkpoint_id
    for name, source in {"bids": BIDS, "refunds": REFUNDS}.items():
        rows = pa.Table.from_batches([source.rows_between(0, source.rows)])
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    pairs = read_committed(f"{folder}/pairs")
    assert counted(pairs) == counted(spark.sql(PAIRS).toArrow())
    newest_totals = read_committed(f"{folder}/totals").sort_by("n").to_pylist()
    totals = {row["key"]: row for row in newest_totals}
    assert totals == {row["key"]: row for row in spark.sql(TOTALS).toArrow().to_pylist()}
    read = read_committed(f"{folder}/read").to_pylist()
    tips = {row["id"]: row["tip"] for row in read}
    assert sorted(row["id"] for row in read) == sorted(tips) == list(range(ROWS))
    assert all(tips[row_id] is None for row_id in before)
    assert all(tip in (None, 2 * row_id) for row_id, tip in tips.items())
    assert any(tips.values())


def counted(rows: pa.Table) -> Counter[tuple]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())
