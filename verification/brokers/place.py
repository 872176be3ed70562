"""A real broker that its clients reach through a proxy that fails on order."""

# Futures of confluent-kafka have no types.
# pyright: reportUnknownMemberType=false

import itertools
import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage] - documented
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage] - documented
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage] - documented
    NewTopic,  # pyright: ignore[reportPrivateImportUsage] - documented
)

from laminar_core.connectors.kafka.cluster import Cluster
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.host.clock import SystemClock
from verification.servers.fault_proxy import Fault, FaultProxy
from verification.servers.kafka_broker import KafkaBroker
from verification.servers.kafka_requests import KafkaRequests

SECONDS_MAX = 300
"""Longest wait of a case; longer than a broker may take to start again."""
_DECIDED_SECONDS_MAX = 60
_IMPATIENT = {
    "socket.timeout.ms": "3000",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "500",
}


class Place:
    """A broker and its proxy; a context manager. Cases have topics of their own."""

    def __init__(self, jars: Path, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.proxy = FaultProxy(watch=KafkaRequests)
        self.broker = KafkaBroker(jars, folder, self.proxy.port, settings)
        self.proxy.target = self.broker.proxied_port
        self.connection = KafkaConnection(self.proxy.address, _IMPATIENT)
        """Through the proxy, with timeouts that fit the faults."""
        self.kills = 0
        self._names = itertools.count()
        self._starting: threading.Thread | None = None
        self._admin: AdminClient | None = None

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()
        self.broker.kill()
        self.proxy.__exit__()

    @property
    def fired(self) -> int:
        """The faults that struck so far."""
        return self.proxy.fired.total() + self.kills

    def strike(self, fault: Fault) -> None:
        """Let a fault of the network strike next."""
        self.proxy.arm(fault)

    def kill_broker(self) -> None:
        """Kill the broker, and start it again on its data while its clients wait."""
        self.settle()
        self.broker.kill()
        self.kills += 1
        self._starting = threading.Thread(target=self.broker.start)
        self._starting.start()

    def settle(self) -> None:
        """End all faults, and wait until the broker is back."""
        self.proxy.heal()
        if self._starting is not None:
            self._starting.join()
            self._starting = None

    # --- topics, not through the proxy ----------------------------------------------------------

    def new_topic(self, partitions: int) -> str:
        """Create a topic."""
        name = f"case-{next(self._names)}"
        self.create(name, partitions)
        return name

    def create(self, name: str, partitions: int) -> None:
        """Create a topic of this name; wait while an old one of the name is being deleted."""
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + 1000 * SECONDS_MAX
        while True:
            try:
                self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
            except KafkaException:
                if clock.monotonic_ms() > deadline_ms:
                    raise
                clock.wait_ms(50)
            else:
                return

    def configure(self, topic: str, **settings: str) -> None:
        """Change settings of a topic (``_`` for ``.``)."""
        changes = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
        self.admin.incremental_alter_configs([resource])[resource].result(60)

    @property
    def admin(self) -> AdminClient:
        """A client that asks the broker itself. One for all: a dropped one cancels its requests."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        return self._admin

    def write(self, topic: str, values: Iterable[bytes], partition: int) -> None:
        """Write messages outside of any transaction."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(SECONDS_MAX) == 0, "the broker did not take the input"

    def read(self, topic: str) -> dict[int, list[int]]:
        """Return what readers of committed messages see: the field ``id`` of each.

        A broker shows a moment later that a transaction has ended, so this waits until none is
        open. If one stays open, readers do not see what is behind it.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        partitions = consumer.list_topics(topic, SECONDS_MAX).topics[topic].partitions
        self._wait_for_ends(topic, partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: dict[int, list[int]] = {partition: [] for partition in partitions}
        ended = set[int]()
        while len(ended) < len(partitions):
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, "the broker did not answer"
            partition = message.partition() or 0
            error = message.error()
            if error is None:
                found[partition].append(json.loads(message.value() or b"")["id"])
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                ended.add(partition)
        consumer.close()
        return found

    def _wait_for_ends(self, topic: str, partitions: Iterable[int]) -> None:
        clock, places = SystemClock(), [(topic, partition) for partition in partitions]
        deadline_ms = clock.monotonic_ms() + 1000 * _DECIDED_SECONDS_MAX
        with Cluster(KafkaConnection(self.broker.bootstrap)) as cluster:
            while any(each.stable_end < each.end for each in cluster.bounds(places).values()):
                if clock.monotonic_ms() > deadline_ms:
                    return
                clock.wait_ms(20)


def as_json(numbers: Iterable[int]) -> list[bytes]:
    """Return messages with a number each."""
    return [json.dumps({"id": number}).encode() for number in numbers]
