"""Real backpressure in Spark: a slow operator, barriers that overtake, kills; output is exact."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, UniformInt
from laminar_core.host.clock import SystemClock
from laminar_core.operators import agg, windows
from laminar_core.pipeline import CheckpointConfig, Pipeline, UnalignedCheckpointConfig
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.spark.worker_kills import result_after_kills

pytestmark = pytest.mark.spark

ROWS = 40_000
ROW_US = 150.0
KILLS = 3
WINDOW_US = 3_600 * 1_000_000
SOURCE = DatagenSource(
    {
        "id": Sequence(),
        "key": UniformInt(0, 50),
        "ts": EventTime(1_699_999_200_000_000, step_us=1_000_000),
    },
    rows=ROWS,
    splits=4,
    batch_rows=500,
)


def slow_job() -> Pipeline:
    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        SystemClock().wait_ms(batch.num_rows * ROW_US / 1000)
        return batch

    p = Pipeline("slow")
    return (
        p.source("in", SOURCE)
        .watermark("ts")
        .rebalance()
        .map(slow, name="slow")
        .key_by("key")
        .window(windows.tumbling("1 hour"))
        .aggregate("totals", agg.count(), agg.sum("id", name="ids"))
        .sink("out", CollectSink())
    )


def expected() -> Counter[tuple[int, int, int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    ids: Counter[tuple[int, int]] = Counter()
    for row in SOURCE.rows_between(0, ROWS).to_pylist():
        time_us = int(row["ts"].timestamp()) * 1_000_000
        group = (row["key"], time_us - time_us % WINDOW_US)
        counts[group] += 1
        ids[group] += row["id"]
    return Counter((*group, counts[group], ids[group]) for group in counts)


def test_unaligned_checkpoint_with_backpressure(spark: SparkSession, tmp_path: Path) -> None:
    """Workers die while rows are in flight behind a slow operator; nothing is lost or doubled."""
    checkpoint = CheckpointConfig(
        str(tmp_path / "store"),
        interval="150 milliseconds",
        unaligned=UnalignedCheckpointConfig(alignment_timeout_threshold_ms=20),
    )
    result = result_after_kills(
        slow_job(),
        spark,
        checkpoint,
        checkpoints=2,
        counts=lambda event: event.mode != "aligned",
        kills=KILLS,
    )

    rows = result.collected["out"].to_pylist()
    found = Counter(
        (r["key"], int(r["window_start"].timestamp()) * 1_000_000, r["count"], r["ids"])
        for r in rows
    )
    assert found == expected()
    assert result.generations == KILLS + 1
    store = CheckpointStore.open(str(tmp_path / "store"), "slow")
    manifests = [store.manifests.read(n) for n in store.manifests.ids()]
    assert sum(entry.row_count for m in manifests for entry in m.inflight_data) > 0
    assert {entry.direction for m in manifests for entry in m.inflight_data} == {"input", "output"}
