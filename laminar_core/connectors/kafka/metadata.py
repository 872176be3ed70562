"""Columns about a message besides its value."""

from collections.abc import Sequence
from typing import Literal, get_args

import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode

Metadata = Literal["key", "headers", "timestamp", "timestamp_type", "topic", "partition", "offset"]

METADATA_TYPES: dict[Metadata, pa.DataType] = {
    "key": pa.binary(),
    "headers": pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
    "timestamp": pa.timestamp("ms", "UTC"),
    "timestamp_type": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
"""``timestamp_type`` says who set the timestamp: ``create-time``, the producer, or
``log-append-time``, the broker. Names of headers may repeat."""

PREFIX = "kafka_"
"""In front of the names, so that they are no names of columns of the value."""


def with_metadata(columns: pa.Schema, metadata: Sequence[Metadata]) -> pa.Schema:
    """Return the columns of the value, followed by the metadata columns.

    Raises:
        ConfigurationError: a name is none of these, or is there twice (INVALID_OPTION).
    """
    known = get_args(Metadata)
    for name in metadata:
        if name not in known:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"Kafka has no metadata {name!r}: choose from {', '.join(known)}",
            )
    for name in metadata:
        columns = columns.append(pa.field(PREFIX + name, METADATA_TYPES[name]))
    repeated = sorted({name for name in columns.names if columns.names.count(name) > 1})
    if repeated:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION, f"column {repeated[0]} is there twice: rename it"
        )
    return columns
