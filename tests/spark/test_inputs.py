"""An operator with two inputs in real Spark: unaligned checkpoints and kills; output is exact."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, UniformInt
from laminar_core.host.clock import SystemClock
from laminar_core.pipeline import Pipeline
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.input_jobs import PairRows
from laminar_core.testing.jobs import SECOND_US, WINDOW_US
from tests.spark.worker_kills import often, result_after_kills, unaligned

pytestmark = pytest.mark.spark

ROWS, KEYS = 8_000, 400
PAIR_US = 200.0
KILLS = 2
START_US = 1_700_000_000_000_000
PAYMENTS, REFUNDS = (
    DatagenSource(
        {
            "id": Sequence(),
            "number": UniformInt(0, KEYS),
            "ts": EventTime(START_US, step_us=10_000),
        },
        rows=ROWS,
        splits=splits,
        batch_rows=200,
        seed=splits,
    )
    for splits in (2, 3)
)


def payments(batch: pa.RecordBatch) -> pa.RecordBatch:
    row_id, number, ts = batch.columns
    return pa.record_batch({"id": row_id, "key": number.cast(pa.string()), "ts": ts})


def refunds(batch: pa.RecordBatch) -> pa.RecordBatch:
    row_id, number, ts = batch.columns
    return pa.record_batch({"refund": row_id, "shop": number.cast(pa.string()), "at": ts})


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    SystemClock().wait_ms(batch.num_rows * PAIR_US / 1000)
    return batch


def pairs_job() -> Pipeline:
    p = Pipeline("pairs")
    left = p.source("payments", PAYMENTS).map(payments, schema=schema_of(payments, PAYMENTS))
    right = p.source("refunds", REFUNDS).map(refunds, schema=schema_of(refunds, REFUNDS))
    return (
        left.watermark("ts")
        .key_by("key")
        .connect(right.watermark("at").key_by("shop"), operator=PairRows("pair"))
        .map(slow, name="slow")
        .sink("out", CollectSink())
    )


def schema_of(function, source: DatagenSource) -> pa.Schema:
    return function(source.rows_between(0, 1)).schema


def expected() -> Counter[tuple[str, int, int]]:
    def place(row: dict) -> tuple[int, int]:
        return row["number"], int(row["ts"].timestamp() * SECOND_US) // WINDOW_US

    there: dict[tuple[int, int], list[int]] = {}
    for row in REFUNDS.rows_between(0, ROWS).to_pylist():
        there.setdefault(place(row), []).append(row["id"])
    return Counter(
        (str(row["number"]), row["id"], refund)
        for row in PAYMENTS.rows_between(0, ROWS).to_pylist()
        for refund in there.get(place(row), ())
    )


def test_workers_die_while_rows_are_in_flight_on_both_inputs(
    spark: SparkSession, tmp_path: Path
) -> None:
    result = result_after_kills(
        pairs_job(), spark, often(tmp_path), checkpoints=2, counts=unaligned, kills=KILLS
    )

    assert result.rows_late == 0
    found = result.collected["out"].to_pylist()
    assert Counter((row["key"], row["id"], row["value"]) for row in found) == expected()
    assert result.generations == KILLS + 1
    store = CheckpointStore.open(str(tmp_path / "store"), "pairs")
    in_flight: Counter[int] = Counter()
    for manifest in map(store.manifests.read, store.manifests.ids()):
        for entry in manifest.inflight_data:
            if entry.edge.downstream == "pair":
                in_flight[entry.edge.input_index] += entry.row_count
    assert in_flight[0], in_flight
    assert in_flight[1], in_flight
