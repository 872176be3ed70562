"""The wire format of channel elements between two workers.

A frame is a fixed header and a payload. The header names the generation, the channel and the
element's sequence number on it, so that a receiver detects frames that were lost, repeated or
reordered by a broken connection or a faulty transport. Batches are Arrow IPC messages without their
schema, which both ends know from the plan; only dictionary-encoded batches carry it, because their
dictionaries have to be sent.
"""

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa

from laminar_core.codec.dictionaries import has_dictionary
from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.link.sockets import Buffer
from laminar_core.protocol.types import (
    Batch,
    CancelMarker,
    CheckpointBarrier,
    CheckpointId,
    CheckpointKind,
    Element,
    EndOfInput,
    Idle,
    Watermark,
)

ArrowElement = Element[Any]

ALIGNMENT_BYTES = 16
"""Enough for every fixed-width type."""

_HEADER = struct.Struct("<IHHHBxQ")  # generation, edge, sender, receiver, kind, sequence
_MALFORMED = (
    pa.ArrowException,
    OSError,
    EOFError,
    StopIteration,  # Of a stream that has a schema, and no batch.
    RecursionError,
    struct.error,
    ValueError,
    TypeError,
)
_ARRIVED = struct.Struct("<Q")


class FrameKind(IntEnum):
    """The kind of a frame; append-only."""

    BATCH = 0
    WATERMARK = 1
    IDLE = 2
    BARRIER = 3
    CANCEL = 4
    END = 5
    CREDIT = 6
    """Not an element: flows back from receiver to sender. The sequence is the number of batches
    that the receiver has taken since the start, and the payload how many frames have arrived
    without a gap. Both are totals, so one that is lost or repeated does no harm."""
    MARK = 7
    """Not an element: the sequence is the number of frames sent so far. The receiver answers with
    ``CREDIT``, or with ``RESEND`` if it lacks some of them."""
    ROLL_CALL = 8
    """Belongs to no channel: ``receiver`` must mark its channels to ``sender``, and repeat credit.
    """
    RESEND = 9
    """Like ``CREDIT``; moreover, the frames that have not arrived are to be sent again."""
    PRESENT = 10
    """Belongs to no channel: ``sender`` answers a roll call of ``receiver``."""
    GREETING = 11
    """Belongs to no channel: shows ``receiver`` that ``sender`` reaches it."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a frame. ``sender`` and ``receiver`` are the ends of its channel."""

    generation: int
    edge_id: int
    sender: int
    receiver: int
    kind: FrameKind
    sequence: int

    def encode(self) -> bytes:
        """Return 20 bytes, little-endian."""
        return _HEADER.pack(
            self.generation, self.edge_id, self.sender, self.receiver, self.kind, self.sequence
        )


def decode_header(data: Buffer) -> Header:
    """Read a header.

    Raises:
        ProtocolError: it is not one.
    """
    try:
        generation, edge_id, sender, receiver, kind, sequence = _HEADER.unpack(bytes(data))
        return Header(generation, edge_id, sender, receiver, FrameKind(kind), sequence)
    except (struct.error, ValueError) as error:
        raise ProtocolError(ErrorCode.ILLEGAL_EVENT, f"not a frame: {error}") from error


def encode_arrived(frames: int) -> bytes:
    """Return the payload of ``CREDIT`` and ``RESEND``: how many frames have arrived."""
    return _ARRIVED.pack(frames)


def decode_arrived(payload: Buffer) -> int:
    """Read the payload of ``CREDIT`` and ``RESEND``.

    Raises:
        ProtocolError: it is not one.
    """
    try:
        return _ARRIVED.unpack(bytes(payload))[0]
    except struct.error as error:
        raise ProtocolError(ErrorCode.ILLEGAL_EVENT, f"not a confirmation: {error}") from error


class ElementCodec:
    """Encodes elements of one edge as payloads, and decodes them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._with_dictionaries = any(has_dictionary(f.type) for f in schema)

    def encode(self, element: ArrowElement) -> tuple[FrameKind, Buffer]:
        """Return kind and payload; a batch's payload shares the batch's memory where possible."""
        match element:
            case Batch(batch):
                return FrameKind.BATCH, self._encode_batch(batch)
            case Watermark(time_us):
                return FrameKind.WATERMARK, struct.pack("<q", time_us)
            case Idle():
                return FrameKind.IDLE, b""
            case CheckpointBarrier():
                return FrameKind.BARRIER, _encode_barrier(element)
            case CancelMarker(checkpoint_id):
                return FrameKind.CANCEL, struct.pack("<q", checkpoint_id)
            case EndOfInput():
                return FrameKind.END, b""

    def decode(self, kind: FrameKind, payload: Buffer) -> ArrowElement:
        """Return the element; a batch keeps the payload's memory alive.

        Raises:
            ProtocolError: the payload does not fit the kind.
        """
        try:
            return self._decode(kind, payload)
        except _MALFORMED as error:
            reason = str(error).partition("\n")[0] or "it ends early"
            raise ProtocolError(
                ErrorCode.ILLEGAL_EVENT, f"not the payload of a {kind.name.lower()}: {reason}"
            ) from error

    def _decode(self, kind: FrameKind, payload: Buffer) -> ArrowElement:
        match kind:
            case FrameKind.BATCH:
                return Batch(self._decode_batch(payload))
            case FrameKind.WATERMARK:
                return Watermark(struct.unpack("<q", bytes(payload))[0])
            case FrameKind.IDLE:
                return Idle()
            case FrameKind.BARRIER:
                return _decode_barrier(bytes(payload))
            case FrameKind.CANCEL:
                return CancelMarker(CheckpointId(struct.unpack("<q", bytes(payload))[0]))
            case FrameKind.END:
                return EndOfInput()
            case (
                FrameKind.CREDIT
                | FrameKind.MARK
                | FrameKind.ROLL_CALL
                | FrameKind.RESEND
                | FrameKind.PRESENT
                | FrameKind.GREETING
            ):
                raise ProtocolError(
                    ErrorCode.ILLEGAL_EVENT, f"a {kind.name.lower()} is not an element"
                )

    def _encode_batch(self, batch: pa.RecordBatch) -> pa.Buffer:
        if not self._with_dictionaries:
            return batch.serialize()
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batch.schema) as writer:
            writer.write_batch(batch)
        return stream.getvalue()

    def _decode_batch(self, payload: Buffer) -> pa.RecordBatch:
        buffer = _aligned(payload if isinstance(payload, pa.Buffer) else pa.py_buffer(payload))
        if not self._with_dictionaries:
            return pa.ipc.read_record_batch(buffer, self._schema)
        return pa.ipc.open_stream(buffer).read_next_batch()


def _aligned(buffer: pa.Buffer) -> pa.Buffer:
    """Arrow's kernels want aligned memory, and a socket delivers wherever it likes."""
    if buffer.address % ALIGNMENT_BYTES == 0:
        return buffer
    aligned = pa.allocate_buffer(buffer.size)
    np.frombuffer(aligned, np.uint8)[:] = np.frombuffer(buffer, np.uint8)
    return aligned


def _encode_barrier(barrier: CheckpointBarrier) -> bytes:
    return json.dumps(
        [
            barrier.checkpoint_id,
            barrier.kind.value,
            barrier.created_ms,
            barrier.alignment_timeout_ms,
            barrier.unaligned,
        ]
    ).encode()


def _decode_barrier(payload: bytes) -> CheckpointBarrier:
    checkpoint_id, kind, created_ms, timeout_ms, unaligned = json.loads(payload)
    return CheckpointBarrier(
        CheckpointId(checkpoint_id), CheckpointKind(kind), created_ms, timeout_ms, unaligned
    )
