"""Kafka on a real broker: how much CPU the source takes beside the client.

``make servers`` gets the broker. It counts the CPU of the reading process with
all its threads, and not the broker's. ``benchmarks/kafka_to_kafka.py`` has a whole job.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time

from benchmarks.result import Result
from benchmarks.topics.client import BATCH, decoders, read
from examples.kafka_to_kafka.topic import TOPIC, create_topics, payments, write_topic
from laminar_core.connectors import KafkaSource
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.clock import SystemClock
from laminar_core.jobs.payments import PAYMENT
from verification.servers.kafka_broker import KafkaBroker, jars_of

MESSAGES = 1_000_000
ROUNDS = 3
_PAUSE_MS = 2


def kafka() -> list[Result]:
    """Read a million payments of JSON from Kafka: the client alone, and the source."""
    with _topic() as bootstrap:
        rounds = [
            (
                _cpu_s(lambda: read(bootstrap, TOPIC, decoders()["checked"])),
                _cpu_s(lambda: _source(bootstrap)),
            )
            for _ in range(ROUNDS)
        ]
    client, source = ([MESSAGES / s for s in each] for each in zip(*rounds, strict=True))
    unit = "messages/s of CPU"
    return [
        Result.of_rounds("kafka_client_and_json", client, unit, "higher"),
        Result.of_rounds("kafka_source", source, unit, "higher"),
        Result.of_rounds(
            "kafka_source_to_client", [s / c for c, s in rounds], "ratio", "lower", 1.3
        ),
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


def _cpu_s(reading: Callable[[], int]) -> float:
    started = process_time()
    found = reading()
    assert found == MESSAGES, found
    return process_time() - started
