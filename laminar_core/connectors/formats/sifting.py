"""Separate the messages that can be read from those that cannot, at the price of few reads.

A reader of whole batches says that a batch has a bad message, not which one. So a refused batch is
read again in two halves. Once it is small, the reader looks at each message, quickly and not
exactly, and those that look wrong are read alone. What is still refused then is halved down to
single messages. So a batch without bad messages costs one read, a bad message that looks wrong one
read, and any other about two reads for each halving.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
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

_LOOK_AT_MOST = 2_048
"""Messages of a refused batch that are looked at. With more of them a look costs more than halving:
each message takes some microseconds, and a read ends at the first bad one."""

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

    def doubtful(self, values: pa.BinaryArray) -> Iterable[int]:
        """Return the indexes of messages that look as if ``read`` refused them.

        It is a guess. ``read``, for the message alone, and ``read_one`` decide.
        """
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
        suspects = sieve.refused(values, indexes, reader.suspects(values))
        parts.extend(sieve.sift(*_without(values, indexes, suspects)))
    return assembled(messages, reader.schema, parts, refusals)


class _Sieve:
    """Reads what can be read, and writes down why the rest cannot."""

    def __init__(self, reader: RowReader, refusals: dict[int, MessageRefusedError]) -> None:
        self._reader = reader
        self._refusals = refusals

    def refused(
        self, values: pa.BinaryArray, indexes: Indexes, suspects: Iterable[int]
    ) -> list[int]:
        """Return those suspects that are refused when they are examined."""
        return [
            at for at in suspects if not self._passes(values[int(at)].as_py(), int(indexes[at]))
        ]

    def sift(
        self, values: pa.BinaryArray, indexes: Indexes, *, looked_at: bool = False
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
        elif not looked_at and count <= _LOOK_AT_MOST:
            bad = [
                at
                for at in self._reader.doubtful(values)
                if not self._is_row(values.slice(at, 1), int(indexes[at]))
            ]
            if bad:
                yield from self.sift(*_without(values, indexes, bad), looked_at=True)
            else:
                yield from self._halves(values, indexes, looked_at=True)
        else:
            yield from self._halves(values, indexes, looked_at=looked_at)

    def _halves(
        self, values: pa.BinaryArray, indexes: Indexes, *, looked_at: bool
    ) -> Iterator[Accepted]:
        half = len(indexes) // 2
        yield from self.sift(values.slice(0, half), indexes[:half], looked_at=looked_at)
        yield from self.sift(values.slice(half), indexes[half:], looked_at=looked_at)

    def _is_row(self, value: pa.BinaryArray, index: int) -> bool:
        """Return whether one message can be read alone, and write down why it cannot."""
        # An examination is cheaper than a read. What is too deep for it may be read all the same.
        if not self._passes(value[0].as_py(), index, {Defect.TOO_DEEP}):
            return False
        return self._read(value) is not None or self._read_one(value, index) is not None

    def _passes(self, value: bytes, index: int, spared: Container[Defect] = ()) -> bool:
        """Examine a message; it is not refused for a defect that is ``spared``."""
        try:
            self._reader.examine(value)
        except MessageRefusedError as refused:
            if refused.defect not in spared:
                self._refusals[index] = refused
                return False
        return True

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


def refused_by(judge: Callable[[bytes], object], values: pa.BinaryArray) -> list[int]:
    """Return the indexes of messages for which ``judge`` raises MessageRefusedError."""

    def is_refused(value: bytes) -> bool:
        try:
            judge(value)
        except MessageRefusedError:
            return True
        return False

    return [n for n, value in enumerate(values.to_pylist()) if is_refused(value)]


def _without(
    values: pa.BinaryArray, indexes: Indexes, refused: Sequence[int]
) -> tuple[pa.BinaryArray, Indexes]:
    if not refused:
        return values, indexes
    kept = np.ones(len(indexes), bool)
    kept[refused] = False
    return values.filter(pa.array(kept)), indexes[kept]


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
