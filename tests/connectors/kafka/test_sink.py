"""A sink that cannot work is refused in one line before the job starts, and shows no secret."""

import json
from collections.abc import Callable

import pytest

from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.kafka.committer import STEPS
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.kafka.transaction_committer import STEPS as ENDING
from laminar_core.errors import ConfigurationError
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import payments, rows_of
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.connectors.kafka.publishing import SCHEMA, read_topic


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"format": "avro"}, "format must be json, arrow or raw, not 'avro'"),
        ({"compression": "lzma"}, "compression must be one of none, gzip, snappy, lz4, zstd"),
        ({"delivery": "sometimes"}, "delivery must be one of staged, transaction"),
        ({"transaction_timeout": "1 second"}, "from 5 seconds to 15 minutes"),
        ({"transaction_timeout": "8 days", "delivery": "transaction"}, "5 seconds to 7 days"),
        ({"message_bytes_max": 0}, "message_bytes_max must be positive"),
        ({"format": "arrow", "key": "id"}, "a message of many rows has no key"),
    ],
)
def test_what_cannot_be_is_refused_at_once(options, problem):
    with pytest.raises(ConfigurationError, match=problem) as refused:
        KafkaSink("127.0.0.1:9092", "payments", **options)
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
