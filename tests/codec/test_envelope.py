import struct
import zlib

import pytest

from laminar_core.codec.envelope import (
    CODECS,
    HEADER_BYTES,
    Content,
    Sealed,
    is_wrapped,
    unwrap,
    wrap,
)
from laminar_core.errors import CorruptCheckpointError, ErrorCode

WHOLE = wrap(Content.SEGMENT, 2, "lz4", b"payload")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("content", Content)
def test_what_was_wrapped_comes_back(content, codec):
    data = wrap(content, 7, codec, b"payload")
    assert is_wrapped(data)
    assert unwrap(data, content) == Sealed(7, codec, memoryview(b"payload"))


def test_an_empty_payload_is_one():
    assert unwrap(wrap(Content.SEGMENT, 1, "none", b""), Content.SEGMENT).payload == b""


def test_the_header_is_the_documented_bytes():
    magic, version, codec, length = struct.unpack_from("<8sHB5xQ", WHOLE)
    assert (magic, version, codec, length) == (b"LMRSEG\r\n", 2, 1, 7)
    assert struct.unpack_from("<I4x", WHOLE, 56) == (zlib.crc32(WHOLE[:56]),)
    assert WHOLE[HEADER_BYTES:] == b"payload"


def test_every_flipped_bit_and_every_truncation_is_found():
    for bit in range(len(WHOLE) * 8):
        damaged = bytearray(WHOLE)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpointError) as caught:
            unwrap(bytes(damaged), Content.SEGMENT)
        assert caught.value.code is ErrorCode.STATE_UNREADABLE
    for length in range(len(WHOLE)):
        with pytest.raises(CorruptCheckpointError):
            unwrap(WHOLE[:length], Content.SEGMENT)


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
