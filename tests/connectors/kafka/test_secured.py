"""A broker with TLS, passwords and rights: the documented rights suffice, and each is needed.

What is refused is one line with its code, which names what is missing and never the secret.
"""

import gc
import json
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from laminar_core.connectors.kafka import (
    KafkaConnection,
    KafkaSource,
    cluster,
    marker_log,
    transaction_writer,
    transactions,
)
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.outlook import Promise
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError, StorageUnavailable
from laminar_core.protocol.types import CheckpointId, Generation
from tests.connectors.kafka.publishing import ROWS, SCHEMA, Job, read_topic, rows
from tests.connectors.kafka.test_transaction_writer import Subtask
from tests.connectors.kafka.writing import NUMBERS, as_json, read_all, read_rows, write
from tests.servers.secured_kafka import PASSWORD, VARIABLE, Right, SecuredKafka

pytestmark = pytest.mark.large

PAGE = Path(__file__).parents[3] / "docs" / "connectors.md"
KINDS = {"topic": "TOPIC", "group": "GROUP", "transactional id": "TRANSACTIONAL_ID"}
WRONG = "another-password-that-nobody-may-read"


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have requests give up soon that nobody answers."""
    for module in (cluster, marker_log, transaction_writer):
        monkeypatch.setattr(module, "REQUEST_SECONDS_MAX", 2)
    monkeypatch.setattr(transactions, "REQUEST_MS_MAX", 2_000)


def documented(client: str, topic: str) -> list[Right]:
    """Return the rights in the table of the documentation, for this topic and job."""
    mark = f"laminar.payments.out-{topic}"
    found: list[Right] = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        if len(cells) != 4 or cells[0] != client or cells[1] not in KINDS:
            continue
        name = cells[2].replace("{job}.{sink}", f"payments.out-{topic}")
        name = topic if cells[1] == "topic" else name
        assert name in (topic, "laminar", mark, f"{mark}*"), line
        found += [(KINDS[cells[1]], name, operation) for operation in cells[3].split(", ")]
    return found


def refused(act: Callable[[], object], code: ErrorCode = ErrorCode.BROKER_ACCESS_DENIED) -> str:
    kind = StorageUnavailable if code is ErrorCode.BROKER_UNAVAILABLE else ConfigurationError
    with pytest.raises(LaminarError) as caught:
        act()
    said = str(caught.value)
    assert (type(caught.value), caught.value.code) == (kind, code), said
    assert "\n" not in said
    assert PASSWORD not in said
    assert WRONG not in said
    return said


# --- each client, as a job uses it ---------------------------------------------------------------


def read(connection: KafkaConnection, topic: str) -> list[int]:
    source = KafkaSource(connection, topic, NUMBERS, until="latest")
    splits = source.discovery().step({}).splits
    assert source.gaps(splits) == []
    return [row["n"] for row in read_all(source, splits)]


def read_on(connection: KafkaConnection, topic: str) -> None:
    """Read more rows than there are."""
    source = KafkaSource(connection, topic, NUMBERS)
    with closing(source.open(source.discovery().step({}).splits)) as reader:
        read_rows(reader, 1)


def publish(connection: KafkaConnection, topic: str) -> None:
    job = Job(connection, topic)
    assert job.sink.check(SCHEMA) == ()
    committer = job.recover(1, 0)
    job.stage(1)
    job.publish(1, committer)


def publish_in_transactions(connection: KafkaConnection, topic: str) -> None:
    sink = KafkaSink(connection, topic, key="id", delivery="transaction")
    assert "may be down" in sink.check(SCHEMA, Promise(10_000))[0]
    subtask = Subtask(connection, topic)
    subtask.writer.write(rows(0))
    subtask.commit(1, subtask.writer.snapshot(CheckpointId(1))().committables)
    subtask.writer.write(rows(ROWS))
    subtask.committer.take_over(Generation(2))
    subtask.committer.discard_uncommitted(Generation(2))


USES = {
    "source": read_on,
    "sink": publish,
    "sink, transaction": publish_in_transactions,
}


def shown(kafka: SecuredKafka, topic: str, isolation: str = "read_committed") -> list[int]:
    return [json.loads(value)["id"] for _, value in read_topic(kafka.plain, topic, isolation)]


# --- rights --------------------------------------------------------------------------------------


def test_a_source_reads_with_the_documented_rights(secured_kafka: SecuredKafka) -> None:
    topic = secured_kafka.topic()
    write(secured_kafka.plain, topic, as_json(range(3)))
    user = secured_kafka.user(*documented("source", topic))
    assert read(secured_kafka.connection(user), topic) == [0, 1, 2]


@pytest.mark.parametrize("client", ["sink", "sink, transaction"])
def test_a_sink_publishes_with_the_documented_rights(
    secured_kafka: SecuredKafka, client: str
) -> None:
    topic = secured_kafka.topic()
    user = secured_kafka.user(*documented(client, topic))
    USES[client](secured_kafka.connection(user), topic)
    # Transactions that are ended show a moment later, when their markers are written.
    assert any(shown(secured_kafka, topic) == list(range(ROWS)) for _ in range(100))


@pytest.mark.parametrize(
    ("client", "kind", "operation", "named"),
    [
        ("source", "TOPIC", "READ", "describing {topic}: .* to describe and read the topic"),
        ("source", "GROUP", "READ", "read the consumer group laminar$"),
        ("sink", "TOPIC", "READ", "the right to read topic {topic} is missing"),
        ("sink", "TOPIC", "WRITE", "the right to write topic {topic} is missing"),
        ("sink", "GROUP", "READ", r"read the consumer group laminar\.payments\.out-{topic}$"),
        ("sink", "TRANSACTIONAL_ID", "WRITE", r"transactional id laminar\.payments\.out-{topic}$"),
        ("sink, transaction", "TRANSACTIONAL_ID", "WRITE", r"transactional id .*\.g1\.s0\.0$"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_each_documented_right_is_needed_and_named(
    secured_kafka: SecuredKafka, client: str, kind: str, operation: str, named: str
) -> None:
    topic = secured_kafka.topic()
    rights = documented(client, topic)
    left = [right for right in rights if (right[0], right[2]) != (kind, operation)]
    assert len(left) == len(rights) - 1
    if (client, kind, operation) == ("sink", "TOPIC", "READ"):
        left.append((kind, topic, "DESCRIBE"))
    if client == "sink, transaction":  # The driver's own id, and not those of the workers.
        left += documented("sink", topic)[-1:]
    connection = secured_kafka.connection(secured_kafka.user(*left))
    said = refused(lambda: USES[client](connection, topic))
    assert re.search(named.format(topic=topic), said), said
    assert shown(secured_kafka, topic, "read_uncommitted") == []


def test_a_source_that_may_only_describe_names_the_right(secured_kafka: SecuredKafka) -> None:
    topic = secured_kafka.topic()
    connection = secured_kafka.connection(secured_kafka.user(("TOPIC", topic, "DESCRIBE")))
    said = refused(lambda: read(connection, topic))
    assert f"the right to read topic {topic} is missing: allow this user to read it" in said


def test_a_topic_that_may_be_used_and_is_not_there_is_named(secured_kafka: SecuredKafka) -> None:
    user = secured_kafka.user(("TOPIC", "nowhere", "READ"), ("TOPIC", "nowhere", "WRITE"))
    connection = secured_kafka.connection(user)
    for use in (read, publish):
        said = refused(lambda use=use: use(connection, "nowhere"), ErrorCode.NO_SUCH_TOPIC)
        assert "has no topic nowhere" in said


def test_a_driver_that_may_not_write_any_more_publishes_all_or_nothing(
    secured_kafka: SecuredKafka,
) -> None:
    topic = secured_kafka.topic()
    may_write = ("TOPIC", topic, "WRITE")
    user = secured_kafka.user(*(r for r in documented("sink", topic) if r != may_write))
    job = Job(secured_kafka.connection(user), topic)
    committer = job.recover(1, 0)
    job.stage(1)
    said = refused(lambda: job.publish(1, committer))
    assert "TOPIC_AUTHORIZATION_FAILED" in said
    assert shown(secured_kafka, topic, "read_uncommitted") == []
    secured_kafka.allow(user, may_write)
    job.recover(2, 1)
    assert shown(secured_kafka, topic) == list(range(ROWS))


def test_a_worker_that_may_not_write_any_more_says_so(secured_kafka: SecuredKafka) -> None:
    topic = secured_kafka.topic()
    rights = documented("sink, transaction", topic)
    user = secured_kafka.user(*(r for r in rights if r != ("TOPIC", topic, "WRITE")))
    subtask = Subtask(secured_kafka.connection(user), topic)
    subtask.writer.write(rows(0))
    said = refused(subtask.writer.snapshot(CheckpointId(1)))
    assert f"writing to {topic}: TOPIC_AUTHORIZATION_FAILED" in said


# --- the connection ------------------------------------------------------------------------------


def ask_as_the_other_client(connection: KafkaConnection, topic: str) -> None:
    del topic
    with transactions.Transactions(connection) as other:
        other.listed(lambda _: True)


def take_over(connection: KafkaConnection, topic: str) -> None:
    Job(connection, topic).committer().take_over(Generation(1))


CLIENTS = (read, take_over, ask_as_the_other_client)


def all_refused(connection: KafkaConnection, code: ErrorCode) -> list[str]:
    """Return what each client says; all ask at once, because most wait until they give up."""
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        asked = [pool.submit(refused, partial(use, connection, "t"), code) for use in CLIENTS]
        return [each.result() for each in asked]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have requests wait for longer than a test may take."""
    for module in (cluster, marker_log, transaction_writer):
        monkeypatch.setattr(module, "REQUEST_SECONDS_MAX", 1_000)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("client", [read, take_over])
def test_a_wrong_password_is_told_at_once(
    secured_kafka: SecuredKafka,
    monkeypatch: pytest.MonkeyPatch,
    client: Callable[[KafkaConnection, str], object],
) -> None:
    connection = secured_kafka.connection(secured_kafka.user())
    monkeypatch.setenv(VARIABLE, WRONG)
    said = refused(lambda: client(connection, "t"))
    assert "correct the user or the password" in said


@pytest.mark.usefixtures("patient")
def test_a_right_that_a_sink_misses_is_told_at_once(secured_kafka: SecuredKafka) -> None:
    topic = secured_kafka.topic()
    rights = [right for right in documented("sink", topic) if right[0] != "GROUP"]
    connection = secured_kafka.connection(secured_kafka.user(*rights))
    said = refused(lambda: publish(connection, topic))
    assert said.endswith(f"allow this user to read the consumer group laminar.payments.out-{topic}")


@pytest.fixture
def collected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect the sockets that kafka-python forgets to close; its log would hold them longer."""
    caplog.set_level(logging.CRITICAL + 1, "kafka")
    yield
    gc.collect()


def test_a_variable_that_is_not_set_is_named(
    secured_kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    for said in all_refused(secured_kafka.connection("nobody"), ErrorCode.INVALID_OPTION):
        assert f"the environment variable {VARIABLE} is not set" in said


@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_every_client_says_that_the_password_is_wrong(
    secured_kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker answers, however busy the machine is; so none of them gives up early."""
    connection = secured_kafka.connection(secured_kafka.user())
    monkeypatch.setenv(VARIABLE, WRONG)
    for said in all_refused(connection, ErrorCode.BROKER_ACCESS_DENIED):
        assert "correct the user or the password" in said


@pytest.mark.usefixtures("impatient", "collected")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("problem", "why"), [("authority", "certificate verify failed"), ("port", "SSL_HANDSHAKE")]
)
def test_a_connection_that_does_not_come_about_says_why(
    secured_kafka: SecuredKafka, problem: str, why: str
) -> None:
    connection = secured_kafka.connection(secured_kafka.user())
    if problem == "authority":
        settings = {k: v for k, v in connection.settings.items() if k != "ssl.ca.location"}
        connection = replace(connection, settings=settings)
    else:
        connection = replace(connection, bootstrap=secured_kafka.plain)
    for said in all_refused(connection, ErrorCode.BROKER_UNAVAILABLE):
        assert why in said
