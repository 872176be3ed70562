"""Arrow IPC: a message is a stream of its own, with its schema and any number of rows.

The format for volume: a thousand rows cost little more to read than one object of JSON. Its bytes
are foreign all the same. Before anything is decoded, the schema of a message must fit the columns,
and the sizes that it claims must be within the limits; afterwards every value is validated. Columns
that the schema does not name are not decoded at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from laminar_core.arguments import require_whole
from laminar_core.connectors.formats.fitting import check_column, fitted
from laminar_core.connectors.formats.ipc_sizes import claims_of
from laminar_core.connectors.formats.messages import (
    MESSAGE_BYTES_MAX,
    Accepted,
    Decoded,
    Defect,
    MessageRefusedError,
    Messages,
    assembled,
)
from laminar_core.connectors.formats.sifting import admitted
from laminar_core.connectors.plain import plain_schema
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import JsonObject

MESSAGE_ROWS_MAX = 1_000_000
DECODED_BYTES_MAX = 64 * 1024**2
ENCODED_ROWS = 1_000
ENCODED_BYTES_MAX = 900_000
"""A Kafka broker takes messages of a little more than a million bytes, headers included."""

IpcCompression = Literal["lz4", "zstd"]


@dataclass(frozen=True, slots=True)
class ArrowIpcFormat:
    """Arrow IPC streams: many rows per message.

    A message is accepted as a whole or is one letter. Its columns are taken by name. A column may
    be narrower or wider than declared, or dictionary-encoded, if every value fits; one that is
    absent is null. Other columns are skipped.

    Args:
        message_bytes_max: a message with more bytes is a letter, and is not read.
        message_rows_max: the same for the rows that it claims to have.
        decoded_bytes_max: the same for the size that its compressed buffers claim to have.
        compression: of messages that are written; a broker's own compression does as well.
    """

    message_bytes_max: int = MESSAGE_BYTES_MAX
    message_rows_max: int = MESSAGE_ROWS_MAX
    decoded_bytes_max: int = DECODED_BYTES_MAX
    compression: IpcCompression | None = None

    def __post_init__(self) -> None:
        require_whole(self.message_bytes_max, 1, "message_bytes_max")

    @property
    def one_row_per_message(self) -> bool:
        """A message has many rows, and so its key belongs to none of them."""
        return False

    def describe(self) -> JsonObject:
        """Return the description that decides whether messages are still read the same way."""
        return {"format": "arrow-ipc"}

    def decoder(self, schema: pa.Schema) -> "ArrowIpcDecoder":
        """Return the decoder to rows of ``schema``.

        Raises:
            ConfigurationError: two columns have the same name.
        """
        return ArrowIpcDecoder(schema, self)

    def encoder(self, schema: pa.Schema, bytes_max: int = ENCODED_BYTES_MAX) -> "ArrowIpcEncoder":
        """Return the encoder of rows of ``schema``; a message has at most ``bytes_max``."""
        return ArrowIpcEncoder(schema, self.compression, bytes_max)


class ArrowIpcDecoder:
    """Reads messages that are one Arrow IPC stream each."""

    def __init__(self, schema: pa.Schema, limits: ArrowIpcFormat) -> None:
        if len(set(schema.names)) < len(schema.names) or not schema.names:
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA, "columns are taken by name, so each needs one of its own"
            )
        self.schema = schema
        self._limits = limits

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows of ``messages``, and a letter for each one that cannot be read."""
        refusals: dict[int, MessageRefusedError] = {}
        parts: list[Accepted] = []
        for indexes in admitted(messages.values, self._limits.message_bytes_max, refusals):
            for index in indexes.tolist():
                try:
                    batches = list(self._read(messages.values[index].as_buffer()))
                except MessageRefusedError as refused:
                    refusals[index] = refused
                else:
                    parts += [
                        Accepted(rows, np.full(rows.num_rows, index, np.int64)) for rows in batches
                    ]
        return assembled(messages, self.schema, parts, refusals)

    def _read(self, value: pa.Buffer) -> Iterator[pa.RecordBatch]:
        try:
            self._check_claims(value)
            source = pa.BufferReader(value)
            with pa.ipc.open_stream(source) as stream:
                found = stream.schema
            names = [field.name for field in self.schema if check_column(found, field)]
            included = sorted(found.get_field_index(name) for name in names)
            options = pa.ipc.IpcReadOptions(included_fields=included)
            with pa.ipc.open_stream(pa.BufferReader(value), options=options) as stream:
                for batch in stream:
                    batch.validate(full=True)
                    yield fitted(batch, self.schema)
        except MemoryError:
            raise  # The machine's fault: the sizes were within the limits.
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise MessageRefusedError(Defect.MALFORMED, f"not Arrow IPC: {error}") from error

    def _check_claims(self, value: pa.Buffer) -> None:
        rows = decompressed_bytes = 0
        source = pa.BufferReader(value)
        for message in pa.ipc.MessageReader.open_stream(source):
            claims = claims_of(message)
            rows += claims.rows
            decompressed_bytes += claims.decompressed_bytes
            if min(claims.rows, claims.decompressed_bytes) < 0:
                raise ValueError("a batch with less than no rows")
        behind = value.size - source.tell()
        if behind:
            raise ValueError(f"{behind} bytes behind the end of the stream")
        limits = self._limits
        for found, most, what in (
            (rows, limits.message_rows_max, "rows"),
            (decompressed_bytes, limits.decoded_bytes_max, "bytes when decompressed"),
        ):
            if found > most:
                raise MessageRefusedError(Defect.TOO_LARGE, f"{found} {what}, of at most {most}")


class ArrowIpcEncoder:
    """Writes up to a thousand rows as one stream, fewer if they are large.

    Dictionary columns become plain ones: each message would repeat the whole dictionary.
    """

    def __init__(
        self,
        schema: pa.Schema,
        compression: IpcCompression | None = None,
        bytes_max: int = ENCODED_BYTES_MAX,
    ) -> None:
        self.schema = schema
        self._bytes_max = bytes_max
        self._written = plain_schema(schema)
        self._options = pa.ipc.IpcWriteOptions(compression=compression)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Return messages that hold all of the rows, in order.

        Raises:
            DataError: one row alone is larger than a message may be.
        """
        plain = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(rows.columns, self._written, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(plain, schema=self._written)
        starts = range(0, batch.num_rows, ENCODED_ROWS)
        messages = [m for start in starts for m in self._messages(batch.slice(start, ENCODED_ROWS))]
        return pa.array(messages, pa.large_binary())

    def _messages(self, rows: pa.RecordBatch) -> Iterator[bytes]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=self._options) as stream:
            stream.write_batch(rows)
        written = sink.getvalue()
        if written.size <= self._bytes_max:
            yield written.to_pybytes()
        elif rows.num_rows > 1:
            half = rows.num_rows // 2
            yield from self._messages(rows.slice(0, half))
            yield from self._messages(rows.slice(half))
        else:
            why = f"a row has {written.size} bytes, and a message at most {self._bytes_max}"
            raise DataError(ErrorCode.NOT_ENCODABLE, f"{why}: leave columns out")
