"""Writes messages for tests, in transactions and without."""

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from laminar_core.connectors.kafka import KafkaSource
from laminar_core.connectors.kafka.reader import KafkaReader
from laminar_core.host.clock import SystemClock

NUMBERS = pa.schema([("n", pa.int64())])
_IDS = itertools.count()
SECONDS_MAX = 60


def as_json(numbers: Iterable[int]) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def write(bootstrap: str, topic: str, values: Iterable[bytes | None], partition: int = 0, **more):
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=partition, **more)
    assert producer.flush(SECONDS_MAX) == 0


def transactional(bootstrap: str, topic: str) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": f"{topic}-{next(_IDS)}",
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(SECONDS_MAX)
    return producer


def transaction(
    producer: Producer, topic: str, values: Iterable[bytes], *, commit: bool, partition: int = 0
) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    producer.flush(SECONDS_MAX)
    if commit:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)


def until(condition: Callable[[], Any]) -> Any:
    """Return what ``condition`` returns as soon as that is true."""
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + 1000 * SECONDS_MAX
    while not (found := condition()):
        assert clock.monotonic_ms() < deadline_ms, "it did not happen"
        clock.wait_ms(5)
    return found


def read_rows(reader: KafkaReader, count: int, rows_max: int = 1000) -> list[dict[str, Any]]:
    """Poll until so many rows are there."""
    rows: list[dict[str, Any]] = []

    def enough() -> bool:
        batch = reader.poll(min(rows_max, count - len(rows)))
        if batch is not None:
            rows.extend(batch.rows.to_pylist())
        return len(rows) >= count

    until(enough)
    return rows


def read_all(source: KafkaSource, splits: pa.Table, rows_max: int = 1000) -> list[dict[str, Any]]:
    """Read a bounded source to its end."""
    reader = source.open(splits)
    rows: list[dict[str, Any]] = []

    def ended() -> bool:
        batch = reader.poll(rows_max)
        if batch is not None:
            rows.extend(batch.rows.to_pylist())
        return reader.finished

    until(ended)
    reader.close()
    return rows
