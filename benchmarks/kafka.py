"""Kafka on a real broker: how much CPU the source takes beside the client, and a job's speed.

``make servers`` gets the broker. It counts the CPU of the reading process with
all its threads, and not the broker's.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import SparkSession

from benchmarks import dataset
from benchmarks.result import Result, median
from examples.kafka_to_kafka.topic import (
    OUTPUT,
    PARTITIONS,
    TOPIC,
    create_topics,
    payments,
    write_topic,
)
from laminar_core.connectors import KafkaSource
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.messages import Messages
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.clock import SystemClock
from laminar_core.jobs.payments import PAYMENT, pipeline
from laminar_core.pipeline import CheckpointConfig, RunConfig
from laminar_core.spark.session import open_session
from verification.servers.kafka_broker import KafkaBroker, jars_of

MESSAGES = 1_000_000
BATCH = 10_000
ROUNDS = 3
WORKERS = 2
_BATCH_SECONDS_MAX = 0.2
_PAUSE_MS = 2


def kafka() -> list[Result]:
    """Read a million payments of JSON from Kafka: the client alone, the source, and the job."""
    with _topic() as bootstrap:
        rounds = [
            (_cpu_s(lambda: _client(bootstrap)), _cpu_s(lambda: _source(bootstrap)))
            for _ in range(ROUNDS)
        ]
        seconds = _job_seconds(bootstrap)
    client, source = (median(values) for values in zip(*rounds, strict=True))
    return [
        Result("kafka_client_and_json", MESSAGES / client, "messages/s of CPU", "higher"),
        Result("kafka_source", MESSAGES / source, "messages/s of CPU", "higher"),
        Result("kafka_source_to_client", median([s / c for c, s in rounds]), "ratio", "lower", 1.3),
        Result("kafka_to_kafka", MESSAGES / seconds, "messages/s", "higher"),
    ]


@contextmanager
def _topic() -> Iterator[str]:
    root = Path(__file__).parents[1]
    jars = jars_of(root)
    if jars is None:
        raise ConfigurationError(ErrorCode.NO_SUCH_PATH, "there is no Kafka here: make servers")
    folder = root / "build" / "benchmark-kafka"
    shutil.rmtree(folder, ignore_errors=True)
    with KafkaBroker(jars, folder) as broker:
        create_topics(broker.bootstrap)
        write_topic(broker.bootstrap, payments(MESSAGES), lambda _: None)
        yield broker.bootstrap


def _client(bootstrap: str) -> int:
    """Do the least that a consumer of JSON does: take messages, and read them as columns."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    decoder = JsonFormat().decoder(PAYMENT)
    rows = ends = 0
    while ends < PARTITIONS:
        messages = consumer.consume(BATCH, _BATCH_SECONDS_MAX)
        errors = [error for message in messages if (error := message.error()) is not None]
        ends += sum(error.code() == KafkaError._PARTITION_EOF for error in errors)  # noqa: SLF001
        values = [message.value() for message in messages if message.error() is None]
        places = pa.array(np.arange(len(values)))
        rows += decoder.decode(Messages(pa.array(values, pa.binary()), places)).rows.num_rows
    consumer.close()
    return rows


def _source(bootstrap: str) -> int:
    source = KafkaSource(bootstrap, TOPIC, PAYMENT, until="latest", batch_messages=BATCH)
    reader = source.open(source.discovery().step({}).splits)
    rows, clock = 0, SystemClock()
    while not reader.finished:
        batch = reader.poll(BATCH)
        if batch is None:
            clock.wait_ms(_PAUSE_MS)  # As a worker does: asking again and again costs CPU.
        else:
            rows += batch.rows.num_rows
    reader.close()
    return rows


def _cpu_s(read: Callable[[], int]) -> float:
    started = process_time()
    found = read()
    assert found == MESSAGES, found
    return process_time() - started


def _job_seconds(bootstrap: str) -> float:
    """From the call to the last committed message, in a warm session."""
    spark = open_session(f"local[{WORKERS}]", "benchmark")
    address = f"kafka://{bootstrap}"
    try:
        _run(spark, address, str(dataset.fresh("output")))  # Warms the session and the workers.
        started = perf_counter()
        _run(spark, address, f"{address}/{OUTPUT}")
        return perf_counter() - started
    finally:
        spark.stop()


def _run(spark: SparkSession, address: str, output: str) -> None:
    checkpoint = CheckpointConfig(str(dataset.fresh("store")), interval="1 second")
    job = pipeline(f"{address}/{TOPIC}?until=latest", output)
    job.run(spark, checkpoint=checkpoint, run=RunConfig(workers=WORKERS))
