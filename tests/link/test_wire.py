"""Every element survives the wire as it was, and nothing else is taken for one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import ProtocolError
from laminar_core.link.wire import ElementCodec, FrameKind, Header, decode_header
from laminar_core.protocol.types import (
    WATERMARK_END_US,
    Batch,
    CancelMarker,
    CheckpointBarrier,
    CheckpointId,
    CheckpointKind,
    EndOfInput,
    Idle,
    Watermark,
)

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
CODEC = ElementCodec(SCHEMA)
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def across(batch: pa.RecordBatch, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Encode in one codec, carry the bytes, decode in another."""
    kind, payload = ElementCodec(schema or batch.schema).encode(Batch(batch))
    carried = bytes(memoryview(payload))
    element = ElementCodec(schema or batch.schema).decode(kind, carried)
    assert isinstance(element, Batch)
    element.data.validate(full=True)
    return element.data


def encoded(*words: str) -> pa.Array:
    return pa.array(words).dictionary_encode()


@pytest.mark.parametrize(
    "element",
    [
        Watermark(0),
        Watermark(-(2**63)),
        Watermark(WATERMARK_END_US),
        Idle(),
        CheckpointBarrier(CheckpointId(2**62), CheckpointKind.PERIODIC, 1_700_000_000_000),
        CheckpointBarrier(CheckpointId(7), CheckpointKind.STOP, 1, 0, unaligned=True),
        CheckpointBarrier(CheckpointId(8), CheckpointKind.SAVEPOINT, 1, 500, unaligned=False),
        CancelMarker(CheckpointId(9)),
        EndOfInput(),
    ],
    ids=repr,
)
def test_an_element_comes_back_as_it_was(element) -> None:
    kind, payload = CODEC.encode(element)
    assert CODEC.decode(kind, bytes(memoryview(payload))) == element


HEADERS = st.builds(
    Header,
    generation=st.integers(0, 2**32 - 1),
    edge_id=st.integers(0, 2**16 - 1),
    sender=st.integers(0, 2**16 - 1),
    receiver=st.integers(0, 2**16 - 1),
    kind=st.sampled_from(FrameKind),
    sequence=st.integers(0, 2**64 - 1),
)


@given(HEADERS)
def test_a_header_comes_back_as_it_was(header: Header) -> None:
    assert decode_header(memoryview(header.encode())) == header


def test_the_header_has_the_documented_layout() -> None:
    header = Header(0x01020304, 0x0506, 0x0708, 0x090A, FrameKind.CREDIT, 0x0B0C)
    assert header.encode().hex(" ") == "04 03 02 01 06 05 08 07 0a 09 06 00 0c 0b" + " 00" * 6


@given(st.binary(max_size=40))
def test_garbage_is_a_header_or_a_protocol_error(data: bytes) -> None:
    try:
        header = decode_header(data)
    except ProtocolError as error:
        assert "not a frame" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert len(data) == 20
        assert header.encode()[:11] + b"\0" + header.encode()[12:] == data[:11] + b"\0" + data[12:]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (FrameKind.BATCH, b""),
        (FrameKind.BATCH, b"garbage"),
        (FrameKind.BATCH, bytes(64)),
        (FrameKind.WATERMARK, b"1234567"),
        (FrameKind.CANCEL, b"123456789"),
        (FrameKind.BARRIER, b""),
        (FrameKind.BARRIER, b"\xff"),
        (FrameKind.BARRIER, b"3"),
        pytest.param(FrameKind.BARRIER, b"[" * 100_000, id="deep"),
        (FrameKind.BARRIER, b"[1]"),
        (FrameKind.BARRIER, b'[1,"unheard-of",2,null,false]'),
    ],
)
@pytest.mark.parametrize("schema", [SCHEMA, pa.schema([("key", DICTIONARY)])])
def test_a_garbled_payload_is_a_protocol_error_of_one_line(kind, payload, schema) -> None:
    with pytest.raises(ProtocolError, match="not the payload") as caught:
        ElementCodec(schema).decode(kind, payload)
    assert "\n" not in str(caught.value)


def test_a_torn_batch_is_a_protocol_error() -> None:
    _, payload = CODEC.encode(Batch(pa.RecordBatch.from_pylist([{"key": "a", "value": 1}], SCHEMA)))
    torn = bytes(memoryview(payload))[:-8]
    with pytest.raises(ProtocolError):
        CODEC.decode(FrameKind.BATCH, torn)


def test_a_batch_with_dictionaries_may_be_torn_anywhere() -> None:
    batch = pa.record_batch({"key": pa.array(["a", "b"], DICTIONARY)})
    codec = ElementCodec(batch.schema)
    whole = bytes(memoryview(codec.encode(Batch(batch))[1]))
    said: set[str] = set()
    for length in range(len(whole)):
        try:
            codec.decode(FrameKind.BATCH, whole[:length])
        except ProtocolError as error:
            said.add(str(error))
    assert "not the payload of a batch: it ends early" in said


@pytest.mark.parametrize("kind", [k for k in FrameKind if k >= FrameKind.CREDIT])
def test_what_is_about_a_channel_is_no_element_of_it(kind: FrameKind) -> None:
    with pytest.raises(ProtocolError, match=f"a {kind.name.lower()} is not an element"):
        CODEC.decode(kind, b"")


ALL_TYPES = pa.record_batch(
    {
        "int8": pa.array([1, None, 3, 4], pa.int8()),
        "bool": pa.array([True, False, None, True]),
        "text": pa.array(["a", None, "", "ü"]),
        "binary": pa.array([b"", b"x", None, b"yz"]),
        "time": pa.array([0, 1, None, 3], pa.timestamp("us", "UTC")),
        "decimal": pa.array([1, 2, None, 4], pa.decimal128(20, 2)),
        "list": pa.array([[1], None, [], [2, 3]], pa.list_(pa.int32())),
        "struct": pa.array([{"a": 1}, None, {"a": None}, {"a": 4}], pa.struct([("a", pa.int64())])),
        "null": pa.nulls(4),
    }
)


def test_a_batch_of_every_kind_of_type_comes_back() -> None:
    assert across(ALL_TYPES).equals(ALL_TYPES)


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (1, 3), (1, 1), (3, 1), (4, 0)])
def test_a_slice_comes_back_and_carries_no_more_than_its_rows(offset: int, length: int) -> None:
    part = ALL_TYPES.slice(offset, length)
    assert across(part).equals(part)
    wide = pa.record_batch({"value": pa.array(range(10_000))})
    _, payload = ElementCodec(wide.schema).encode(Batch(wide.slice(9_000, 3)))
    assert memoryview(payload).nbytes < 1_000


def test_an_empty_batch_comes_back() -> None:
    empty = pa.RecordBatch.from_pylist([], SCHEMA)
    assert across(empty).equals(empty)


def test_a_batch_without_columns_keeps_its_number_of_rows() -> None:
    assert across(ALL_TYPES.select([])).num_rows == 4


def test_each_dictionary_travels_with_its_batch() -> None:
    """One codec on each side, and batches whose codes mean different things."""
    schema = pa.schema([("word", DICTIONARY)])
    sender, receiver = ElementCodec(schema), ElementCodec(schema)
    for words in (("a", "b", "a"), ("b", "c"), ("x",), ()):
        batch = pa.record_batch([encoded(*words).cast(DICTIONARY)], schema=schema)
        kind, payload = sender.encode(Batch(batch))
        arrived = receiver.decode(kind, payload)
        assert isinstance(arrived, Batch)
        assert arrived.data.schema == schema
        assert arrived.data.column("word").to_pylist() == list(words)


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_slice_of_dictionary_codes_means_the_same_words(offset: int) -> None:
    batch = pa.record_batch({"word": encoded("a", "b", "a")}).slice(offset)
    assert across(batch).to_pylist() == batch.to_pylist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([{"word": "a"}, {"word": "b"}], pa.struct([("word", DICTIONARY)])),
        pa.array([["a", "b"], ["b"]], pa.list_(DICTIONARY)),
        pa.array([[("k", "a")], []], pa.map_(pa.string(), DICTIONARY)),
    ],
    ids=["struct", "list", "map"],
)
def test_a_dictionary_inside_another_type_travels_too(column: pa.Array) -> None:
    batch = pa.record_batch({"nested": column})
    assert across(batch).equals(batch)


def test_a_payload_may_lie_anywhere_in_memory() -> None:
    """Sockets hand out views at odd addresses."""
    kind, payload = CODEC.encode(Batch(pa.RecordBatch.from_pylist([{"key": "a", "value": 7}] * 9)))
    shifted = memoryview(b"-" + bytes(memoryview(payload)))[1:]
    element = CODEC.decode(kind, shifted)
    assert isinstance(element, Batch)
    assert element.data.to_pylist() == [{"key": "a", "value": 7}] * 9


def test_a_batch_in_misaligned_memory_is_aligned_before_it_is_used() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(range(1000))], names=["n"])
    codec = ElementCodec(batch.schema)
    kind, payload = codec.encode(Batch(batch))
    shifted = memoryview(bytearray(1) + bytearray(payload))[1:]
    decoded = codec.decode(kind, shifted)
    assert decoded == Batch(batch)
    assert decoded.data.column(0).buffers()[1].address % 8 == 0
