"""Bytes as they are, and text that is checked."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.formats.messages import Defect
from laminar_core.connectors.formats.raw import RawFormat
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from tests.connectors.formats.adversarial import check_invariants, messages

VALUES = st.lists(
    st.none() | st.binary(max_size=6) | st.text(max_size=3).map(str.encode), max_size=6
)


def schema(of: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("value", of, nullable=False)])


def as_text(value: bytes | None) -> list[str]:
    try:
        return [] if value is None else [value.decode()]
    except UnicodeDecodeError:
        return []


@given(VALUES, st.sampled_from([pa.binary(), pa.large_binary()]))
def test_bytes_come_through_as_they_are_both_ways(
    values: list[bytes | None], of: pa.DataType
) -> None:
    decoded = check_invariants(RawFormat().decoder(schema(of)), values)
    there = [value for value in values if value is not None]
    assert decoded.rows.column("value").to_pylist() == there
    assert RawFormat().encoder(schema(of)).encode(decoded.rows).to_pylist() == there


@given(VALUES, st.sampled_from([pa.string(), pa.large_string()]))
def test_a_text_is_utf_8(values: list[bytes | None], of: pa.DataType) -> None:
    decoded = check_invariants(RawFormat().decoder(schema(of)), values)
    assert decoded.rows.column("value").to_pylist() == [t for v in values for t in as_text(v)]


def test_a_letter_says_where_a_text_is_wrong() -> None:
    decoder = RawFormat(message_bytes_max=5).decoder(schema(pa.string()))
    letters = decoder.decode(messages([b"a\xff", b"123456"])).letters
    assert letters.column("defect").to_pylist() == [Defect.NOT_UTF8, Defect.TOO_LARGE]
    assert letters.column("reason")[0].as_py() == "not UTF-8: invalid start byte at byte 1"


def test_a_null_is_no_message() -> None:
    rows = pa.record_batch({"value": [b"a", None]})
    with pytest.raises(DataError, match="value is null") as caught:
        RawFormat().encoder(rows.schema).encode(rows)
    assert caught.value.code is ErrorCode.NOT_ENCODABLE


@pytest.mark.parametrize(
    "wrong", [pa.schema([]), pa.schema([("a", pa.int64())]), pa.schema(2 * [("a", pa.binary())])]
)
def test_another_schema_is_refused_both_ways(wrong: pa.Schema) -> None:
    for make in (RawFormat().decoder, RawFormat().encoder):
        with pytest.raises(ConfigurationError, match="one column of bytes or text"):
            make(wrong)


def test_the_description_says_nothing_of_limits() -> None:
    assert RawFormat(message_bytes_max=5).describe() == RawFormat().describe()
    assert RawFormat().one_row_per_message
