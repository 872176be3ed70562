"""Answers about transactions are facts, or one line; those that cannot be read are no end."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.transactions import Transactions, TransactionState
from laminar_core.errors import FencedError, StorageUnavailable


@pytest.fixture
def transactions(kafka: str) -> Iterator[Transactions]:
    with Transactions(KafkaConnection(kafka)) as found:
        yield found


def begun(kafka: str, topic: str, name: str) -> Producer:
    settings = {"bootstrap.servers": kafka, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"1")
    assert producer.flush(20) == 0
    return producer


def test_another_process_may_end_a_transaction_and_repeat_that(
    kafka: str, new_topic: Callable[..., str], transactions: Transactions
):
    topic = new_topic()
    name = f"x.{topic}"
    producer = begun(kafka, topic, name)
    told = transactions.describe([name, "nobody-knows"])
    assert list(told) == [name]
    assert told[name].state is TransactionState.ONGOING
    assert told[name].expires_at_ms is not None
    for _ in range(2):
        transactions.commit(name, told[name].producer_id, told[name].epoch)
    assert transactions.describe([name])[name].state is TransactionState.COMMITTED
    assert transactions.listed(name.__eq__) == {name: TransactionState.COMMITTED}
    del producer
    again = begun(kafka, topic, name)  # A sleeper commits the old one once more.
    with pytest.raises(FencedError):
        transactions.commit(name, told[name].producer_id, told[name].epoch)
    assert transactions.describe([name])[name].state is TransactionState.ONGOING
    again.abort_transaction(20)
    with pytest.raises(FencedError):
        transactions.commit(name, told[name].producer_id, told[name].epoch + 1)


def test_an_id_that_was_never_used_cannot_be_committed(transactions: Transactions):
    with pytest.raises(FencedError):
        transactions.commit("nobody-knows", 1, 0)
    assert transactions.describe([]) == {}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", -5),
        struct.pack(">i", 0x7FFFFFFF) + b"x" * 64,
        struct.pack(">ii", 8, 99) + b"\xff" * 4,
    ],
)
def test_a_server_that_talks_nonsense_is_no_end(answer: bytes, monkeypatch):
    monkeypatch.setattr("laminar_core.connectors.kafka.transactions.REQUEST_MS_MAX", 1_000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def talk() -> None:
            server.settimeout(0.1)
            while not stop.is_set():
                try:
                    client, _ = server.accept()
                except TimeoutError:
                    continue
                with client:
                    client.settimeout(1)
                    try:
                        client.recv(1_000)
                        client.sendall(answer)
                    except OSError:
                        pass

        talker = threading.Thread(target=talk)
        talker.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            with (
                Transactions(KafkaConnection(address)) as transactions,
                pytest.raises(StorageUnavailable) as refused,
            ):
                transactions.describe(["x"])
        finally:
            stop.set()
            talker.join()
    assert "\n" not in str(refused.value)
