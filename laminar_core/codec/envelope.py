"""The header in front of binary state: its type, its version, and checks of completeness.

It stands outside the payload, so a reader knows the type, and that the bytes are complete and
unchanged, before decoding (ERRATA 1.11). 64 bytes, little-endian; ``docs/formats.md``:

    0   magic          8 bytes: what the payload is
    8   version        u16, of the payload's format
    10  codec          u8: 0 none, 1 lz4, 2 zstd; how the payload is compressed
    11  zero           5 bytes
    16  length         u64, of what follows the header, in bytes
    24  sha256         32 bytes, of the payload; zero if a digest follows the payload
    56  crc32          u32, of bytes 0 to 55
    60  zero           4 bytes: the payload starts aligned

A digest that follows the payload is the SHA-256 of all before it. It is computed in the same pass
as the digest of the whole file, which is in a manifest: large state is hashed once.
"""

import hashlib
import struct
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

from laminar_core.errors import CorruptCheckpointError, ErrorCode

Codec = Literal["none", "lz4", "zstd"]
Compression = Literal["lz4", "zstd"]
"""The compression of a payload."""

CODECS: tuple[Codec, ...] = get_args(Codec)

HEADER_BYTES = 64
DIGEST_BYTES = 32
"""The length of a digest behind the payload."""

_FOLLOWS = bytes(DIGEST_BYTES)
"""In place of a digest in the header."""

_FIELDS = struct.Struct("<8sHB5xQ32s")
_CHECKSUM = struct.Struct("<I4x")
_CHECKED_BYTES = _FIELDS.size


class Content(Enum):
    """The type of a payload: its magic bytes.

    The line end in them detects files mangled as text.
    """

    SEGMENT = b"LMRSEG\r\n"
    EXECUTOR_STATE = b"LMREXE\r\n"


@dataclass(frozen=True, slots=True)
class Sealed:
    """A payload with verified length and digest."""

    version: int
    codec: Codec
    payload: memoryview


def header(content: Content, version: int, codec: Codec, payload: bytes | memoryview) -> bytes:
    """Return the 64 bytes that precede ``payload``."""
    return _header(content, version, codec, len(payload), hashlib.sha256(payload).digest())


def seal(content: Content, version: int, codec: Codec, view: memoryview) -> str:
    """Write what belongs around a payload; return the SHA-256 of it all, in hex digits.

    ``view`` has room for the header, the payload, and room for the digest.
    """
    length = len(view) - HEADER_BYTES
    view[:HEADER_BYTES] = _header(content, version, codec, length, _FOLLOWS)
    digest = hashlib.sha256(view[:-DIGEST_BYTES])
    view[-DIGEST_BYTES:] = digest.digest()
    digest.update(view[-DIGEST_BYTES:])
    return digest.hexdigest()


def _header(content: Content, version: int, codec: Codec, length: int, digest: bytes) -> bytes:
    checked = _FIELDS.pack(content.value, version, CODECS.index(codec), length, digest)
    return checked + _CHECKSUM.pack(zlib.crc32(checked))


def wrap(content: Content, version: int, codec: Codec, payload: bytes) -> bytes:
    """Return header and payload as one bytes object."""
    return header(content, version, codec, payload) + payload


def is_wrapped(data: bytes | memoryview) -> bool:
    """Return whether ``data`` starts with a known magic."""
    return bytes(data[:8]) in {content.value for content in Content}


def unwrap(data: bytes | memoryview, content: Content, *, verified: bool = False) -> Sealed:
    """Verify the header, length and digest.

    Return the payload, which shares the memory of ``data``. ``verified``: the caller has compared
    all of ``data`` with a digest, so that the one in the header need not be computed again.

    Raises:
        CorruptCheckpointError: too short, of another type or length, or changed.
    """
    view = memoryview(data).cast("B")
    if len(view) < HEADER_BYTES:
        raise _unreadable(f"{len(view)} bytes are less than a header of {HEADER_BYTES}")
    number: int
    magic, version, number, length, digest = _FIELDS.unpack_from(view)
    if magic != content.value:
        raise _unreadable(f"it does not start with {content.value!r}")
    (crc32,) = _CHECKSUM.unpack_from(view, _CHECKED_BYTES)
    padding = bytes(view[11:16]) + bytes(view[60:HEADER_BYTES])
    if crc32 != zlib.crc32(view[:_CHECKED_BYTES]) or any(padding):
        raise _unreadable("its header is damaged")
    if number >= len(CODECS):
        raise _unreadable(f"compression {number} is not known: use the version that wrote it")
    payload = view[HEADER_BYTES:]
    if len(payload) != length:
        raise _unreadable(f"its payload has {len(payload)} bytes instead of {length}")
    hashed = payload
    if digest == _FOLLOWS:
        hashed, payload, digest = _before_digest(view)
    if not verified and hashlib.sha256(hashed).digest() != digest:
        raise _unreadable("its payload is not what was written (its sha256 differs)")
    return Sealed(version, CODECS[number], payload.toreadonly())


def _before_digest(view: memoryview) -> tuple[memoryview, memoryview, memoryview]:
    """Return what the digest at the end is of, the payload, and the digest."""
    if len(view) < HEADER_BYTES + DIGEST_BYTES:
        raise _unreadable("there is no digest behind its payload")
    before = view[:-DIGEST_BYTES]
    return before, before[HEADER_BYTES:], view[-DIGEST_BYTES:]


def _unreadable(reason: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        ErrorCode.STATE_UNREADABLE, f"this is not a complete state: {reason}"
    )
