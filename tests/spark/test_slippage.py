"""The slippage job in real Spark: once with a killed task, and once as a program."""

import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.messages import Messages
from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.driver.events import JobEvent
from laminar_core.jobs.slippage import QUOTE, TRADE, pipeline
from laminar_core.jobs.slippage_answer import SLIPPAGE, in_order, slippages
from laminar_core.jobs.slippage_data import Market, write_market
from laminar_core.pipeline import CheckpointConfig, RunConfig
from tests.connectors.kafka.publishing import read_topic
from tests.connectors.kafka.writing import write
from tests.jobs.markets import quotes_of, trades_of
from tests.spark.jobs_under_test import Driver, kill_after_checkpoint

pytestmark = pytest.mark.spark

MARKET = Market(trades=30_000, symbols=400)


def test_a_killed_worker_leaves_the_slippage_exact(spark: SparkSession, tmp_path: Path) -> None:
    write_market(tmp_path / "in", MARKET)
    output, store = str(tmp_path / "out"), str(tmp_path / "store")
    events: SimpleQueue[JobEvent] = SimpleQueue()
    running = pipeline(str(tmp_path / "in"), output, rows_per_second=15_000).start(
        spark,
        checkpoint=CheckpointConfig(store, interval="100 milliseconds"),
        run=RunConfig(workers=2),
        listener=events.put,
    )
    kill_after_checkpoint(events, number=3)
    result = running.result(timeout_s=120)

    assert (result.outcome, result.generations, result.rows_late) == ("finished", 2, 0)
    market = (pq.read_table(tmp_path / "in" / name) for name in ("trades", "quotes"))
    expected = slippages(*market)
    assert in_order(read_committed(output)) == expected
    counts = [expected.column(name).to_numpy().sum() for name in ("trades", "priced_trades")]
    assert counts[0] == MARKET.trades
    assert 0.8 < counts[1] / counts[0] < 0.999


def test_the_program_runs_on_generated_rows(tmp_path: Path) -> None:
    market = Market(trades=20_000)
    words = [
        *("--set", "input=datagen", "--set", f"rows={market.trades}"),
        *("--set", f"output={tmp_path / 'out'}", "--store", str(tmp_path / "store")),
        *("--checkpoint-interval", "1 second"),
    ]
    program = [sys.executable, "-m", "laminar_core.cli", "run", "jobs/slippage.py", "--json"]
    with Driver(program + words, tmp_path / "driver.log") as driver:
        assert driver.wait_for("finished")["outcome"] == "finished"
        assert driver.process.wait() == 0
    expected = slippages(trades_of(market), quotes_of(market))
    assert in_order(read_committed(str(tmp_path / "out"))) == expected


def test_topics_are_read_and_written_as_files_are(
    spark: SparkSession, kafka: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    market = Market(trades=5_000, symbols=400)
    output = new_topic()
    name = f"{output}-market"
    topics = [NewTopic(f"{name}-{part}", 1, 1) for part in ("trades", "quotes")]
    admin = AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics(topics).values():
        created.result(30)
    for part, schema, rows in (
        ("trades", TRADE, trades_of(market)),
        ("quotes", QUOTE, quotes_of(market)),
    ):
        (batch,) = rows.cast(schema).combine_chunks().to_batches()
        write(kafka, f"{name}-{part}", JsonFormat().encoder(schema).encode(batch).to_pylist())
    result = pipeline(f"kafka://{kafka}/{name}?until=latest", f"kafka://{kafka}/{output}").run(
        spark,
        checkpoint=CheckpointConfig(str(tmp_path / "store"), interval="1 second"),
        run=RunConfig(workers=2),
    )

    assert (result.outcome, result.rows_late) == ("finished", 0)
    messages = read_topic(kafka, output)
    values = pa.array([value for _, value in messages], pa.binary())
    decoded = JsonFormat().decoder(SLIPPAGE).decode(Messages(values, pa.array(range(len(values)))))
    assert decoded.letters.num_rows == 0
    found = in_order(pa.Table.from_batches([decoded.rows]))
    assert found == slippages(trades_of(market), quotes_of(market))
