"""Arrow IPC: many rows per message, and nothing is allocated because a message says so."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.formats.arrow_ipc import (
    ENCODED_BYTES_MAX,
    ENCODED_ROWS,
    ArrowIpcFormat,
)
from laminar_core.connectors.formats.messages import Defect, Messages
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from tests.connectors.formats.adversarial import IPC_SCHEMA as SCHEMA
from tests.connectors.formats.adversarial import ipc_rows as rows
from tests.connectors.formats.adversarial import ipc_stream as stream
from tests.connectors.formats.adversarial import messages

FORMAT = ArrowIpcFormat()
DECODER = FORMAT.decoder(SCHEMA)
GOOD = [stream(rows(0, 2)), stream(rows(2, 0)), stream(rows(2, 3), rows(5, 1), compression="zstd")]


def test_rows_know_their_message_and_a_message_may_have_none() -> None:
    decoded = DECODER.decode(messages([b"oops", *GOOD, None, stream(rows(6, 1))]))
    assert decoded.rows.column("id").to_pylist() == [*range(7)]
    assert decoded.origins.to_pylist() == [1, 1, 3, 3, 3, 3, 5]
    assert decoded.letters.column("index").to_pylist() == [0, 4]
    assert decoded.rows.schema == SCHEMA
    decoded.rows.validate(full=True)


@given(st.lists(st.sampled_from([*GOOD, b"", b"oops", GOOD[0][:-300], GOOD[2] + b"x"]), max_size=6))
def test_a_message_depends_on_its_own_bytes_alone(values: list[bytes]) -> None:
    decoded = DECODER.decode(messages(values))
    alone = [DECODER.decode(messages([value])) for value in values]
    assert decoded.rows.to_pylist() == [row for one in alone for row in one.rows.to_pylist()]
    bad = [n for n, one in enumerate(alone) if one.letters.num_rows]
    assert decoded.letters.column("index").to_pylist() == bad


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("count", [0, 1, 2_500])
def test_rows_come_back_as_they_were(compression: str | None, count: int) -> None:
    format_ = ArrowIpcFormat(compression=compression)
    batch = rows(0, count + 1).slice(1)
    encoded = format_.encoder(SCHEMA).encode(batch)
    assert len(encoded) == -(-count // ENCODED_ROWS)
    decoded = DECODER.decode(Messages(encoded, pa.array(range(len(encoded)))))
    assert decoded.rows.to_pylist() == batch.to_pylist()
    assert decoded.letters.num_rows == 0
    assert not format_.one_row_per_message


def test_large_rows_make_more_messages_and_one_that_is_too_large_is_refused() -> None:
    schema = pa.schema([("v", pa.string())])
    encoder = FORMAT.encoder(schema)
    batch = pa.record_batch({"v": 10 * [300_000 * "x"]})
    encoded = encoder.encode(batch)
    assert len(encoded) > 3
    assert max(map(len, encoded.to_pylist())) <= ENCODED_BYTES_MAX
    decoded = FORMAT.decoder(schema).decode(Messages(encoded, pa.array(range(len(encoded)))))
    assert decoded.rows.equals(batch)
    with pytest.raises(DataError, match="and a message at most 900000") as caught:
        encoder.encode(pa.record_batch({"v": ["", 900_000 * "x"]}))
    assert caught.value.code is ErrorCode.NOT_ENCODABLE


def letter(value: bytes, format_: ArrowIpcFormat = FORMAT, schema: pa.Schema = SCHEMA) -> dict:
    decoded = format_.decoder(schema).decode(messages([value]))
    assert decoded.rows.num_rows == 0
    (only,) = decoded.letters.to_pylist()
    return only


def test_columns_are_taken_by_name_with_types_that_fit() -> None:
    other = pa.record_batch(
        {
            "x": pa.array([b"skipped"]),
            "l": pa.array([[1]], pa.list_(pa.int32())),
            "v": pa.array(["a"]).dictionary_encode(),
            "k": pa.array(["b"], pa.large_string()),
            "id": pa.array([7], pa.int8()),
        }
    )
    decoded = DECODER.decode(messages([stream(other), stream(other.select(["id"]))]))
    assert decoded.rows.to_pylist() == [
        {"id": 7, "v": "a", "k": "b", "l": [1]},
        {"id": 7, "v": None, "k": None, "l": None},
    ]


@pytest.mark.parametrize(
    ("columns", "defect", "reason"),
    [
        ({"id": ["a"]}, Defect.WRONG_SCHEMA, "column id is string, which does not fit int64"),
        ({"id": pa.array([2**63], pa.uint64())}, Defect.WRONG_TYPE, None),
        ({"l": pa.array([["1"]])}, Defect.WRONG_SCHEMA, None),
        ({"l": pa.array([[2**40]], pa.list_(pa.int64()))}, Defect.WRONG_TYPE, None),
    ],
)
def test_what_does_not_fit_is_refused(
    columns: dict[str, pa.Array], defect: Defect, reason: str | None
) -> None:
    found = letter(stream(pa.record_batch(columns)))
    assert found["defect"] == defect
    assert reason in (None, found["reason"])


def test_a_column_that_must_have_values_is_missed() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    absent = pa.record_batch({"v": ["a"]})
    null = pa.record_batch({"id": pa.array([None], pa.int8())})
    assert letter(stream(absent), schema=schema)["reason"] == "no column id"
    assert letter(stream(null), schema=schema)["defect"] == Defect.MISSING_VALUE
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    assert letter(stream(twice))["reason"] == "more than one column id"


def test_names_that_are_not_unique_are_refused() -> None:
    for schema in (pa.schema([]), pa.schema(2 * [("a", pa.int64())])):
        with pytest.raises(ConfigurationError, match="each needs one of its own"):
            FORMAT.decoder(schema)


def test_sizes_are_judged_before_anything_is_decoded() -> None:
    found = letter(GOOD[0], ArrowIpcFormat(message_rows_max=1))
    assert found["reason"] == "3 rows, of at most 1"  # Two, and one value in a dictionary.
    found = letter(GOOD[2], ArrowIpcFormat(decoded_bytes_max=100))
    assert found["defect"] == Defect.TOO_LARGE
    bomb = stream(pa.record_batch({"v": [50_000_000 * "0"]}), compression="zstd")
    assert len(bomb) < 10_000
    found = letter(bomb, ArrowIpcFormat(decoded_bytes_max=40_000_000))
    assert found["reason"] == "50000008 bytes when decompressed, of at most 40000000"


def test_a_claim_of_rows_without_bytes_is_no_reason_to_make_them() -> None:
    """Nulls, and structs without fields, need no bytes: a small message may claim any number."""
    nulls = pa.record_batch({"v": pa.nulls(2_000_000)})
    assert letter(stream(nulls))["reason"] == "2000000 rows, of at most 1000000"


def test_a_claimed_size_is_not_believed() -> None:
    value = bytearray(stream(pa.record_batch({"v": [1000 * "0"]}), compression="zstd"))
    at = value.rindex(struct.pack("<q", 1000))  # The data; before it are the offsets.
    value[at : at + 8] = struct.pack("<q", 2**60)
    assert letter(bytes(value))["defect"] == Defect.TOO_LARGE
    value[at : at + 8] = struct.pack("<q", -5)
    assert letter(bytes(value))["reason"] == "not Arrow IPC: a buffer has a negative size"
    value[at : at + 8] = struct.pack("<q", 999)
    assert letter(bytes(value))["defect"] == Defect.MALFORMED


def test_bytes_behind_the_end_are_no_part_of_a_stream() -> None:
    found = letter(GOOD[0] + b"more")
    assert (found["defect"], found["reason"]) == (
        Defect.MALFORMED,
        "not Arrow IPC: 4 bytes behind the end of the stream",
    )


def test_text_that_is_not_utf_8_is_refused() -> None:
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    assert letter(stream(pa.record_batch({"v": text})))["defect"] == Defect.MALFORMED
