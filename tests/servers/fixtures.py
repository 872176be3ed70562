"""Servers that all processes of a test run share; topics and databases are of one test."""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from laminar_core.host.clock import SystemClock
from tests.servers.absence import ROOT, server_is_absent
from tests.servers.secured_kafka import SecuredKafka
from verification.servers.kafka_broker import KafkaBroker, jars_of
from verification.servers.postgres_database import PostgresDatabase
from verification.servers.postgres_server import (
    PostgresServer,
    postgres_programs,
    why_it_cannot_run,
)
from verification.servers.schema_registry_server import registry_jars
from verification.servers.shared_server import data_of, shared_server

_NUMBERS = itertools.count()


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder that all processes of this run have in common."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    return jars_of(ROOT) or server_is_absent("kafka")


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of a broker that all processes of this run share."""
    with shared_server("kafka", kafka_jars, shared_folder(tmp_path_factory) / "kafka") as address:
        yield address


@pytest.fixture(scope="session")
def secured_kafka(
    kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    """A broker with TLS, passwords and rights that all processes of this run share."""
    folder = shared_folder(tmp_path_factory) / "secured-kafka"
    with shared_server("secured-kafka", kafka_jars, folder) as addresses:
        plain, secured = addresses.split()
        yield SecuredKafka(plain, secured, data_of(folder))


@pytest.fixture
def new_topic(kafka: str) -> Callable[..., str]:
    """Create a topic that no other test uses."""
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})

    def create(partitions: int = 1, **settings: str) -> str:
        name = f"t{os.getpid()}-{next(_NUMBERS)}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
        _wait_until_known(admin, name)
        return name

    return create


def _wait_until_known(admin: AdminClient, topic: str) -> None:
    """Wait until the broker tells clients of a topic: its controller knows it first."""
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + 30_000
    while admin.list_topics(topic, timeout=30).topics[topic].error is not None:
        assert clock.monotonic_ms() < until_ms, f"the broker does not know {topic}"
        clock.wait_ms(20)


@pytest.fixture
def own_broker(kafka_jars: Path, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that a test may kill."""
    with KafkaBroker(kafka_jars, tmp_path / "own-broker") as broker:
        yield broker


@pytest.fixture(scope="session")
def schema_registry_jars() -> Path:
    return registry_jars(ROOT) or server_is_absent("schema-registry")


@pytest.fixture(scope="session")
def schema_registry(
    schema_registry_jars: Path, kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """URL of a schema registry that all processes of this run share; the broker has its data."""
    folder = shared_folder(tmp_path_factory) / "schema-registry"
    with shared_server("schema-registry", schema_registry_jars, folder, kafka) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_bin() -> Path:
    """The folder of PostgreSQL's programs, where they can run."""
    found = postgres_programs() or server_is_absent("postgres")
    if reason := why_it_cannot_run():
        pytest.skip(f"no postgres: {reason}")
    return found


@pytest.fixture(scope="session")
def postgres(postgres_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of a PostgreSQL that all processes of this run share."""
    folder = shared_folder(tmp_path_factory) / "postgres"
    with shared_server("postgres", postgres_bin, folder) as address:
        yield address


@pytest.fixture
def new_database(postgres: str, postgres_bin: Path) -> Callable[[], PostgresDatabase]:
    """Create a database that no other test uses."""
    first = PostgresDatabase(postgres_bin, int(postgres.rpartition(":")[2]))

    def create() -> PostgresDatabase:
        name = f"t{os.getpid()}_{next(_NUMBERS)}"
        first.query(f"CREATE DATABASE {name}")
        return replace(first, name=name)

    return create


@pytest.fixture
def own_postgres(postgres_bin: Path, tmp_path: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL that a test may kill."""
    with PostgresServer(postgres_bin, tmp_path / "own-postgres") as server:
        yield server
