"""Joins in real Spark: rows in flight on both inputs, kills, and the result of all pairs."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, UniformInt
from laminar_core.host.clock import SystemClock
from laminar_core.pipeline import Pipeline
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.jobs import SECOND_US
from tests.spark.worker_kills import often, result_after_kills, unaligned

pytestmark = pytest.mark.spark

ROWS, KEYS = 8_000, 400
PAIR_US = 200.0
KILLS = 2
START_US = 1_700_000_000_000_000
BEFORE_US, AFTER_US = 2 * SECOND_US, 3 * SECOND_US


def source(splits: int, column: str) -> DatagenSource:
    """Return rows with a number of their own, a key, and a time that grows."""
    return DatagenSource(
        {
            column: Sequence(),
            "key": UniformInt(0, KEYS),
            "ts": EventTime(START_US, step_us=10_000),
        },
        rows=ROWS,
        splits=splits,
        batch_rows=200,
        seed=splits,
    )


PERSONS, AUCTIONS = source(2, "id"), source(3, "auction")


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    SystemClock().wait_ms(batch.num_rows * PAIR_US / 1000)
    return batch


def join_job() -> Pipeline:
    p = Pipeline("join")
    auctions = p.source("auctions", AUCTIONS).watermark("ts")
    return (
        p.source("persons", PERSONS)
        .watermark("ts")
        .join(auctions, on="key", within=("-2 seconds", "3 seconds"), how="left", name="join")
        .map(slow, name="slow")
        .sink("out", CollectSink())
    )


def expected() -> Iterator[tuple[int, int | None]]:
    """Yield the numbers of the rows of each pair, one row after the other."""

    def time_us(row: dict) -> int:
        return int(row["ts"].timestamp() * SECOND_US)

    there: dict[int, list[tuple[int, int]]] = {}
    for row in AUCTIONS.rows_between(0, ROWS).to_pylist():
        there.setdefault(row["key"], []).append((time_us(row), row["auction"]))
    for row in PERSONS.rows_between(0, ROWS).to_pylist():
        at = time_us(row)
        found = [
            auction
            for time, auction in there.get(row["key"], ())
            if at - BEFORE_US <= time <= at + AFTER_US
        ]
        yield from ((row["id"], auction) for auction in found or [None])


def test_unaligned_with_join_operator(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: workers die after unaligned checkpoints of a join, and every pair comes once."""
    result = result_after_kills(
        join_job(), spark, often(tmp_path), checkpoints=2, counts=unaligned, kills=KILLS
    )

    assert result.rows_late == 0
    found = result.collected["out"].to_pylist()
    assert Counter((row["id"], row["auction"]) for row in found) == Counter(expected())
    assert result.generations == KILLS + 1
    assert 0 < sum(row["auction"] is None for row in found) < len(found) / 2
    store = CheckpointStore.open(str(tmp_path / "store"), "join")
    in_flight: Counter[int] = Counter()
    for manifest in map(store.manifests.read, store.manifests.ids()):
        for entry in manifest.inflight_data:
            if entry.edge.downstream == "join":
                in_flight[entry.edge.input_index] += entry.row_count
    assert in_flight[0], in_flight
    assert in_flight[1], in_flight
