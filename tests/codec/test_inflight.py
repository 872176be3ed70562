"""In-flight elements come back as they were, or not at all."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.codec import inflight
from laminar_core.codec.inflight import (
    Expected,
    InflightEncoder,
    decode,
    join,
    row_count,
    schema_of,
)
from laminar_core.errors import (
    CheckpointDeclined,
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
)
from laminar_core.protocol.types import Batch, Idle, Watermark
from tests.codec.inflight_files import ELEMENTS, INPUT_ID, SCHEMA, batch, file

GOLDEN = Path(__file__).parents[1] / "golden"
HEADER_BYTES, TRAILER_BYTES = 28, 8

TYPES = {
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=5)),
    "view": (pa.string_view(), st.text(max_size=20)),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "time": (pa.timestamp("us", "UTC"), st.integers(0, 2**50)),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from("abcdef")),
    "list": (pa.list_(pa.int8()), st.lists(st.integers(-9, 9) | st.none(), max_size=3)),
    "struct": (
        pa.struct([("x", pa.int8()), ("y", pa.string())]),
        st.fixed_dictionaries({"x": st.integers(0, 9) | st.none(), "y": st.text(max_size=2)}),
    ),
    "map": (
        pa.map_(pa.string(), pa.int8()),
        st.lists(st.tuples(st.text(max_size=2), st.integers(0, 9)), max_size=2),
    ),
    "nested dictionary": (
        pa.struct([("d", pa.dictionary(pa.int16(), pa.string()))]),
        st.fixed_dictionaries({"d": st.sampled_from("xyz") | st.none()}),
    ),
    "list of dictionaries": (
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        st.lists(st.sampled_from("uvw"), max_size=3),
    ),
    "null": (pa.null(), st.none()),
}


@st.composite
def channels(draw) -> tuple[pa.Schema, list]:
    """A schema of any columns, also none, and elements with rows of it, also none; cut anywhere."""
    names = draw(st.lists(st.sampled_from(list(TYPES)), max_size=4))
    metadata = draw(st.none() | st.just({"owner": "me"}))
    schema = pa.schema(
        [(f"{n} {name}", TYPES[name][0]) for n, name in enumerate(names)], metadata=metadata
    )

    def batches():
        count = draw(st.integers(0, 6))
        columns = [
            pa.array(
                draw(st.lists(st.none() | TYPES[name][1], min_size=count, max_size=count)),
                TYPES[name][0],
            )
            for name in names
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        first = draw(st.integers(0, rows.num_rows))
        return Batch(rows.slice(first, draw(st.integers(0, rows.num_rows))))

    kinds = draw(st.lists(st.sampled_from(["batch", "batch", "watermark", "idle"]), max_size=6))
    made = {
        "batch": batches,
        "watermark": lambda: Watermark(draw(st.integers(-(2**63), 2**63 - 1))),
        "idle": Idle,
    }
    return schema, [made[kind]() for kind in kinds]


@settings(deadline=None)
@given(channels(), st.sampled_from([None, "lz4", "zstd"]), st.integers(0, 2**32 - 1))
def test_every_channel_comes_back_in_order(channel, compression, input_id) -> None:
    schema, elements = channel
    data = file(elements, schema, compression, input_id)
    expected = Expected(input_id, len(elements), row_count(elements))
    found = decode(data, schema, expected)
    assert found == elements
    for element in found:
        if isinstance(element, Batch):
            assert element.data.schema.equals(schema, check_metadata=True)


def test_the_columns_of_a_file_are_known_without_its_rows() -> None:
    assert schema_of(file(ELEMENTS)).equals(SCHEMA)
    assert schema_of(file([])).equals(SCHEMA)
    with pytest.raises(CorruptCheckpointError, match="checksum"):
        schema_of(file(ELEMENTS)[:-1] + b"?")


def test_rows_without_columns_are_counted() -> None:
    rows = Batch(pa.table({"x": [1, 2, 3]}).select([]).to_batches()[0])
    (found,) = decode(file([rows], rows.data.schema))
    assert isinstance(found, Batch)
    assert (found.data.num_rows, found.data.num_columns) == (3, 0)


def test_types_that_have_no_empty_list_of_values_come_back_too() -> None:
    """A watermark before the first batch needs an empty batch of them."""
    schema = pa.schema(
        [
            ("union", pa.dense_union([pa.field("a", pa.int8()), pa.field("b", pa.string())])),
            ("runs", pa.run_end_encoded(pa.int32(), pa.string())),
            ("tensor", pa.fixed_shape_tensor(pa.int8(), [2])),
        ]
    )
    elements = [Watermark(1), Idle()]
    assert decode(file(elements, schema), schema) == elements


def test_it_is_what_the_batch_held_and_not_what_it_is_a_slice_of() -> None:
    rows = pa.record_batch({"x": np.arange(100_000)})
    data = file([Batch(rows.slice(50_000, 10))], rows.schema)
    assert len(data) < 1_000
    assert decode(data) == [Batch(rows.slice(50_000, 10))]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression_makes_it_smaller(compression) -> None:
    rows = Batch(pa.record_batch({"x": np.zeros(100_000)}))
    assert len(file([rows], rows.data.schema, compression)) < 20_000


class TestEncoder:
    def test_it_counts_while_elements_come(self) -> None:
        encoder = InflightEncoder(SCHEMA, INPUT_ID)
        sizes = [encoder.size_bytes]
        for element in ELEMENTS:
            encoder.add(element)
            sizes.append(encoder.size_bytes)
        assert (encoder.event_count, encoder.row_count) == (6, 4)
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == sum(len(piece) for piece in encoder.finish())

    def test_nothing_captured_is_a_file_too(self) -> None:
        assert decode(file([]), SCHEMA, Expected(INPUT_ID, 0, 0)) == []

    def test_large_columns_are_not_copied(self) -> None:
        column = pa.array(np.arange(1_000_000))
        rows = pa.record_batch([column], names=["x"])
        encoder = InflightEncoder(rows.schema, 0)
        encoder.add(Batch(rows.slice(0, 1)))  # With the schema, in one write.
        encoder.add(Batch(rows))
        addresses = {b.address for b in encoder.finish() if isinstance(b, pa.Buffer)}
        assert column.buffers()[1].address in addresses

    def test_equal_elements_give_equal_bytes(self) -> None:
        assert file() == file()

    def test_rows_of_another_schema_cost_the_checkpoint(self) -> None:
        encoder = InflightEncoder(SCHEMA, INPUT_ID)
        with pytest.raises(CheckpointDeclined, match="of input 3 cannot be written") as caught:
            encoder.add(Batch(pa.record_batch({"other": [1]})))
        assert caught.value.code is ErrorCode.SNAPSHOT_FAILED
        assert "\n" not in str(caught.value)

    def test_a_batch_that_no_frame_holds_costs_the_checkpoint(self, monkeypatch) -> None:
        monkeypatch.setattr(inflight, "FRAME_BYTES_MAX", 1_000)
        encoder = InflightEncoder(pa.schema([("x", pa.int64())]), 0)
        encoder.add(Batch(pa.record_batch({"x": np.arange(50)})))
        with pytest.raises(CheckpointDeclined, match="more than a frame can hold"):
            encoder.add(Batch(pa.record_batch({"x": np.arange(150)})))

    def test_dictionaries_are_written_again_only_when_they_change(self) -> None:
        rows = batch(("a" * 10_000, 1))
        once = len(file([rows]))
        assert len(file([rows, Watermark(1), rows, Idle(), rows])) < once + 5_000


class TestFormat:
    """The bytes that docs/formats.md describes, read without Laminar."""

    @pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
    def test_format_1_is_read_for_ever(self, compression) -> None:
        """If this fails, checkpoints out there cannot be restored: add a version instead."""
        data = (GOLDEN / f"inflight_v1_{compression or 'plain'}.buf").read_bytes()
        assert decode(data, SCHEMA, Expected(INPUT_ID, 6, 4)) == ELEMENTS

    def test_header_frames_and_trailer_are_the_documented_bytes(self) -> None:
        data = file(compression="zstd")
        assert struct.unpack("<8sHBBIQ", data[:24]) == (b"LMRFLT\r\n", 1, 2, 0, INPUT_ID, 6)
        assert data[24:28] == struct.pack("<I", zlib.crc32(data[:24]))
        frame_count, crc = struct.unpack("<II", data[-8:])
        assert crc == zlib.crc32(data[28:-4])
        assert len(messages_of(data)) == frame_count

    def test_each_frame_is_one_message(self) -> None:
        kinds = [pa.ipc.read_message(message).type for message in messages_of(file())]
        assert kinds[0] == "schema"
        assert kinds.count("record batch") == 6
        assert set(kinds[1:]) == {"dictionary", "record batch"}

    def test_the_frames_are_an_arrow_stream(self) -> None:
        reader = pa.ipc.open_stream(b"".join(messages_of(file())))
        found = []
        while True:
            try:
                rows, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            found.append((rows.num_rows, None if metadata is None else dict(metadata)))
        idle = {b"laminar.element": b"idle"}
        assert found == [
            (0, mark(-(2**63))),
            (3, None),
            (0, idle),
            (1, None),
            (0, None),
            (0, mark(2**63 - 1)),
        ]


def mark(time_us: int) -> dict[bytes, bytes]:
    return {b"laminar.element": b"watermark", b"laminar.watermark_us": str(time_us).encode()}


def messages_of(data: bytes) -> list[bytes]:
    position, found = HEADER_BYTES, []
    while position < len(data) - TRAILER_BYTES:
        (length,) = struct.unpack_from("<I", data, position)
        found.append(data[position + 4 : position + 4 + length])
        position += 4 + length
    return found


def sealed(header: tuple, messages: list[bytes], frame_count: int | None = None) -> bytes:
    """A file with right checksums around whatever is in it."""
    start = struct.pack("<8sHBBIQ", *header)
    count = len(messages) if frame_count is None else frame_count
    frames = b"".join(struct.pack("<I", len(m)) + m for m in messages) + struct.pack("<I", count)
    crcs = [struct.pack("<I", zlib.crc32(part)) for part in (start, frames)]
    return start + crcs[0] + frames + crcs[1]


def refused(data: bytes, *expected: int | None) -> str:
    with pytest.raises(CorruptCheckpointError) as caught:
        decode(data, None, Expected(*expected))
    assert caught.value.code is ErrorCode.INFLIGHT_UNREADABLE
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestDamage:
    """Only ``CorruptCheckpointError``, and no element before it."""

    def test_every_change_of_one_byte_is_found(self) -> None:
        elements = [Watermark(5), Batch(pa.record_batch({"x": pa.array([1, None], pa.int8())}))]
        data = bytearray(file(elements, elements[1].data.schema))
        for position, original in enumerate(data):
            for value in range(256):
                if value != original:
                    data[position] = value
                    with pytest.raises(CorruptCheckpointError):
                        decode(data)
            data[position] = original
        assert decode(data) == elements

    def test_every_cut_and_every_missing_start_is_found(self) -> None:
        data = file()
        for length in range(len(data)):
            refused(data[:length])
            refused(data[len(data) - length :])

    @pytest.mark.parametrize("more", [b"\0", b"\0" * 8, b"\xff\xff\xff\xff\0\0\0\0", file()])
    def test_what_follows_the_end_is_found(self, more) -> None:
        refused(file() + more)

    def test_a_torn_write_with_zeros_is_found(self) -> None:
        data = file()
        for length in range(0, len(data) - 1, 7):
            refused(data[:length].ljust(len(data), b"\0"))

    def test_every_problem_is_named(self) -> None:
        data, header = file(), (b"LMRFLT\r\n", 1, 0, 0, INPUT_ID, 6)
        messages = messages_of(data)
        assert sealed(header, messages) == data
        assert "no in-flight file" in refused(b"ARROW1" + data[6:])
        assert "cut off in its header" in refused(data[:20])
        assert "use the version that wrote it" in refused(sealed((*header[:1], 2, *header[2:]), []))
        assert "checksum of the header" in refused(data[:20] + b"\7" + data[21:])
        odd = sealed((*header[:2], 3, *header[3:]), messages)
        assert "compression 3 with flags 0 is not known" in refused(odd)
        flagged = sealed((*header[:3], 1, *header[4:]), messages)
        assert "compression 0 with flags 1 is not known" in refused(flagged)
        assert "the checksum differs" in refused(data[:-20])
        assert "differ from the 7 that its" in refused(sealed(header, messages, frame_count=7))
        assert "no readable Arrow stream" in refused(sealed(header, messages[1:]))
        assert "no readable Arrow stream" in refused(sealed(header, []))

    def test_a_length_beyond_the_end_is_found_also_under_a_right_checksum(self) -> None:
        whole = file([])
        start, frames = whole[:28], bytearray(whole[28:-4])
        frames[0:4] = struct.pack("<I", 2**32 - 1)
        told = refused(start + bytes(frames) + struct.pack("<I", zlib.crc32(frames)))
        assert "its frames differ from the 1 that its trailer says" in told

    def test_counts_that_differ_are_named(self) -> None:
        messages = messages_of(file())
        short = sealed((b"LMRFLT\r\n", 1, 0, 0, INPUT_ID, 6), messages[:-1])
        assert "its event_count is 5, its header says 6" in refused(short)
        assert "its input_id is 3, the manifest says 4" in refused(file(), 4)
        assert "its event_count is 6, the manifest says 7" in refused(file(), None, 7)
        assert "its row_count is 4, the manifest says 5" in refused(file(), 3, 6, 5)

    def test_an_element_of_an_unknown_kind_is_no_batch(self) -> None:
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, SCHEMA) as writer:
            empty = batch().data
            writer.write_batch(empty, custom_metadata={b"laminar.element": b"barrier"})
        header = (b"LMRFLT\r\n", 1, 0, 0, INPUT_ID, 1)
        assert "b'barrier' is no element" in refused(
            sealed(header, [stream.getvalue().to_pybytes()])
        )

    def test_values_that_contradict_each_other_are_not_handed_out(self) -> None:
        """Reading them would go beyond the memory of the file, under checksums that are right."""
        rows = pa.record_batch({"x": ["a" * 77]})
        right = rows.serialize().to_pybytes()
        before, offsets, after = right.rpartition(struct.pack("<ii", 0, 77))
        wrong = before + struct.pack("<ii", 0, 770) + after
        assert len(offsets) == 8
        header = (b"LMRFLT\r\n", 1, 0, 0, INPUT_ID, 1)
        schema = rows.schema.serialize().to_pybytes()
        assert decode(sealed(header, [schema, right])) == [Batch(rows)]
        assert "larger than values array" in refused(sealed(header, [schema, wrong]))

    def test_rows_that_arrow_made_come_back_even_if_it_calls_them_invalid(self) -> None:
        """An index into an empty dictionary below a null: refusing it would lose the checkpoint."""
        kind = pa.struct([("d", pa.dictionary(pa.int16(), pa.string()))])
        rows = pa.record_batch({"x": pa.array([None], kind)})
        with pytest.raises(pa.ArrowInvalid):
            rows.validate(full=True)
        assert decode(file([Batch(rows)], rows.schema)) == [Batch(rows)]

    def test_rows_of_another_edge_are_refused_as_a_changed_pipeline(self) -> None:
        other = pa.schema([("merchant", pa.string()), ("amount", pa.int64())])
        with pytest.raises(IncompatibleStateError, match="restore a savepoint") as caught:
            decode(file(), other)
        assert "\n" not in str(caught.value)
        renamed = SCHEMA.with_metadata({"note": "does not matter"})
        assert decode(file(), renamed) == ELEMENTS


def test_pieces_are_joined_in_order() -> None:
    assert join([b"ab", pa.py_buffer(b"cd"), b"", b"e"]).to_pybytes() == b"abcde"
    assert join([]).size == 0
