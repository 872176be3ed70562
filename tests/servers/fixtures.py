"""One Kafka broker for a whole test run, and topics of its own for each test."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.absence import ROOT, server_is_absent
from verification.servers.kafka_broker import KafkaBroker, jars_of
from verification.servers.shared_broker import shared_broker

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    return jars_of(ROOT) or server_is_absent("kafka")


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of a broker that all processes of this run share."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with shared_broker(kafka_jars, folder / "kafka") as address:
        yield address


@pytest.fixture
def new_topic(kafka: str) -> Callable[..., str]:
    """Create a topic that no other test uses."""
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})

    def create(partitions: int = 1, **settings: str) -> str:
        name = f"t{os.getpid()}-{next(_NUMBERS)}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
        return name

    return create


@pytest.fixture
def own_broker(kafka_jars: Path, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that a test may kill."""
    with KafkaBroker(kafka_jars, tmp_path / "own-broker") as broker:
        yield broker
