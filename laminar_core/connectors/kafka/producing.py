"""Hand messages to a producer, many at once, however full its queue is."""

from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer


def produce_all(producer: Producer, topic: str, messages: pa.RecordBatch) -> None:
    """Hand over all messages; wait while the queue of the producer is full.

    Shapes: ``messages`` has the columns of ``kafka.messages.MESSAGES``.

    Raises:
        KafkaException: the client does not take a message, and never will.
    """
    keys, values = (messages.column(name).to_pylist() for name in ("key", "value"))
    left: list[dict[str, Any]] = [
        {"key": key, "value": value} for key, value in zip(keys, values, strict=True)
    ]
    while left:
        producer.produce_batch(topic, left)
        left = [_again(message) for message in left if message.get("_error") is not None]
        producer.poll(0.05 if left else 0)


def _again(message: dict[str, Any]) -> dict[str, Any]:
    error = message.pop("_error")
    if error.code() != KafkaError._QUEUE_FULL:  # noqa: SLF001 - its public name has an underscore
        raise KafkaException(error)
    return message
