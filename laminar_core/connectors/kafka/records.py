"""Messages of the client as columns: values to decode, and what Kafka says about each message."""

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    Message,
)

from laminar_core.connectors.formats.messages import Messages
from laminar_core.connectors.kafka.metadata import METADATA_TYPES, Metadata

_TIMESTAMP_TYPES = {
    TIMESTAMP_CREATE_TIME: "create-time",
    TIMESTAMP_LOG_APPEND_TIME: "log-append-time",
}


def fetched(consumer: Consumer, count_max: int) -> list[Message]:
    """Return messages that are here, without a collection of garbage while they are made.

    Each message is an object of its own, so ten thousand of them would let the collector look at
    all young objects of the process a dozen times, and at all of them again and again. It finds
    nothing there, and takes a third of the CPU of the whole reading.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return consumer.consume(count_max, 0)
    finally:
        if was_enabled:
            gc.enable()


def as_messages(records: Sequence[Message]) -> Messages:
    """Return values and offsets, null where a record has no value."""
    values = pa.array([record.value() for record in records], pa.large_binary())
    return Messages(values, pa.array(offsets_of(records)))


def offsets_of(records: Sequence[Message]) -> npt.NDArray[np.int64]:
    """Return the offset of each record."""
    return np.fromiter((record.offset() for record in records), np.int64, len(records))


def metadata_column(
    name: Metadata, records: Sequence[Message], origins: npt.NDArray[np.int64]
) -> pa.Array:
    """Return one value for each row; ``origins`` has the index of the record of each."""
    of = METADATA_TYPES[name]
    column = pa.array([_value(name, record) for record in records], of)
    return column if _is_identity(origins, len(records)) else column.take(pa.array(origins))


def _is_identity(origins: npt.NDArray[np.int64], count: int) -> bool:
    return len(origins) == count and bool(np.array_equal(origins, np.arange(count)))


def _value(name: Metadata, record: Message) -> Any:  # noqa: ANN401
    match name:
        case "key":
            return record.key()
        case "headers":
            headers = record.headers() or ()
            return [{"name": name, "value": value} for name, value in headers]
        case "timestamp":
            kind, time_ms = record.timestamp()
            return None if kind == TIMESTAMP_NOT_AVAILABLE else time_ms
        case "timestamp_type":
            return _TIMESTAMP_TYPES.get(record.timestamp()[0])
        case "topic":
            return record.topic()
        case "partition":
            return record.partition()
        case "offset":
            return record.offset()


def time_of(record: Message) -> int:
    """Return the timestamp in milliseconds since 1970; the smallest there is if it has none."""
    kind, time_ms = record.timestamp()
    return -(2**63) if kind == TIMESTAMP_NOT_AVAILABLE else time_ms
