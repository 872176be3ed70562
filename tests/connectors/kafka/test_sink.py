"""A sink that cannot work is refused in one line before the job starts, and shows no secret."""

import json
from collections.abc import Callable
from typing import get_args

import pytest
from confluent_kafka import Producer

from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.kafka.committer import STEPS
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.marker_log import producer_settings
from laminar_core.connectors.kafka.sink import KafkaCompression, KafkaSink
from laminar_core.connectors.kafka.source import KafkaSource
from laminar_core.connectors.kafka.transaction_committer import STEPS as ENDING
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import payments, rows_of
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.weighted_jobs import totals_of_totals
from laminar_core.testing.world import ProcessKilledError
from tests.connectors.kafka.publishing import SCHEMA, read_topic
from tests.connectors.kafka.writing import NUMBERS, read_all


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"format": "avro"}, "format must be one of json, arrow, raw, not 'avro'"),
        ({"compression": "lzma"}, "compression must be one of none, gzip, snappy, lz4, zstd"),
        ({"delivery": "sometimes"}, "delivery must be one of staged, transaction"),
        ({"transaction_timeout": "1 second"}, "from 5 seconds to 15 minutes"),
        ({"transaction_timeout": "8 days", "delivery": "transaction"}, "5 seconds to 7 days"),
        ({"transaction_timeout": ""}, "transaction_timeout must be|is not a duration"),
        ({"message_bytes_max": 0}, "message_bytes_max must be from 1 to 999,900,000"),
        ({"message_bytes_max": 1 << 32}, "message_bytes_max must be from 1 to 999,900,000"),
        ({"message_bytes_max": "1MB"}, "message_bytes_max must be from 1 to 999,900,000"),
        ({"topic": ""}, "topic must be a name, not ''"),
        ({"topic": None}, "topic must be a name, not None"),
        ({"format": "arrow", "key": "id"}, "a message of many rows has no key"),
    ],
)
def test_what_cannot_be_is_refused_at_once(options, problem):
    with pytest.raises(ConfigurationError, match=problem) as refused:
        KafkaSink(**{"connection": "127.0.0.1:9092", "topic": "payments"} | options)
    assert "\n" not in str(refused.value)


def test_the_description_has_no_address_and_no_secret(monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    cluster = KafkaConnection("broker:9092", secrets={"sasl.password": "KAFKA_PASSWORD"})
    sink = KafkaSink(cluster, "payments", format=JsonFormat(), key=("id", "name"))
    described = json.dumps(sink.describe())
    assert described == '{"connector": "kafka", "topic": "payments", "delivery": "staged"}'
    assert "hunter2" not in repr(sink)
    assert hash(sink) == hash(
        KafkaSink(cluster, "payments", format=JsonFormat(), key=("id", "name"))
    )


def test_columns_without_a_form_are_refused_before_a_broker_is_asked():
    sink = KafkaSink("127.0.0.1:1", "payments", key="merchant")
    with pytest.raises(ConfigurationError, match="no column 'merchant'"):
        sink.check(SCHEMA)


def test_a_topic_that_is_there_is_accepted_and_another_one_is_not(kafka: str, new_topic):
    assert KafkaSink(kafka, new_topic(), key="id").check(SCHEMA) == ()
    with pytest.raises(ConfigurationError, match="has no topic nowhere"):
        KafkaSink(kafka, "nowhere").check(SCHEMA)


def test_messages_are_readable_in_every_compression(kafka: str, new_topic):
    topic = new_topic()
    names = get_args(KafkaCompression)
    for compression in names:
        sink = KafkaSink(kafka, topic, compression=compression)
        producer = Producer({"bootstrap.servers": kafka, **producer_settings(sink)})
        for number in range(20):
            producer.produce(topic, json.dumps({"n": number}).encode())
        assert producer.flush(20) == 0
    source = KafkaSource(kafka, topic, NUMBERS, until="latest")
    found = read_all(source, source.discovery().step({}).splits)
    assert [row["n"] for row in found] == list(range(20)) * len(names)


def test_a_compression_of_the_client_that_does_not_exist_is_a_wrong_request(kafka: str, new_topic):
    wrong = KafkaConnection(kafka, settings={"compression.codec": "lzma"})
    with pytest.raises(ConfigurationError, match=r'"lzma" .* "compression\.codec"') as refused:
        KafkaSink(wrong, new_topic()).check(SCHEMA)
    assert refused.value.code is ErrorCode.INVALID_OPTION


@pytest.mark.parametrize("delivery", ["staged", "transaction"])
def test_a_start_without_brokers_is_refused_in_one_line(delivery, monkeypatch):
    monkeypatch.setattr("laminar_core.connectors.kafka.cluster.REQUEST_SECONDS_MAX", 1)
    sink = KafkaSink("127.0.0.1:1", "payments", delivery=delivery)
    with pytest.raises(StorageUnavailable, match="Connection refused") as refused:
        sink.check(SCHEMA)
    assert refused.value.code is ErrorCode.BROKER_UNAVAILABLE
    assert "\n" not in str(refused.value)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("delivery", "step"),
    [(None, None), *(("staged", s) for s in STEPS), *(("transaction", s) for s in ENDING)],
)
def test_a_job_into_a_broker_is_exact_wherever_its_driver_dies(
    kafka: str, new_topic: Callable[..., str], delivery, step, monkeypatch
):
    """The whole runtime, simulated, with a real target."""
    topic = new_topic(2)
    pipeline = Pipeline("copy")
    source = pipeline.source("in", MemorySource(payments(), batch_rows=8), rows_per_second=1_000)
    sink = KafkaSink(kafka, topic, key="id", delivery=delivery or "staged")
    source.sink(f"out-{topic}", sink)
    simulation = Simulation(pipeline.plan(), checkpoint=CoordinatorConfig(interval_ms=40))
    left = [1 if step == STEPS[0] else 2]

    def observe(done) -> None:
        left[0] -= done == step
        if done == step and left[0] == 0:
            simulation.kill_driver()
            raise ProcessKilledError(simulation.drivers[-1].name)

    for module in ("committer", "transaction_committer"):
        monkeypatch.setattr(f"laminar_core.connectors.kafka.{module}._unobserved", observe)
    simulation.run_to_end()
    assert len(simulation.drivers) == (1 if step is None else 2)
    expected = sorted(row["id"] for row in rows_of(payments()))

    def found() -> list[int]:
        return sorted(json.loads(value)["id"] for _, value in read_topic(kafka, topic))

    # Transactions that are ended show a moment later, when their markers are written.
    assert any(found() == expected for _ in range(100 if delivery == "transaction" else 1))
    assert simulation.store.objects.list(simulation.store.paths.staged) == []


@pytest.mark.parametrize("delivery", ["staged", "transaction"])
def test_a_topic_with_keys_gets_rows_by_key_and_deletions(
    kafka: str, new_topic: Callable[..., str], delivery
):
    """Goal: totals of totals leave in the topic what a batch job would have written."""
    topic, p = new_topic(2), Pipeline("updates")
    source = p.source("in", MemorySource(payments(), batch_rows=8), rows_per_second=1_000)
    of_keys = source.key_by("key").aggregate(
        "of-keys", agg.count(), agg.sum("value", name="total"), emit="retract"
    )
    of_counts = of_keys.key_by("count").aggregate(
        "of-counts",
        agg.count(name="keys"),
        agg.sum("total", name="total"),
        agg.max("key", name="last_key"),
    )
    of_counts.sink(f"out-{topic}", KafkaSink(kafka, topic, key="count", delivery=delivery))
    Simulation(p.plan(), parallelism=2, checkpoint=CoordinatorConfig(interval_ms=40)).run()

    def found() -> tuple[list[dict], int]:
        messages = read_topic(kafka, topic)
        left = dict(messages)  # The newest of each key, as a compacted topic keeps it.
        rows = [json.loads(value) for value in left.values() if value is not None]
        return sorted(rows, key=lambda row: row["count"]), sum(v is None for _, v in messages)

    # Transactions that are ended show a moment later, when their markers are written.
    expected = totals_of_totals(rows_of(payments()))
    assert any(found()[0] == expected for _ in range(100 if delivery == "transaction" else 1))
    assert found()[1] > 0
