"""Avro through a real broker, with the schemas in a real registry."""

import json
from collections.abc import Callable

import pyarrow as pa
import pytest
import requests

from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.formats.avro_format import AvroFormat
from laminar_core.connectors.formats.schema_registry import SchemaRegistry
from laminar_core.connectors.kafka import KafkaSink, KafkaSource
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import payments, rows_of
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from tests.connectors.formats.avro_messages import message, record
from tests.connectors.kafka.writing import read_all, until, write
from verification.servers.kafka_broker import HOST, free_ports

N = pa.field("n", pa.int64(), nullable=False)
NOTE = pa.field("note", pa.string())
NEW_TOPIC = Callable[..., str]


@pytest.fixture
def topic(new_topic: NEW_TOPIC, schema_registry: str) -> str:
    """A topic whose schemas must be able to read all messages that are there."""
    name = new_topic()
    answer = requests.put(
        f"{schema_registry}/config/{name}-value", json={"compatibility": "BACKWARD"}, timeout=30
    )
    answer.raise_for_status()
    return name


def as_avro(url: str, topic: str) -> AvroFormat:
    return AvroFormat(SchemaRegistry(url), subject=f"{topic}-value")


def test_a_source_reads_what_a_sink_wrote(kafka: str, topic: str, schema_registry: str) -> None:
    tables = payments()
    avro = as_avro(schema_registry, topic)
    pipeline = Pipeline("copy")
    pipeline.source("in", MemorySource(tables)).sink("out", KafkaSink(kafka, topic, format=avro))
    Simulation(pipeline.plan()).run_to_end()
    source = KafkaSource(kafka, topic, tables[0].schema, format=avro, until="latest")
    found = read_all(source, first_splits(source))
    assert sorted(found, key=lambda row: row["id"]) == rows_of(tables)


def test_messages_of_an_older_and_a_newer_schema_are_read_together(
    kafka: str, topic: str, schema_registry: str
) -> None:
    old, new = record(n="long"), record(n="long")
    new["fields"].append({"name": "note", "type": "string", "default": "none"})
    registry = SchemaRegistry(schema_registry)
    first, second = (registry.register(f"{topic}-value", json.dumps(each)) for each in (old, new))
    assert first != second
    values = [message(old, {"n": 1}, first), message(new, {"n": 2, "note": "b"}, second)]
    write(kafka, topic, values)
    source = KafkaSource(
        kafka, topic, pa.schema([N, NOTE]), format=AvroFormat(registry), until="latest"
    )
    rows = [{"n": 1, "note": None}, {"n": 2, "note": "b"}]
    assert read_all(source, first_splits(source)) == rows


def test_a_sink_may_add_a_column_that_can_be_null_and_no_other(
    kafka: str, topic: str, schema_registry: str
) -> None:
    sink = KafkaSink(kafka, topic, format=as_avro(schema_registry, topic))
    assert sink.check(pa.schema([N])) == ()
    assert sink.check(pa.schema([N, NOTE])) == ()
    with pytest.raises(ConfigurationError, match=f"{topic}-value.*ncompatible") as refused:
        sink.check(pa.schema([N, NOTE.with_nullable(nullable=False)]))
    assert refused.value.code is ErrorCode.WRONG_SCHEMA
    assert "\n" not in str(refused.value)


def test_a_schema_that_the_registry_does_not_know_makes_a_bad_row(
    kafka: str, topic: str, schema_registry: str
) -> None:
    registry, schema = SchemaRegistry(schema_registry), record(n="long")
    known = registry.register(f"{topic}-value", json.dumps(schema))
    ids = (known, 1_000_000_000, known)
    write(kafka, topic, [message(schema, {"n": n}, each) for n, each in enumerate(ids)])
    source = KafkaSource(kafka, topic, pa.schema([N]), format=AvroFormat(registry))
    reader = source.open(first_splits(source))
    batch = until(lambda: reader.poll(10))
    reader.close()
    assert batch.rows.to_pylist() == [{"n": 0}, {"n": 2}]
    (letter,) = batch.letters.to_pylist()
    assert (letter["position"], letter["defect"]) == (1, "unknown-schema")


def test_a_registry_that_is_down_is_one_line_before_the_job_starts(
    kafka: str, new_topic: NEW_TOPIC
) -> None:
    topic, url = new_topic(), f"http://{HOST}:{free_ports(1)[0]}"
    sink = KafkaSink(kafka, topic, format=as_avro(url, topic))
    at = f"schema registry {url}, subjects/{topic}-value/versions"
    with pytest.raises(StorageUnavailable, match=f"^{at}: no answer: Connection refused$") as down:
        sink.check(pa.schema([N]))
    assert down.value.code is ErrorCode.BROKER_UNAVAILABLE
