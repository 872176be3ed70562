"""Messages of the client as columns: values to decode, and what Kafka says about each message."""

import gc
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)

from laminar_core.connectors.formats.messages import (
    Decoded,
    Defect,
    MessageRefusedError,
    Messages,
    letters_of,
)
from laminar_core.connectors.kafka.metadata import METADATA_TYPES, PREFIX, Metadata

_TIMESTAMP_TYPES = {
    TIMESTAMP_CREATE_TIME: "create-time",
    TIMESTAMP_LOG_APPEND_TIME: "log-append-time",
}

_NO_TIME = -1
"""The number in place of a timestamp that the producer left out."""

# One call each for all messages of a batch, in place of a loop of Python.
_ERROR, _TOPIC, _PARTITION = methodcaller("error"), methodcaller("topic"), methodcaller("partition")
_OFFSET, _VALUE = methodcaller("offset"), methodcaller("value")


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python collect no garbage while messages are made, read and dropped again.

    Each message is an object of its own, so ten thousand of them would let the collector look at
    all young objects of the process a dozen times, and at all of them again and again. It finds
    nothing there, and takes a third of the CPU of the whole reading. Messages that are dropped
    before collections go on were never a reason for one.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def runs_of(events: Sequence[Message]) -> Iterator[tuple[Sequence[Message], Message | None]]:
    """Yield messages without an error between them, each time with the error behind them."""
    first = 0
    for index, error in enumerate(map(_ERROR, events)):
        if error is not None:
            yield events[first:index], events[index]
            first = index + 1
    if first < len(events):
        yield events[first:], None


def by_partition(
    records: Sequence[Message], topics: Collection[str]
) -> Iterator[tuple[tuple[str, int], Sequence[Message]]]:
    """Yield the messages of each partition, in their order; they are of no other topics."""
    if len(topics) > 1:
        keys: list[Any] = list(zip(map(_TOPIC, records), map(_PARTITION, records), strict=True))
    else:  # The client makes a new text of each topic that it is asked for.
        keys = list(map(_PARTITION, records))
    for key in dict.fromkeys(keys):
        place = key if len(topics) > 1 else (next(iter(topics)), key)
        yield place, list(compress(records, [other == key for other in keys]))


def as_messages(records: Sequence[Message]) -> Messages:
    """Return values and offsets, null where a record has no value."""
    values = pa.array(list(map(_VALUE, records)), pa.large_binary())
    return Messages(values, pa.array(offsets_of(records)))


def offsets_of(records: Sequence[Message]) -> npt.NDArray[np.int64]:
    """Return the offset of each record of a partition; they ascend."""
    if not records:
        return np.empty(0, np.int64)
    first, last = _OFFSET(records[0]), _OFFSET(records[-1])
    if last - first == len(records) - 1:
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(map(_OFFSET, records), np.int64, len(records))


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
            return _headers(record)
        case "timestamp":
            return _time_ms(record)
        case "timestamp_type":
            return _TIMESTAMP_TYPES.get(record.timestamp()[0])
        case "topic":
            return record.topic()
        case "partition":
            return record.partition()
        case "offset":
            return record.offset()


def _headers(record: Message) -> list[dict[str, Any]] | None:
    """Return the headers; None if the client cannot read them, because a name is not UTF-8."""
    try:
        headers = record.headers() or ()
    except (SystemError, UnicodeDecodeError):
        return None
    return [{"name": name, "value": value} for name, value in headers]


def with_readable_headers(decoded: Decoded, messages: Messages) -> Decoded:
    """Make letters of the messages whose headers are null in their rows."""
    headers = decoded.rows.column(PREFIX + "headers")
    if not headers.null_count:
        return decoded
    is_read = headers.is_valid()
    origins = np.asarray(decoded.origins)[~is_read.to_numpy(zero_copy_only=False)]
    refusal = MessageRefusedError(Defect.NOT_UTF8, "the name of a header is not UTF-8")
    refused = letters_of(messages, dict.fromkeys(origins.tolist(), refusal))
    letters = pa.Table.from_batches([decoded.letters, refused]).sort_by("index").combine_chunks()
    rows, origins = decoded.rows.filter(is_read), decoded.origins.filter(is_read)
    return Decoded(rows, origins, letters.to_batches()[0])


def time_of(record: Message) -> int:
    """Return the timestamp in milliseconds since 1970; the smallest there is if it has none."""
    time_ms = _time_ms(record)
    return -(2**63) if time_ms is None else time_ms


def _time_ms(record: Message) -> int | None:
    kind, time_ms = record.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE or time_ms == _NO_TIME else time_ms
