"""The sizes that a message claims, read from its header."""

import struct

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.ipc_sizes import Claims, _Flatbuffer, claims_of
from tests.connectors.formats.adversarial import ipc_rows, ipc_stream


def claims(stream: bytes) -> list[Claims]:
    return [
        claims_of(message) for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))
    ]


def test_claims_are_read_from_every_kind_of_message() -> None:
    batch = ipc_rows(0, 3)
    assert claims(ipc_stream(batch)) == [Claims(), Claims(1), Claims(3)]
    schema, dictionary, rows = claims(ipc_stream(batch, compression="lz4"))
    assert (schema, dictionary.rows, rows.rows) == (Claims(), 1, 3)
    assert dictionary.decompressed_bytes > 0


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_is_claimed_is_what_decoding_takes(compression: str) -> None:
    batch = pa.record_batch({"v": [10_000 * "0", None, 5_000 * "1"], "n": [1, 2, None]})
    (_, found) = claims(ipc_stream(batch, compression=compression))
    whole = sum(b.size for column in batch.columns for b in column.buffers() if b is not None)
    assert found.rows == 3
    assert whole - 64 <= found.decompressed_bytes <= whole + 64


@pytest.mark.parametrize(
    "data", [b"", b"\x04", b"\xff\xff\xff\xff", b"\x04\x00\x00\x00\x08\x00\x00\x00"]
)
def test_a_header_that_points_elsewhere_is_an_error_and_not_another_place(data: bytes) -> None:
    header = _Flatbuffer(data)
    with pytest.raises((ValueError, struct.error)):
        header.scalar("<q", header.indirect(0), 0)
