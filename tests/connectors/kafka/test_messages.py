"""A worker makes the bytes of each message, and refuses what a broker would refuse."""

import json

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.raw import RawFormat
from laminar_core.connectors.kafka.messages import MESSAGES, MessageWriter
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.staged_rows import StagedPart, StagedRows
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.weights import weighted
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.paths import JobPaths
from laminar_core.store.staging import StagingArea

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = pa.record_batch([pa.array([1, 2]), pa.array(["a", None])], schema=SCHEMA)


def written(batch: pa.RecordBatch, output_format, key=None, bytes_max: int = 1_000) -> list[tuple]:
    staging = StagingArea(MemoryObjectStore(), JobPaths("payments"), "out")
    context = SubtaskContext("out", 0, 1, 128, Generation(1), staging=staging)
    writer = MessageWriter(
        StagedRows(context, MESSAGES), batch.schema, output_format, key, bytes_max
    )
    writer.write(batch)
    writer.write(batch.slice(0, 0))
    (part,) = writer.snapshot(CheckpointId(1))().committables
    batches = StagedPart.from_json(part).batches(staging)
    return [(row["key"], row["value"]) for b in batches for row in b.to_pylist()]


def test_each_row_is_an_object_with_the_key_of_its_column():
    found = written(ROWS, JsonFormat(), ["id"])
    assert [key for key, _ in found] == [b"1", b"2"]
    assert [json.loads(value) for _, value in found] == ROWS.to_pylist()


def test_a_key_that_is_null_is_no_key():
    assert [key for key, _ in written(ROWS, JsonFormat(), ["name"])] == [b"a", None]
    assert [key for key, _ in written(ROWS, JsonFormat())] == [None, None]


def test_rows_of_arrow_share_messages():
    ((key, value),) = written(ROWS, ArrowIpcFormat())
    assert key is None
    assert pa.ipc.open_stream(value).read_all().to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize(("length", "bytes_max"), [(600, 50_000), (1_500_000, 2_000_000)])
def test_messages_of_arrow_are_as_large_as_the_sink_allows(length: int, bytes_max: int):
    batch = pa.record_batch({"v": 100_000 // length * ["x" * length] or ["x" * length]})
    found = written(batch, ArrowIpcFormat(), bytes_max=bytes_max)
    assert max(len(value) for _, value in found) <= bytes_max
    read = [pa.ipc.open_stream(value).read_all() for _, value in found]
    assert pa.concat_tables(read).to_pylist() == batch.to_pylist()


def test_raw_bytes_are_not_looked_at():
    batch = pa.record_batch({"value": pa.array([b"\x00\xff", b""], pa.binary())})
    assert [value for _, value in written(batch, RawFormat())] == [b"\x00\xff", b""]


def test_dictionaries_are_plain_text():
    batch = pa.record_batch({"name": pa.array(["a", "b"]).dictionary_encode()})
    plain = batch.cast(pa.schema([("name", pa.string())]))
    assert [json.loads(value) for _, value in written(plain, JsonFormat())] == plain.to_pylist()


def test_a_message_that_the_broker_would_refuse_stops_the_job_before_its_checkpoint():
    large = pa.record_batch([pa.array([1]), pa.array(["x" * 990])], schema=SCHEMA)
    with pytest.raises(DataError, match=r"makes a message of 1,\d+ bytes") as refused:
        written(large, JsonFormat())
    assert refused.value.code is ErrorCode.NOT_ENCODABLE
    written(large, JsonFormat(), bytes_max=2_000)


def test_a_key_has_to_be_a_column():
    with pytest.raises(ConfigurationError, match="no column 'merchant'"):
        written(ROWS, JsonFormat(), ["merchant"])


def test_a_row_that_goes_is_a_message_without_value():
    rows = weighted(ROWS, [-1, 1])
    staging = StagingArea(MemoryObjectStore(), JobPaths("payments"), "out")
    context = SubtaskContext("out", 0, 1, 128, Generation(1), staging=staging)
    writer = KafkaSink("b:1", "t", key="id").with_deletions().open(context, rows.schema)
    writer.write(rows)
    (part,) = writer.snapshot(CheckpointId(1))().committables
    (batch,) = StagedPart.from_json(part).batches(staging)
    assert batch.column("key").to_pylist() == [b"1", b"2"]
    gone, there = batch.column("value").to_pylist()
    assert gone is None
    assert json.loads(there) == {"id": 2, "name": None}
