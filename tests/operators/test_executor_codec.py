"""The bytes of an executor's state: golden files, and every way to damage them."""

import json
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from laminar_core.codec.envelope import CODECS, HEADER_BYTES, Content, header, wrap
from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.operators.executor_codec import (
    EXECUTOR_VERSION,
    QueryPart,
    decode_parts,
    encode_parts,
)
from laminar_core.operators.stream_executor import StreamExecutor
from tests.operators.executor_states import (
    GOLDEN,
    GOLDEN_QUERIES,
    GOLDEN_ROWS,
    SCHEMA,
    SECOND,
    fed,
    golden_executor,
    rows_of,
)

ROWS = pa.table({"key_group": pa.array([1, 2], pa.int32()), "k": ["a", None], "count(*)": [3, 4]})
PARTS = [
    QueryPart("one", {"keys": ["k"]}, {"key_groups": [0, 8]}, ROWS),
    QueryPart("two", {}, {"watermark_us": None}, None),
]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_is_read(codec: str) -> None:
    marked = [replace(PARTS[0], rows=ROWS.replace_schema_metadata({b"a": b"b"})), PARTS[1]]
    found = decode_parts(encode_parts(marked, codec))
    assert found == marked
    assert found[0].rows.schema.metadata == {b"a": b"b"}
    assert decode_parts(encode_parts([], codec)) == []


@pytest.mark.parametrize("codec", CODECS)
def test_golden_state_of_version_1_restores_for_ever(codec: str) -> None:
    """Goal: state written by this version, of every function, goes on in every later one."""
    data = (GOLDEN / f"executor_v1_{codec}.bin").read_bytes()
    again, expected = StreamExecutor(GOLDEN_QUERIES, SCHEMA), golden_executor()
    assert again.restore_state(data) == len(GOLDEN_QUERIES)
    results = [
        fed(executor, GOLDEN_ROWS[3:]) + rows_of(executor.on_watermark(100 * SECOND))
        for executor in (again, expected)
    ]
    assert sorted(map(repr, results[0])) == sorted(map(repr, results[1]))
    assert len(results[0]) > 8
    facts = [part.facts for part in decode_parts(again.checkpoint_state() or b"")]
    assert facts[1]["late_row_count"] == 1  # The one in the file.


def test_what_is_written_now_is_what_the_golden_file_holds() -> None:
    golden = decode_parts((GOLDEN / "executor_v1_none.bin").read_bytes())
    assert decode_parts(golden_executor().checkpoint_state() or b"") == golden


def test_equal_state_gives_equal_bytes() -> None:
    assert encode_parts(PARTS) == encode_parts(PARTS)
    assert golden_executor().checkpoint_state() == golden_executor().checkpoint_state()


def test_the_header_says_what_it_is() -> None:
    data = encode_parts(PARTS, "lz4")
    assert data[:8] == b"LMREXE\r\n"
    assert data[:HEADER_BYTES] == header(
        Content.EXECUTOR_STATE, EXECUTOR_VERSION, "lz4", data[HEADER_BYTES:]
    )


def test_the_payload_is_streams_of_arrow() -> None:
    source = pa.BufferReader(encode_parts(PARTS)[HEADER_BYTES:])
    catalogue = pa.ipc.open_stream(source).read_all()
    assert catalogue.column("query_id").to_pylist() == ["one", "two"]
    assert catalogue.column("row_count").to_pylist() == [2, 0]
    assert json.loads(catalogue.column("definition")[0].as_py()) == {"keys": ["k"]}
    assert pa.ipc.open_stream(source).read_all().equals(ROWS)


@pytest.mark.parametrize("codec", CODECS)
def test_no_damage_goes_unnoticed(codec: str) -> None:
    """Goal: 1,000 random damages of the golden state; each raises, and nothing else is raised."""
    data, chance = (GOLDEN / f"executor_v1_{codec}.bin").read_bytes(), random.Random(7)
    for _ in range(1_000):
        at, length = chance.randrange(len(data)), chance.randrange(1, 64)
        damaged = {
            0: data[:at],
            1: data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :],
            2: data[:at] + data[at + length :],
            3: data[:at] + chance.randbytes(length) + data[at:],
            4: data[:at] + bytes(len(data) - at),
        }[chance.randrange(5)]
        if damaged != data:
            with pytest.raises(CorruptCheckpointError) as caught:
                decode_parts(damaged)
            assert caught.value.code is ErrorCode.STATE_UNREADABLE


def sealed(payload: bytes) -> bytes:
    """With a header that is right, so that only what it holds is wrong."""
    return wrap(Content.EXECUTOR_STATE, EXECUTOR_VERSION, "none", payload)


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def mangled_text() -> bytes:
    """Rows with a key that is no UTF-8, in a file that is right otherwise."""
    offsets, text = pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xff")
    wrong = pa.Array.from_buffers(pa.string(), 1, [None, offsets, text])
    return encode_parts([replace(PARTS[0], rows=pa.table({"k": wrong}))])


def altered(column: str, value: object) -> bytes:
    """A whole file in which one value of the catalogue is another one."""
    source = pa.BufferReader(encode_parts(PARTS[:1])[HEADER_BYTES:])
    catalogue = pa.ipc.open_stream(source).read_all()
    place = catalogue.schema.get_field_index(column)
    changed = catalogue.set_column(place, catalogue.schema.field(place), [[value]])
    return sealed(stream(changed) + stream(ROWS))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (wrap(Content.EXECUTOR_STATE, 2, "none", b""), "version 2 is not known.*reads 1"),
        (wrap(Content.SEGMENT, 1, "none", b""), "does not start with b'LMREXE"),
        (sealed(b""), "not readable"),
        (sealed(stream(ROWS)), "catalogue has other columns"),
        (sealed(encode_parts(PARTS)[HEADER_BYTES:] + b"more"), "something follows the tables"),
        (mangled_text(), "not readable .*UTF8"),
        (altered("fingerprint", "0" * 64), "the fingerprint of query 'one' is not"),
        (altered("definition", "{"), "not readable"),
        (altered("row_count", 3), "query 'one' has 2 rows"),
        (altered("row_count", 0), "something follows the tables"),
    ],
)
def test_what_is_whole_but_wrong_is_refused_too(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        decode_parts(data)
