import hashlib
import struct
import zlib

import pytest

from laminar_core.codec.envelope import (
    CODECS,
    DIGEST_BYTES,
    HEADER_BYTES,
    Codec,
    Content,
    Sealed,
    is_wrapped,
    seal,
    unwrap,
    wrap,
)
from laminar_core.errors import CorruptCheckpointError, ErrorCode


def sealed(content: Content, version: int, codec: Codec, payload: bytes) -> bytes:
    """Return a payload with its digest behind it."""
    data = bytearray(HEADER_BYTES + len(payload) + DIGEST_BYTES)
    data[HEADER_BYTES:-DIGEST_BYTES] = payload
    assert seal(content, version, codec, memoryview(data)) == hashlib.sha256(data).hexdigest()
    return bytes(data)


WHOLE = wrap(Content.SEGMENT, 2, "lz4", b"payload")
WAYS = pytest.mark.parametrize("way", [wrap, sealed])
"""The digest is in the header, or behind the payload."""


@WAYS
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("content", Content)
def test_what_was_wrapped_comes_back(content, codec, way):
    data = way(content, 7, codec, b"payload")
    assert is_wrapped(data)
    assert unwrap(data, content) == Sealed(7, codec, memoryview(b"payload"))


@WAYS
def test_an_empty_payload_is_one(way):
    assert unwrap(way(Content.SEGMENT, 1, "none", b""), Content.SEGMENT).payload == b""


def test_the_header_is_the_documented_bytes():
    magic, version, codec, length = struct.unpack_from("<8sHB5xQ", WHOLE)
    assert (magic, version, codec, length) == (b"LMRSEG\r\n", 2, 1, 7)
    assert struct.unpack_from("<I4x", WHOLE, 56) == (zlib.crc32(WHOLE[:56]),)
    assert WHOLE[HEADER_BYTES:] == b"payload"


@WAYS
def test_every_flipped_bit_and_every_truncation_is_found(way):
    whole = way(Content.SEGMENT, 2, "lz4", b"payload")
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpointError) as caught:
            unwrap(bytes(damaged), Content.SEGMENT)
        assert caught.value.code is ErrorCode.STATE_UNREADABLE
    for length in range(len(whole)):
        with pytest.raises(CorruptCheckpointError):
            unwrap(whole[:length], Content.SEGMENT)


def test_a_digest_behind_the_payload_is_the_documented_bytes():
    data = sealed(Content.SEGMENT, 3, "zstd", b"payload")
    magic, version, codec, length, digest = struct.unpack_from("<8sHB5xQ32s", data)
    assert (magic, version, codec, length) == (b"LMRSEG\r\n", 3, 2, 7 + 32)
    assert digest == bytes(32)
    assert data[64:-32] == b"payload"
    assert data[-32:] == hashlib.sha256(data[:-32]).digest()


def test_a_header_that_promises_a_digest_and_has_none_is_refused():
    fields = struct.pack("<8sHB5xQ32s", b"LMRSEG\r\n", 3, 0, 5, bytes(32))
    data = fields + struct.pack("<I4x", zlib.crc32(fields)) + b"short"
    with pytest.raises(CorruptCheckpointError, match="no digest behind its payload"):
        unwrap(data, Content.SEGMENT)


def test_something_behind_it_is_found():
    with pytest.raises(CorruptCheckpointError, match="8 bytes instead of 7"):
        unwrap(WHOLE + b"!", Content.SEGMENT)


def test_one_content_is_not_taken_for_another():
    with pytest.raises(CorruptCheckpointError, match="does not start with"):
        unwrap(WHOLE, Content.EXECUTOR_STATE)


def test_an_unknown_compression_says_what_to_do():
    checked = bytearray(WHOLE[:56])
    checked[10] = 9
    data = bytes(checked) + struct.pack("<I4x", zlib.crc32(checked)) + b"payload"
    with pytest.raises(CorruptCheckpointError, match="compression 9 is not known"):
        unwrap(data, Content.SEGMENT)
