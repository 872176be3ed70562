"""The bytes themselves: one column, one value per message."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_core.arguments import require_whole
from laminar_core.connectors.formats.messages import (
    MESSAGE_BYTES_MAX,
    Decoded,
    Defect,
    MessageRefusedError,
    Messages,
)
from laminar_core.connectors.formats.sifting import Indexes, decode_rows, refused_by
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import JsonObject

_HOLDS_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
)


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Bytes that are not looked at, in one column.

    The column is binary, or a string, which is checked to be UTF-8.

    Args:
        message_bytes_max: a message with more bytes is a letter.
    """

    message_bytes_max: int = MESSAGE_BYTES_MAX

    def __post_init__(self) -> None:
        require_whole(self.message_bytes_max, 1, "message_bytes_max")

    @property
    def one_row_per_message(self) -> bool:
        """A message is one row."""
        return True

    def describe(self) -> JsonObject:
        """Return the description that decides whether messages are still read the same way."""
        return {"format": "raw"}

    def decoder(self, schema: pa.Schema) -> "RawDecoder":
        """Return the decoder to rows of ``schema``.

        Raises:
            ConfigurationError: the schema is not one column of bytes or text.
        """
        return RawDecoder(schema, self.message_bytes_max)

    def encoder(self, schema: pa.Schema) -> "RawEncoder":
        """Return the encoder of rows of ``schema``.

        Raises:
            ConfigurationError: the schema is not one column of bytes or text.
        """
        return RawEncoder(schema)


class RawDecoder:
    """Takes each message as the value of the one column."""

    def __init__(self, schema: pa.Schema, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        _check(schema)
        self.schema = schema
        self._message_bytes_max = message_bytes_max

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows of ``messages``, and a letter for each one that is no row."""
        return decode_rows(_RawReader(self.schema), messages, self._message_bytes_max)


class _RawReader:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def suspects(self, values: pa.BinaryArray) -> Indexes:
        """None: all bytes are well."""
        del values
        return np.empty(0, np.int64)

    def doubtful(self, values: pa.BinaryArray) -> list[int]:
        """Messages that are not UTF-8, where the column is a text."""
        if not _is_text(self.schema):
            return []
        return refused_by(self.examine, values)

    def examine(self, value: bytes) -> None:
        """Refuse what is not UTF-8, where the column is a text."""
        if _is_text(self.schema):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                why = f"not UTF-8: {error.reason} at byte {error.start}"
                raise MessageRefusedError(Defect.NOT_UTF8, why) from error

    def read(self, values: pa.BinaryArray) -> pa.RecordBatch:
        column = values.cast(self.schema.field(0).type)
        return pa.RecordBatch.from_arrays([column], schema=self.schema)

    def read_one(self, value: bytes) -> pa.RecordBatch:
        self.examine(value)
        return self.read(pa.array([value], pa.binary()))


class RawEncoder:
    """Writes the value of the one column as the message."""

    def __init__(self, schema: pa.Schema) -> None:
        _check(schema)
        self.schema = schema

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Return one message for each row.

        Raises:
            DataError: a value is null.
        """
        column = rows.column(0)
        if column.null_count:
            name = self.schema.field(0).name
            why = f"{name} is null, and a message has a value: filter such rows out"
            raise DataError(ErrorCode.NOT_ENCODABLE, why)
        return column.cast(pa.large_binary())


def _is_text(schema: pa.Schema) -> bool:
    of = schema.field(0).type
    return pa.types.is_string(of) or pa.types.is_large_string(of)


def _check(schema: pa.Schema) -> None:
    if len(schema) != 1 or not any(holds(schema.field(0).type) for holds in _HOLDS_BYTES):
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA,
            f"the raw format is one column of bytes or text, not {', '.join(map(str, schema))}",
        )
