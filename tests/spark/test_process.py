"""Process functions in real Spark: a worker dies after checkpoints, and the output is exact."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, UniformInt
from laminar_core.pipeline import Pipeline
from laminar_core.testing.connected_jobs import PairWindows, pairs_with_streaks
from laminar_core.testing.enrich_jobs import ADDED, FAILS_EVERY, Doubling
from laminar_core.testing.jobs import normal, totals
from laminar_core.testing.kept_state_jobs import WindowsInLists, windows_with_ids
from laminar_core.testing.process_jobs import HoldByClock, WindowsByHand, streaks
from tests.spark.worker_kills import often, result_after_kills

pytestmark = pytest.mark.spark

ROWS, KEYS = 3_000, 40
SOURCE = DatagenSource(
    {
        "id": Sequence(),
        "number": UniformInt(0, KEYS),
        "ts": EventTime(1_700_000_000_000_000, step_us=100_000),
    },
    rows=ROWS,
    splits=2,
    batch_rows=50,
    seed=2,
)
FEW_ROWS = 400
FEW = replace(SOURCE, rows=FEW_ROWS)


def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    row_id, number, ts = batch.columns
    columns = {"id": row_id, "key": number.cast(pa.string()), "value": number, "ts": ts}
    return pa.record_batch(columns)


def refunds(batch: pa.RecordBatch) -> pa.RecordBatch:
    row_id, number, ts = batch.columns
    return pa.record_batch({"refund": row_id, "shop": number.cast(pa.string()), "at": ts})


FEW_REFUNDS = replace(FEW, seed=7)
REFUNDED = refunds(FEW_REFUNDS.rows_between(0, 1)).schema


def process_job() -> Pipeline:
    p = Pipeline("process")
    schema = keyed(SOURCE.rows_between(0, 1)).schema
    read = p.source("in", SOURCE, rows_per_second=1_000).map(keyed, schema=schema)
    held = read.key_by("key").process("hold", HoldByClock())
    held.sink("held", CollectSink())
    ended = read.watermark("ts").key_by("key").process("by-hand", WindowsByHand())
    return ended.sink("out", CollectSink())


def entries_job() -> Pipeline:
    """Lists, maps, side outputs, two inputs; and calls in a thread beside the worker's loop."""
    p = Pipeline("entries")
    schema = keyed(SOURCE.rows_between(0, 1)).schema
    read = p.source("in", FEW, rows_per_second=200).map(keyed, schema=schema)
    doubled = read.enrich(
        "double", Doubling().call, schema=ADDED, attempts=2, rows_per_call=1, on_error="side"
    )
    doubled.sink("doubled", CollectSink())
    doubled.side("failed").sink("failed", CollectSink())
    ended = read.watermark("ts").key_by("key").process("in-lists", WindowsInLists())
    other = p.source("refunds", FEW_REFUNDS, rows_per_second=200).map(refunds, schema=REFUNDED)
    met = (
        read.watermark("ts", name="left")
        .key_by("key")
        .connect(other.watermark("at", name="right").key_by("shop"))
    )
    pairs = met.process("pair", PairWindows())
    pairs.sink("pairs", CollectSink())
    pairs.side("noted").sink("noted", CollectSink())
    return ended.sink("out", CollectSink())


@pytest.mark.large
def test_a_worker_dies_and_every_window_and_row_is_there_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    result = result_after_kills(process_job(), spark, often(tmp_path), checkpoints=4)
    assert result.generations == 2
    assert result.rows_late == 0
    rows = keyed(SOURCE.rows_between(0, ROWS)).to_pylist()
    out = [
        {name: row[name] for name in ("key", "start", "count", "total", "streak")}
        for row in result.collected["out"].to_pylist()
    ]
    assert normal(out) == normal(streaks(totals(rows)))
    found = result.collected["held"].to_pylist()
    assert normal(found) == normal([{"key": row["key"], "id": row["id"]} for row in rows])


def test_a_worker_dies_and_every_entry_and_answer_is_there_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    result = result_after_kills(entries_job(), spark, often(tmp_path), checkpoints=2)
    assert result.generations == 2
    assert result.rows_late == 0
    rows = keyed(FEW.rows_between(0, FEW_ROWS)).to_pylist()
    lists = result.collected["out"].to_pylist()
    assert normal(lists) == normal([window for window, _ in windows_with_ids(rows)])
    doubled = result.collected["doubled"].select(["id", "double"]).to_pylist()
    good = [row for row in rows if row["id"] % FAILS_EVERY]
    assert normal(doubled) == normal([{"id": r["id"], "double": 2 * r["value"]} for r in good])
    others = refunds(FEW_REFUNDS.rows_between(0, FEW_ROWS)).to_pylist()
    pairs = pairs_with_streaks(rows, others)
    assert pairs
    assert normal(result.collected["pairs"].to_pylist()) == normal(pairs)
    noted = sorted(result.collected["noted"].column("refund").to_pylist())
    assert noted == sorted(row["refund"] for row in others)
    failed = result.collected["failed"].column("id").to_pylist()
    assert sorted(failed) == [row["id"] for row in rows if row["id"] % FAILS_EVERY == 0]
