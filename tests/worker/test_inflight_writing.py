"""The in-flight data of a worker: one file, a part for each queue, and no copy that grows."""

from concurrent.futures import Executor, ThreadPoolExecutor

import pyarrow as pa
import pytest

from laminar_core.codec.digest import sha256_hex
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import Batch, CheckpointId
from laminar_core.protocol.unaligned import InFlightChannelData, QueueId
from laminar_core.records.channel_entries import EdgeRef
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.worker import inflight_writing
from laminar_core.worker.inflight import Captured, Queue
from laminar_core.worker.inflight_writing import (
    InflightComplete,
    InflightWriter,
    InflightWritten,
    NotFinished,
    NotWritten,
)
from tests.driver.hosts import Background
from tests.store.stores import open_job

SCHEMA = pa.schema([("n", pa.int64())])
ID = CheckpointId(3)
WORKER = 1


class Writer:
    """A writer of one worker, what it reported, and the threads that write files, if any."""

    def __init__(self, *faults: Fault, compression=None, files: Executor | None = None) -> None:
        self.store = open_job(FaultyStore(MemoryObjectStore(), *faults))
        self.results: list = []
        self.discarded: set[CheckpointId] = set()
        self.files = files
        self.writer = InflightWriter(
            self.store.parts, WORKER, self.results.append, self.discarded, compression, files
        )

    def capture(self, number: int, *values: int, checkpoint_id: int = 3, last: bool = True) -> None:
        captured = piece(number, *values, checkpoint_id=checkpoint_id, last=last)
        self.writer.capture(f"v{number}", queue(number), captured)

    def values(self) -> dict[int, list[int]]:
        """Return what is in the files that were reported, by queue."""
        written = [result for result in self.results if isinstance(result, InflightWritten)]
        files = self.store.parts.inflight([result.file for result in written])
        return {
            entry.input_id: [
                n for e in files.read(entry, SCHEMA) for n in e.data.column("n").to_pylist()
            ]
            for result in written
            for entry in result.entries
        }

    @property
    def keys(self) -> list[str]:
        return [key.rpartition("/operators/")[2] for key in self.store.objects.list("")]


def queue(number: int) -> Queue:
    edge = EdgeRef(upstream="up", downstream="v", input_index=number)
    return Queue(QueueId("input", number), f"first{number}", WORKER, edge, 0, WORKER, SCHEMA)


def piece(number: int, *values: int, checkpoint_id: int = 3, last: bool = True) -> Captured:
    rows = tuple(Batch(pa.record_batch({"n": [value]}, schema=SCHEMA)) for value in values)
    return InFlightChannelData(CheckpointId(checkpoint_id), QueueId("input", number), rows, 0, last)


def test_all_queues_of_a_worker_become_one_file_when_nothing_follows():
    writer = Writer()
    writer.capture(0, 1, 2, last=False)
    writer.capture(1, 7)
    writer.capture(0, 3, last=False)
    writer.capture(0)
    assert (writer.results, writer.keys) == ([], [])
    writer.writer.complete(ID)
    complete, written = writer.results
    assert complete == InflightComplete(ID, 1)
    assert writer.keys == ["inflight_1.buf"]
    assert writer.values() == {0: [1, 2, 3], 1: [7]}
    first, second = written.entries
    assert (first.offset, second.offset) == (0, first.size_bytes)
    assert second.end == written.file.size_bytes
    assert [(e.event_count, e.row_count, e.subtask_index) for e in written.entries] == [
        (3, 3, WORKER),
        (1, 1, WORKER),
    ]


@pytest.mark.parametrize("at_once", [True, False], ids=["one thread", "threads"])
def test_digests_are_those_of_what_is_in_the_store(at_once):
    writer = Writer(files=None if at_once else Background())
    writer.capture(0, 1, last=False)
    writer.capture(1, 7)
    writer.capture(0, 2)
    writer.writer.complete(ID)
    if writer.files is not None:
        writer.files.run()
    _, written = writer.results
    (key,) = writer.store.objects.list("")
    data = writer.store.objects.get(key)
    assert written.file.sha256 == sha256_hex(data)
    assert [e.sha256 for e in written.entries] == [
        sha256_hex(data[entry.offset : entry.end]) for entry in written.entries
    ]


def test_one_thread_is_enough_to_compute_digests_and_to_write(monkeypatch):
    monkeypatch.setattr(inflight_writing, "FILE_BYTES_AIM", 1)
    with ThreadPoolExecutor(1) as files:
        writer = Writer(files=files)
        for number in range(6):
            writer.capture(number, number)
        writer.writer.complete(ID)
    assert [type(result) for result in writer.results] == [InflightComplete] + 6 * [InflightWritten]


def test_a_digest_that_cannot_be_computed_is_more_than_a_lost_checkpoint(monkeypatch):
    def fail(_: object) -> str:
        raise ValueError("no memory")

    monkeypatch.setattr(inflight_writing._File, "digest", fail)
    writer = Writer(files=Background())
    writer.capture(0, 1)
    writer.writer.complete(ID)
    writer.files.run()
    assert isinstance(writer.results[1], NotFinished)


@pytest.mark.parametrize("last", [True, False], ids=["when complete", "at the end"])
def test_a_part_that_cannot_be_finished_is_more_than_a_lost_checkpoint(monkeypatch, last):
    def fail(_: object) -> list:
        raise ValueError("no memory")

    monkeypatch.setattr(inflight_writing.InflightEncoder, "finish", fail)
    writer = Writer()
    writer.capture(0, 1, last=last)
    writer.writer.complete(ID)
    assert {type(result) for result in writer.results} == {NotFinished}
    assert writer.keys == []


def test_a_piece_behind_the_last_one_is_never_lost_in_silence():
    writer = Writer()
    writer.capture(0, 1)
    writer.capture(0, 2)
    assert isinstance(writer.results[0], NotFinished)


def test_without_anything_there_is_no_file():
    writer = Writer()
    writer.writer.complete(ID)
    assert writer.results == [InflightComplete(ID, 0)]
    assert writer.keys == []


def test_much_in_flight_data_is_divided_so_that_no_file_is_long(monkeypatch):
    """So a copy of the bytes is never much longer than that, however much is in flight."""
    writer = Writer()
    writer.capture(9, 1, checkpoint_id=2)
    writer.writer.complete(CheckpointId(2))
    size_bytes = writer.results[1].file.size_bytes
    monkeypatch.setattr(inflight_writing, "FILE_BYTES_AIM", 2 * size_bytes)
    writer.results.clear()
    for number in range(5):
        writer.capture(number, number)
    writer.writer.complete(ID)
    complete, *written = writer.results
    assert complete == InflightComplete(ID, 3)
    assert [len(result.entries) for result in written] == [2, 2, 1]
    assert writer.keys[1:] == ["inflight_1.buf", "inflight_1_1.buf", "inflight_1_2.buf"]
    assert writer.values() == {number: [number] for number in range(5)}


def test_a_part_that_is_longer_than_a_file_should_be_has_one_alone(monkeypatch):
    monkeypatch.setattr(inflight_writing, "FILE_BYTES_AIM", 1)
    writer = Writer()
    writer.capture(0, 1)
    writer.capture(1, 2)
    writer.writer.complete(ID)
    assert [len(r.entries) for r in writer.results if isinstance(r, InflightWritten)] == [1, 1]


def test_checkpoints_have_files_of_their_own():
    writer = Writer()
    writer.capture(0, 5, checkpoint_id=4)
    writer.capture(0, 1)
    writer.writer.complete(ID)
    assert writer.values() == {0: [1]}
    writer.results.clear()
    writer.writer.complete(CheckpointId(4))
    assert writer.values() == {0: [5]}


def test_what_was_given_up_is_forgotten_and_the_rest_is_not():
    writer = Writer()
    writer.capture(0, 1, last=False)
    writer.capture(1, 2)
    writer.capture(0, 5, checkpoint_id=4, last=False)
    writer.discarded.add(ID)
    writer.writer.forget(ID)
    writer.capture(0, 3)
    writer.writer.complete(ID)
    writer.capture(0, 6, checkpoint_id=4)
    writer.writer.complete(CheckpointId(4))
    assert [result.checkpoint_id for result in writer.results] == [4, 4]
    assert writer.values() == {0: [5, 6]}
    assert writer.writer._parts_of == {}


def test_a_file_of_what_was_given_up_before_a_thread_took_it_is_not_written():
    writer = Writer(files=Background())
    writer.capture(0, 1)
    writer.writer.complete(ID)
    writer.discarded.add(ID)
    writer.files.run()
    assert writer.keys == []
    assert writer.results == [InflightComplete(ID, 1)]


def test_a_store_that_refuses_in_flight_data_declines_the_checkpoint():
    writer = Writer(Fault("put_if_absent", Effect.FAIL, last=2))
    writer.capture(0, 1)
    writer.capture(1, 1)
    writer.writer.complete(ID)
    _, refused = writer.results
    assert isinstance(refused, NotWritten)
    assert (refused.checkpoint_id, refused.vertex_id) == (3, "v0")
    assert refused.reason.startswith("in-flight data of first0: memory:// cannot put_if_absent")


def test_a_torn_file_costs_the_checkpoint():
    writer = Writer(Fault("put_if_absent", Effect.TEAR))
    writer.capture(0, 1)
    writer.writer.complete(ID)
    assert isinstance(writer.results[1], NotWritten)


def test_in_flight_data_that_cannot_be_encoded_is_more_than_a_lost_checkpoint():
    writer = Writer()
    broken = InFlightChannelData(ID, QueueId("input", 0), (object(),), 0, last=True)
    writer.writer.capture("v", queue(0), broken)
    assert isinstance(writer.results[0], NotFinished)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_in_flight_data_may_be_compressed(compression):
    sizes: dict[str | None, int] = {}
    for kind in (None, compression):
        writer = Writer(compression=kind)
        rows = Batch(pa.record_batch({"n": [7] * 50_000}, schema=SCHEMA))
        captured = InFlightChannelData(ID, QueueId("input", 0), (rows,), 0, last=True)
        writer.writer.capture("v", queue(0), captured)
        writer.writer.complete(ID)
        sizes[kind] = writer.results[1].file.size_bytes
        assert writer.values() == {0: [7] * 50_000}
    assert sizes[compression] < sizes[None] / 10
