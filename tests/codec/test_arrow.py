import contextlib
import datetime as dt
import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.codec.arrow import (
    FORMAT_KEY,
    VERSION_KEY,
    decode_table,
    empty_table,
    encode_segment,
    encode_table,
    with_one_dictionary,
)
from laminar_core.codec.envelope import DIGEST_BYTES, HEADER_BYTES, Content, wrap
from laminar_core.errors import CorruptCheckpointError, DataError, ErrorCode
from tests.codec.golden_segments import TABLE
from tests.records.manifests import rows

GOLDEN = Path(__file__).parents[1] / "golden"

COLUMNS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.none(), st.text() | st.none()))


def ipc_file(metadata: dict[bytes, bytes] | None) -> bytes:
    table = rows(1).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@settings(deadline=None)
@given(COLUMNS)
def test_a_table_comes_back_as_it_was(values):
    table = pa.table(
        {
            "n": pa.array([n for n, _ in values], pa.int64()),
            "s": pa.array([s for _, s in values], pa.string()),
        }
    )
    assert decode_table(encode_table(table)).equals(table, check_metadata=True)


def test_types_metadata_and_chunks_come_back():
    schema = pa.schema(
        [
            pa.field("t", pa.timestamp("us", "UTC"), metadata={"unit": "event"}),
            pa.field("d", pa.decimal128(38, 10)),
            pa.field("l", pa.list_(pa.struct([("x", pa.float64())]))),
            pa.field("c", pa.dictionary(pa.int32(), pa.string())),
        ],
        metadata={"owner": "window"},
    )
    now = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    part = pa.table(
        [[now], [None], [[{"x": 0.5}]], pa.array(["a"]).dictionary_encode()], schema=schema
    )
    table = pa.concat_tables([part, part])
    decoded = decode_table(encode_table(table))
    assert decoded.equals(table, check_metadata=True)


def test_there_is_an_empty_table_of_any_type():
    identifiers = pa.struct([("id", pa.uuid()), ("of", pa.dictionary(pa.int8(), pa.string()))])
    schema = pa.schema([pa.field("x", identifiers, nullable=False), ("y", pa.list_(identifiers))])
    assert empty_table(schema).schema.equals(schema)
    assert empty_table(schema).num_rows == 0


def test_each_part_of_a_table_may_have_its_own_dictionaries_at_any_depth():
    parts: list[pa.Table] = []
    for texts in (["a", "b"], ["b", "c"], []):
        column = pa.array(texts, pa.string()).dictionary_encode()
        structs = pa.StructArray.from_arrays([column], names=["x"])
        offsets = pa.array(range(len(texts) + 1), pa.int32())
        parts.append(
            pa.table({"c": column, "s": structs, "l": pa.ListArray.from_arrays(offsets, structs)})
        )
    table = pa.concat_tables(parts)
    decoded = decode_table(encode_table(table))
    assert decoded.schema == table.schema
    assert decoded.to_pylist() == table.to_pylist()


def test_an_empty_table_keeps_its_schema():
    empty = rows().schema.empty_table()
    assert decode_table(encode_table(empty)).schema == empty.schema


def test_the_same_table_gives_the_same_bytes():
    assert encode_table(rows(1, 2)) == encode_table(rows(1, 2))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_state_is_smaller_and_read_alike(compression):
    table = pa.table({"key": ["same"] * 10_000})
    data = encode_table(table, compression=compression)
    assert len(data) < len(encode_table(table)) * 0.6
    assert decode_table(data).equals(table)


def test_the_result_equals_its_own_bytes():
    data = encode_table(rows(-1))
    assert data == bytes(data)
    assert len(data) == data.nbytes


def arrow_file(table: pa.Table) -> bytes:
    return bytes(encode_table(table)[HEADER_BYTES:-DIGEST_BYTES])


def test_any_arrow_reader_reads_what_is_between_header_and_digest_and_sees_what_it_is():
    with pa.ipc.open_file(pa.py_buffer(arrow_file(rows(1, 2)))) as reader:
        assert reader.read_all().to_pylist() == rows(1, 2).to_pylist()
        assert reader.schema.metadata == {FORMAT_KEY: b"state", VERSION_KEY: b"1"}


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_the_digest_of_the_whole_file_and_the_one_at_its_end_are_right(compression):
    segment = encode_segment(rows(1, 2, 3), compression=compression)
    assert segment.sha256 == hashlib.sha256(segment.data).hexdigest()
    assert segment.data[-32:] == hashlib.sha256(segment.data[:-32]).digest()


def test_every_truncation_is_unreadable():
    data = bytes(encode_table(rows(1, 2, 3)))
    for length in range(len(data)):
        with pytest.raises(CorruptCheckpointError) as caught:
            decode_table(data[:length])
        assert caught.value.code is ErrorCode.STATE_UNREADABLE


def test_every_flipped_byte_is_found():
    data = bytes(encode_table(rows(1, 2, 3)))
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 0x55
        with pytest.raises(CorruptCheckpointError) as caught:
            decode_table(bytes(flipped))
        assert caught.value.code is ErrorCode.STATE_UNREADABLE


def test_the_first_version_had_no_header_and_is_still_read():
    assert decode_table(arrow_file(rows(1, 2))).equals(rows(1, 2))


@pytest.mark.parametrize("position", range(0, 800, 7))
def test_a_flipped_byte_is_an_error_of_ours_or_other_values_but_never_a_crash(position):
    """A digest finds every flipped bit; without it, decoding still must not take us down."""
    data = bytearray(arrow_file(rows(1, 2, 3)))
    data[position] ^= 0x55
    with contextlib.suppress(CorruptCheckpointError):
        decode_table(bytes(data)).to_pylist()


def test_text_that_is_no_utf8_is_unreadable():
    table = pa.table({"key": pa.array([b"\xff\xfe"]).view(pa.string())})
    with pytest.raises(CorruptCheckpointError, match="UTF8"):
        decode_table(encode_table(table))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\x00" * 100])
def test_what_is_no_arrow_file_is_unreadable(data):
    with pytest.raises(CorruptCheckpointError, match="not a readable Arrow file"):
        decode_table(data)


@pytest.mark.parametrize("metadata", [None, {FORMAT_KEY: b"other", VERSION_KEY: b"1"}])
def test_an_arrow_file_of_somebody_else_is_refused(metadata):
    with pytest.raises(CorruptCheckpointError, match="no Laminar state"):
        decode_table(ipc_file(metadata))


def test_a_newer_format_says_what_to_do():
    with pytest.raises(CorruptCheckpointError, match="use the version that wrote it"):
        decode_table(ipc_file({FORMAT_KEY: b"state", VERSION_KEY: b"2"}))


def test_a_newer_segment_says_what_to_do():
    with pytest.raises(CorruptCheckpointError, match="segment version 4 is not known"):
        decode_table(wrap(Content.SEGMENT, 4, "none", arrow_file(rows(1))))


@pytest.mark.parametrize(
    "name",
    [
        "state_v1.arrow",
        *(f"segment_v{v}_{how}.seg" for v in (2, 3) for how in ("plain", "lz4", "zstd")),
    ],
)
def test_state_files_of_every_version_are_read_for_ever(name):
    assert decode_table((GOLDEN / name).read_bytes()).equals(TABLE, check_metadata=True)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("name", "codec"), [("plain", 0), ("lz4", 1), ("zstd", 2)])
def test_golden_segments_say_how_they_are_compressed(name, codec, version):
    data = (GOLDEN / f"segment_v{version}_{name}.seg").read_bytes()
    assert (data[:8], data[8:10], data[10]) == (b"LMRSEG\r\n", bytes([version, 0]), codec)
    assert len(data) > HEADER_BYTES


HALVES = pa.array(np.array([1, 1.5, 2], np.float16))


@pytest.mark.parametrize(
    "values",
    [HALVES, pa.array([{"a": 1}, {"a": 2}, {"a": 3}]), pa.array(["a", None, "b"])],
    ids=["half floats", "structs", "texts and null"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_dictionaries_that_pyarrow_does_not_unite_come_back_as_they_were(values, nested):
    def part(start: int) -> pa.Table:
        column = pa.DictionaryArray.from_arrays(pa.array([1, 0]), values.slice(start, 2))
        nested_column = pa.StructArray.from_arrays([column], ["d"])
        return pa.table({"x": nested_column if nested else column, "n": [1, 2]})

    table = pa.concat_tables([part(0), part(1)])
    decoded = decode_table(encode_table(table))
    assert decoded.schema == table.schema
    assert decoded.to_pylist() == table.to_pylist()


def test_only_columns_with_a_dictionary_are_copied_to_have_one():
    part = pa.table({"n": [1, 2], "d": pa.array(["a", "b"]).dictionary_encode()})
    table = pa.concat_tables([part, part.slice(1)])
    united = with_one_dictionary(table)
    assert united.column("n").num_chunks == 2
    assert united.column("d").num_chunks == 1
    assert united.equals(table)


@pytest.mark.parametrize("nested", [False, True])
def test_a_dictionary_of_identifiers_is_refused_because_pyarrow_would_not_read_it(nested):
    values = pa.uuid().wrap_array(pa.array([b"a" * 16], pa.binary(16)))
    column = pa.DictionaryArray.from_arrays(pa.array([0]), values)
    column = pa.StructArray.from_arrays([column], ["d"]) if nested else column
    with pytest.raises(DataError, match="column 'x' has a dictionary of ext") as caught:
        encode_table(pa.table({"x": column}))
    assert caught.value.code is ErrorCode.NOT_ENCODABLE
