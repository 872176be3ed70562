"""Messages in, rows and letters out: the interface of every format.

A *message* is bytes from a foreign writer: the value of a Kafka record, or a line of a file. A
*letter* is a message that is no row, with the reason. Decoding neither raises because of a
message's content nor drops one.

Invariants, for every format and any bytes (``tests/connectors/formats/test_any_bytes.py``):

- I1 Each message is accepted or is a letter, never both and never neither.
- I2 Whether a message is accepted, and which rows it becomes, depends on its own bytes alone.
- I3 The rows have exactly the schema of the decoder, null where it allows nulls and nowhere else.
- I4 Rows and letters are in the order of the messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from laminar_core.operators.base import JsonObject

MESSAGE_BYTES_MAX = 16 * 1024**2
"""Default limit of one message: sixteen times the default of a Kafka broker."""

_REASON_CHARS_MAX = 300


class Defect(StrEnum):
    """Why a message is no row. Append-only: letters that were written keep their meaning."""

    NO_VALUE = "no-value"
    """The message is null: in a compacted topic the deletion of its key."""
    TOO_LARGE = "too-large"
    """More bytes, rows or memory than the format's limits allow."""
    NOT_UTF8 = "not-utf8"
    """Text in another encoding."""
    MALFORMED = "malformed"
    """The bytes are not of this format: broken off, or something else."""
    NOT_A_ROW = "not-a-row"
    """The bytes are of this format, but not one row: a list, a number, or too few columns."""
    WRONG_TYPE = "wrong-type"
    """A value does not fit the type of its column."""
    MISSING_VALUE = "missing-value"
    """No value for a column that must have one."""
    UNKNOWN_FIELD = "unknown-field"
    """A field that the schema does not name, where such fields are refused."""
    REPEATED_FIELD = "repeated-field"
    """A field that is there twice, so that its value is a guess."""
    TOO_DEEP = "too-deep"
    """Nested deeper than it can be examined."""
    UNKNOWN_SCHEMA = "unknown-schema"
    """The message names a schema that the registry does not have."""
    WRONG_SCHEMA = "wrong-schema"
    """The message has a schema of its own that does not fit the columns."""


class MessageRefusedError(Exception):
    """One message, or a batch with at least one such message, cannot be read."""

    def __init__(self, defect: Defect, reason: str) -> None:
        super().__init__(reason)
        self.defect = defect
        self.reason = one_line(reason)


@dataclass(frozen=True, slots=True)
class Messages:
    """A batch of messages.

    Shapes: ``values`` is binary or large binary, null for a message without a value; ``positions``
    has the same length and any type, and is the place of each message in its split.
    """

    values: pa.Array
    positions: pa.Array

    def __post_init__(self) -> None:
        assert len(self.values) == len(self.positions)
        assert pa.types.is_binary(self.values.type) or pa.types.is_large_binary(self.values.type)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows and letters of a batch of messages.

    Shapes: ``origins`` is int64 and has, for each row, the index of its message; it never
    decreases. ``letters`` has the columns of :func:`letters_schema`.
    """

    rows: pa.RecordBatch
    origins: pa.Array
    letters: pa.RecordBatch


class Decoder(Protocol):
    """Turns messages into rows of one schema."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        ...

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows of ``messages``, and a letter for each one that is no row."""
        ...


class Encoder(Protocol):
    """Turns rows of one schema into messages."""

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the values of the messages: large binary, never null.

        Raises:
            DataError: a value that the format cannot express.
        """
        ...


class InputFormat(Protocol):
    """How bytes are read. A value: it is sent to the workers and holds nothing open."""

    @property
    def message_bytes_max(self) -> int:
        """A message with more bytes is a letter, and is not read."""
        ...

    def describe(self) -> JsonObject:
        """Return the description that decides whether messages are still read the same way."""
        ...

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder to rows of ``schema``.

        Raises:
            ConfigurationError: a column has a type that the format cannot express.
        """
        ...


class OutputFormat(Protocol):
    """How rows are written as bytes. A value, as an input format is."""

    @property
    def one_row_per_message(self) -> bool:
        """Whether a message is one row, so that each row may have a key of its own."""
        ...

    def describe(self) -> JsonObject:
        """Return the description that decides whether rows are still written the same way."""
        ...

    def encoder(self, schema: pa.Schema) -> Encoder:
        """Return the encoder of rows of ``schema``.

        Raises:
            ConfigurationError: a column has a type that the format cannot express.
        """
        ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """Rows that some of the messages became; ``origins`` are int64 indexes of messages."""

    rows: pa.RecordBatch
    origins: np.ndarray[Any, np.dtype[np.int64]]


Refusals = Mapping[int, MessageRefusedError]
"""Maps the index of a message to the reason why it is not a row."""


def letters_schema(positions: pa.DataType) -> pa.Schema:
    """Return the columns of letters whose positions have this type.

    ``index`` is the place of the message in its batch, ``value`` its bytes, ``defect`` a
    :class:`Defect`, and ``reason`` one line for people.
    """
    return pa.schema(
        [
            pa.field("index", pa.int64(), nullable=False),
            pa.field("position", positions),
            pa.field("value", pa.large_binary()),
            pa.field("defect", pa.string(), nullable=False),
            pa.field("reason", pa.string(), nullable=False),
        ]
    )


def letters_of(messages: Messages, refusals: Refusals) -> pa.RecordBatch:
    """Write a letter for each refused message, in the order of the messages."""
    indexes = sorted(refusals)
    taken = pa.array(indexes, pa.int64())
    columns = [
        taken,
        messages.positions.take(taken),
        messages.values.take(taken).cast(pa.large_binary()),
        pa.array([str(refusals[index].defect) for index in indexes], pa.string()),
        pa.array([refusals[index].reason for index in indexes], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=letters_schema(messages.positions.type))


def assembled(
    messages: Messages, schema: pa.Schema, parts: Sequence[Accepted], refusals: Refusals
) -> Decoded:
    """Put accepted parts, which are in the order of the messages, and refusals together."""
    origins = np.concatenate([np.empty(0, np.int64), *(part.origins for part in parts)])
    assert np.all(origins[1:] >= origins[:-1])
    batches = [part.rows for part in parts]
    rows = batches[0] if len(batches) == 1 else _concatenated(batches, schema)
    return Decoded(rows, pa.array(origins), letters_of(messages, refusals))


def _concatenated(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    # Tables know how to put batches together that have dictionaries of their own.
    table = pa.Table.from_batches(batches, schema=schema).unify_dictionaries().combine_chunks()
    empty = [pa.nulls(0, field.type) for field in schema]
    return next(iter(table.to_batches()), pa.RecordBatch.from_arrays(empty, schema=schema))


def one_line(text: str) -> str:
    r"""Return ``text`` in one line that can be printed, cut if it is long.

    >>> print(one_line("two" + chr(10) + "lines, and a bell" + chr(7)))
    two lines, and a bell\x07
    """
    printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
    cut = len(printable) > _REASON_CHARS_MAX
    return printable[: _REASON_CHARS_MAX - 1] + "…" if cut else printable
