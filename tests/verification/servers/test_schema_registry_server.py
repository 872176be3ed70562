"""A registry has its schemas in the broker, and is found on loopback alone."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from laminar_core.connectors.formats.schema_registry import SchemaRegistry
from tests.servers.listening import listening, processes_of
from verification.servers.kafka_broker import HOST
from verification.servers.schema_registry_server import SchemaRegistryServer


def test_it_listens_on_loopback_and_has_its_schemas_in_the_broker(
    schema_registry: str, kafka: str
) -> None:
    registry = SchemaRegistry(schema_registry)
    number = registry.register("kept-value", '"int"')
    assert registry.read(number).text == '"int"'
    port = int(schema_registry.split("/")[2].rpartition(":")[2])
    assert listening(processes_of(port)) == {(HOST, port)}
    broker = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    assert "kafkasql-journal" in broker.list_topics(timeout=30).topics


def test_one_that_does_not_start_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "empty-runner.jar").touch()
    server = SchemaRegistryServer(tmp_path, tmp_path / "run", f"{HOST}:1")
    with pytest.raises(RuntimeError, match=r"did not start: .*jarfile"), server:
        pass
    assert server._process is None
