"""A broker keeps what it acknowledged over ``kill -9``, and is found on loopback alone."""

from contextlib import suppress

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from verification.servers.kafka_broker import HOST, KafkaBroker


def write(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


@pytest.mark.large
def test_what_it_acknowledged_is_there_after_a_kill(own_broker: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    write(own_broker.bootstrap, "kept", b"before")
    own_broker.kill()
    own_broker.start()
    write(own_broker.bootstrap, "kept", b"after")
    settings = {"bootstrap.servers": own_broker.bootstrap, "group.id": "none"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("kept", 0, 0)])
    assert [message.value() for message in consumer.consume(2, 60)] == [b"before", b"after"]
    consumer.close()


def test_it_listens_on_loopback_alone(own_broker: KafkaBroker) -> None:
    port = int(own_broker.bootstrap.rpartition(":")[2])
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.AccessDenied):  # One that has ended, and that nothing has waited for.
            found.append(child.net_connections("tcp"))
    (mine,) = [many for many in found if any(one.laddr.port == port for one in many)]
    listening = [one for one in mine if one.status == "LISTEN"]
    assert {one.laddr.ip.removeprefix("::ffff:") for one in listening} == {HOST}
