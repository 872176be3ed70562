"""Separate the messages that can be read from those that cannot, at the price of few reads.

A reader of whole batches says that a batch has a bad message, not which one. So a refused batch is
read again in two halves, down to single messages: a batch without bad messages costs one read, and
each bad message about two reads for each halving. A read costs as much as a hundred
messages, so a small batch is examined message by message before it is halved further: a flood of
messages that are not of the format at all costs one examination each.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.connectors.formats.messages import (
    Accepted,
    Decoded,
    Defect,
    MessageRefusedError,
    Messages,
    assembled,
)

BATCH_BYTES_MAX = 8 * 1024**2
"""Bytes of messages that are read at once, and one message more: larger reads are not faster."""

_EXAMINED_AT_MOST = 64

Indexes = np.ndarray[Any, np.dtype[np.int64]]


class RowReader(Protocol):
    """Reads messages that become one row each."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        ...

    def suspects(self, values: pa.BinaryArray) -> Indexes:
        """Return the indexes of messages that ``read`` must not see before ``examine`` did."""
        ...

    def examine(self, value: bytes) -> None:
        """Examine a suspect.

        Raises:
            MessageRefusedError: it is no row.
        """
        ...

    def read(self, values: pa.BinaryArray) -> pa.RecordBatch:
        """Return one row for each message.

        Raises:
            MessageRefusedError: at least one message is not a valid row.
            pa.ArrowException: the same, from a decoder that cannot name the message.
        """
        ...

    def read_one(self, value: bytes) -> pa.RecordBatch:
        """Return the row of one message that ``read`` has refused.

        Raises:
            MessageRefusedError: it is no row, and this is why.
        """
        ...


def decode_rows(reader: RowReader, messages: Messages, message_bytes_max: int) -> Decoded:
    """Read messages that become one row each."""
    refusals: dict[int, MessageRefusedError] = {}
    parts: list[Accepted] = []
    for indexes in admitted(messages.values, message_bytes_max, refusals):
        values = taken(messages.values, indexes)
        sieve = _Sieve(reader, refusals)
        parts.extend(sieve.sift(*sieve.cleared(values, indexes, reader.suspects(values))))
    return assembled(messages, reader.schema, parts, refusals)


class _Sieve:
    """Reads what can be read, and writes down why the rest cannot."""

    def __init__(self, reader: RowReader, refusals: dict[int, MessageRefusedError]) -> None:
        self._reader = reader
        self._refusals = refusals

    def cleared(
        self,
        values: pa.BinaryArray,
        indexes: Indexes,
        suspects: Iterable[int],
        spared: Container[Defect] = (),
    ) -> tuple[pa.BinaryArray, Indexes]:
        """Return the messages without those suspects that are refused when they are examined.

        Messages are not refused for a defect that is ``spared``.
        """
        cleared = np.ones(len(indexes), bool)
        for at in suspects:
            try:
                self._reader.examine(values[int(at)].as_py())
            except MessageRefusedError as refused:
                if refused.defect not in spared:
                    self._refusals[int(indexes[at])] = refused
                    cleared[at] = False
        if cleared.all():
            return values, indexes
        return values.filter(pa.array(cleared)), indexes[cleared]

    def sift(
        self, values: pa.BinaryArray, indexes: Indexes, *, examined: bool = False
    ) -> Iterator[Accepted]:
        """Yield the rows of the messages that can be read, in their order."""
        count = len(indexes)
        if not count:
            return
        rows = self._read(values)
        if rows is None and count == 1:
            rows = self._read_one(values, int(indexes[0]))
            if rows is None:
                return
        if rows is not None:
            assert rows.num_rows == count
            yield Accepted(rows, indexes)
        elif not examined and count <= _EXAMINED_AT_MOST:
            # What cannot be examined may well be read: it is here because of a neighbour.
            values, indexes = self.cleared(values, indexes, range(count), {Defect.TOO_DEEP})
            if len(indexes) < count:
                yield from self.sift(values, indexes, examined=True)
            else:
                yield from self._halves(values, indexes, examined=True)
        else:
            yield from self._halves(values, indexes, examined=examined)

    def _halves(
        self, values: pa.BinaryArray, indexes: Indexes, *, examined: bool
    ) -> Iterator[Accepted]:
        half = len(indexes) // 2
        yield from self.sift(values.slice(0, half), indexes[:half], examined=examined)
        yield from self.sift(values.slice(half), indexes[half:], examined=examined)

    def _read(self, values: pa.BinaryArray) -> pa.RecordBatch | None:
        try:
            return self._reader.read(values)
        except MemoryError:
            raise  # Arrow's error for it is an ArrowException too, and no message's fault.
        except (MessageRefusedError, pa.ArrowException):
            return None

    def _read_one(self, values: pa.BinaryArray, index: int) -> pa.RecordBatch | None:
        try:
            return self._reader.read_one(values[0].as_py())
        except MessageRefusedError as refused:
            self._refusals[index] = refused
            return None


def admitted(
    values: pa.Array, message_bytes_max: int, refusals: dict[int, MessageRefusedError]
) -> Iterator[Indexes]:
    """Yield the indexes of messages to read at once; those without a readable size are refused."""
    sizes = np.asarray(call_function("binary_length", [values]).fill_null(-1)).astype(np.int64)
    for index in np.flatnonzero(sizes < 0):
        refusals[int(index)] = MessageRefusedError(Defect.NO_VALUE, "the message has no value")
    for index in np.flatnonzero(sizes > message_bytes_max):
        refusals[int(index)] = MessageRefusedError(
            Defect.TOO_LARGE, f"{sizes[index]} bytes, of at most {message_bytes_max}"
        )
    indexes = np.flatnonzero((sizes >= 0) & (sizes <= message_bytes_max))
    groups = np.cumsum(sizes[indexes]) // BATCH_BYTES_MAX
    cuts = np.flatnonzero(np.diff(groups)) + 1
    yield from (part for part in np.split(indexes, cuts) if len(part))


def taken(values: pa.Array, indexes: Indexes) -> pa.BinaryArray:
    """Return these messages as binary; a run of neighbours is not copied."""
    first, count = int(indexes[0]), len(indexes)
    is_run = int(indexes[-1]) - first == count - 1
    part = values.slice(first, count) if is_run else values.take(pa.array(indexes))
    return part.cast(pa.binary())


def joined_bytes(values: pa.BinaryArray) -> bytes:
    """Return the bytes of all messages, one behind the other."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return data[int(ends[0]) : int(ends[-1])].to_pybytes() if data is not None else b""


def joined_messages(
    values: pa.BinaryArray, before: bytes, between: bytes, behind: bytes
) -> pa.Buffer:
    """Return all messages in one text, with these bytes around them."""
    all_of_them = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    joined = call_function("binary_join", [all_of_them, pa.scalar(between)])
    pieces = pa.scalar(before), joined, pa.scalar(behind), pa.scalar(b"")
    return call_function("binary_join_element_wise", list(pieces))[0].as_buffer()
