"""Sinks, staged rows and committers for tests against a broker, and readers of what they wrote."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition

from laminar_core.connectors.kafka.committer import KafkaCommitter, KafkaStep
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.staging import StagingArea
from tests.store.stores import claim, open_job

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = 40


def rows(first: int, count: int = ROWS) -> pa.RecordBatch:
    ids = list(range(first, first + count))
    names = [f"n{i}" for i in ids]
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array(names)], schema=SCHEMA)


@dataclass
class Job:
    """A job with one Kafka sink, without workers: tests stage and commit by hand."""

    kafka: str
    topic: str
    options: dict = field(default_factory=dict)
    staged: dict[int, tuple[JsonObject, ...]] = field(default_factory=dict)
    store: CheckpointStore | None = None

    def __post_init__(self) -> None:
        if self.store is None:
            self.store = open_job()
            claim(self.store)
        self.sink = KafkaSink(self.kafka, self.topic, key="id", **self.options)
        # A group of its own for each topic, because all tests share the broker.
        self.staging = StagingArea(self.store.objects, self.store.paths, f"out-{self.topic}")
        self._sequence = 0

    def stage(self, checkpoint_id: int, generation: int = 1) -> tuple[JsonObject, ...]:
        """Stage the rows of this checkpoint: their ids follow from its number."""
        context = SubtaskContext(
            self.staging.operator_id, self._sequence, 1, 128, Generation(generation),
            staging=self.staging,
        )  # fmt: skip
        self._sequence += 1
        writer = self.sink.open(context, SCHEMA)
        writer.write(rows((checkpoint_id - 1) * ROWS))
        snapshot = writer.snapshot(CheckpointId(checkpoint_id))()
        self.staged[checkpoint_id] = snapshot.committables
        return snapshot.committables

    def committer(self, observe: Callable[[KafkaStep], None] | None = None) -> KafkaCommitter:
        return KafkaCommitter(self.sink, self.staging, observe=observe)

    def publish(self, checkpoint_id: int, committer: KafkaCommitter) -> None:
        committer.commit(CheckpointId(checkpoint_id), self.staged[checkpoint_id])

    def recover(self, generation: int, upto: int) -> KafkaCommitter:
        """Do what a start does: take over, look, commit again, discard."""
        committer = self.committer()
        committer.take_over(Generation(generation))
        for checkpoint_id in sorted(n for n in self.staged if n <= upto):
            committer.outlook(CheckpointId(checkpoint_id), self.staged[checkpoint_id])
            self.publish(checkpoint_id, committer)
        committer.discard_uncommitted(Generation(generation))
        return committer

    def ids(self) -> list[int]:
        return [json.loads(value)["id"] for _, value in read_topic(self.kafka, self.topic)]

    def expected(self, upto: int) -> list[int]:
        return list(range(upto * ROWS))


def read_topic(kafka: str, topic: str, isolation: str = "read_committed") -> list[tuple]:
    """Return keys and values, partition by partition, up to the end."""
    partitions = read_partitions(kafka, topic, isolation)
    return [message for partition in sorted(partitions) for message in partitions[partition]]


def read_partitions(
    kafka: str, topic: str, isolation: str = "read_committed"
) -> dict[int, list[tuple]]:
    """Return the keys and values of each partition, up to its end, in their order.

    A consumer hands over the messages of several partitions in an order that differs from one
    reading to the next, so a list across partitions must be put together from these.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "tests",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, 20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: dict[int, list[tuple]] = {partition: [] for partition in partitions}
        ended = set()
        while len(ended) < len(partitions):
            message = consumer.poll(20)
            assert message is not None, "the broker did not answer"
            if message.error() is None:
                found[message.partition()].append((message.key(), message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return found
    finally:
        consumer.close()
