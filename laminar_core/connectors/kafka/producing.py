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
        left = [_again(producer, each) for each in left if each.get("_error") is not None]
        producer.poll(0.05 if left else 0)


def failure_of(producer: Producer) -> KafkaError | None:
    """Return why the open transaction has failed; None: it has not.

    The client drops the messages of a transaction that has failed, and says why only where the
    transaction is to be changed. A second one can never begin, so to try that changes nothing.
    """
    try:
        producer.begin_transaction()
    except KafkaException as refused:
        error = refused.args[0]
        return None if error.code() == KafkaError._STATE else error  # noqa: SLF001 - as below
    raise AssertionError("no transaction was open")


def _again(producer: Producer, message: dict[str, Any]) -> dict[str, Any]:
    error = message.pop("_error")
    if error.code() == KafkaError._STATE:  # noqa: SLF001 - as below
        error = failure_of(producer) or error
    if error.code() != KafkaError._QUEUE_FULL:  # noqa: SLF001 - its public name has an underscore
        raise KafkaException(error)
    return message
