"""The background half of a snapshot: everything durable, or the checkpoint declined."""

from collections.abc import Iterable

import pyarrow as pa
import pytest

from laminar_core.errors import DataError, ErrorCode
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import Snapshot, StateTable
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.types import Batch, CheckpointId, Generation
from laminar_core.protocol.unaligned import InFlightChannelData, QueueId
from laminar_core.records.limits import TIME_US_MIN
from laminar_core.records.manifest import EdgeRef
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.worker import snapshots
from laminar_core.worker.inflight import Captured, Queue
from laminar_core.worker.segments import SegmentWriter
from laminar_core.worker.snapshots import (
    InflightWritten,
    NotFinished,
    NotWritten,
    SnapshotWriter,
    Written,
)
from laminar_core.worker.task import Cut, PendingPart
from tests.driver.hosts import Background
from tests.store.stores import open_job

ROWS = pa.table({"key": ["a", "b"], "value": [1, 2]})


class Writer:
    """A writer whose background runs when the test says so."""

    def __init__(self, *faults: Fault, compression=None, files=None) -> None:
        self.store = open_job(FaultyStore(MemoryObjectStore(), *faults))
        self.background, self.wakes = Background(), 0
        self.segments = SegmentWriter(self.store, Generation(1), 1, StateOptions(), self.background)
        self.writer = SnapshotWriter(
            self.segments, self.background, ManualClock(), self._wake, compression, files
        )

    def _wake(self) -> None:
        self.wakes += 1

    def submit(self, checkpoint_id: int, **parts) -> None:
        """Parts by operator id: a snapshot, or a function that makes one."""
        pending = tuple(
            PendingPart(operator, part if callable(part) else lambda part=part: part, 0.5)
            for operator, part in parts.items()
        )
        self.writer.submit(Cut(CheckpointId(checkpoint_id), "v", pending))

    def results(self) -> list:
        self.background.run()
        return self.writer.results()


def test_every_part_is_durable_before_the_cut_counts_as_written():
    writer = Writer()
    offered = ({"file": "a"},)
    writer.submit(
        3, window=Snapshot.of([ROWS]), sink=Snapshot(properties={"rows": 7}, committables=offered)
    )
    assert writer.writer.results() == []
    (written,) = writer.results()
    assert isinstance(written, Written)
    window, sink = written.entries
    assert (window.operator_id, window.subtask_index, window.row_count) == ("window", 1, 2)
    (segment,) = window.segments
    assert writer.store.parts.read_state(segment).equals(ROWS)
    assert window.written_bytes == segment.size_bytes
    assert (sink.segments, sink.properties, sink.committables) == ((), {"rows": 7}, offered)
    assert writer.wakes == 1


@pytest.mark.parametrize("tables", [(), (ROWS.slice(0, 0),)])
def test_a_part_without_rows_is_recorded_and_not_written(tables):
    writer = Writer()
    writer.submit(3, window=Snapshot.of(tables))
    (written,) = writer.results()
    assert (written.entries[0].segments, written.entries[0].row_count) == ((), 0)
    assert writer.store.objects.list("") == []


def test_a_store_that_refuses_costs_the_checkpoint_and_the_other_parts_are_finished_all_the_same():
    """A sink's pre-commit has to happen: its rows are part of the next checkpoint, too."""
    writer, finished = Writer(Fault("put_if_absent", Effect.FAIL, last=2)), []

    def finish() -> Snapshot:
        finished.append(True)
        return Snapshot()

    writer.submit(3, window=Snapshot.of([ROWS]), sink=finish)
    (result,) = writer.results()
    assert isinstance(result, NotWritten)
    assert result.reason.startswith("window: memory:// cannot put_if_absent")
    assert finished == [True]


def test_a_write_whose_answer_was_lost_once_is_confirmed():
    writer = Writer(Fault("put_if_absent", Effect.LOSE_ANSWER))
    writer.submit(3, window=Snapshot.of([ROWS]))
    assert isinstance(writer.results()[0], Written)


def test_other_rows_under_the_same_id_decline_the_checkpoint():
    writer = Writer()
    writer.store.parts.write_state(CheckpointId(3), "window", 1, ROWS.slice(1))
    writer.submit(3, window=Snapshot.of([ROWS]))
    assert "holds something else" in writer.results()[0].reason


def test_a_part_that_cannot_be_made_is_more_than_a_lost_checkpoint():
    error = DataError(ErrorCode.ARITHMETIC_OVERFLOW, "a sum leaves 64 bits")

    def fail() -> Snapshot:
        raise error

    writer = Writer()
    writer.submit(3, sink=fail)
    assert writer.results() == [NotFinished(error)]


def test_what_was_given_up_is_finished_but_not_written():
    writer, finished = Writer(), []

    def finish() -> Snapshot:
        finished.append(True)
        return Snapshot.of([ROWS])

    writer.submit(3, window=finish)
    writer.writer.discard(CheckpointId(3))
    assert isinstance(writer.results()[0], NotWritten)
    assert finished == [True]
    assert writer.store.objects.list("") == []


@pytest.mark.parametrize("given_up", [(3,), (3, 4)])
def test_changes_of_a_checkpoint_that_was_given_up_are_in_the_next_one(given_up):
    """The operator has forgotten that they are new: they exist nowhere but in this snapshot."""
    writer, checkpoint_ids = Writer(), (3, 4, 5)
    for checkpoint_id in checkpoint_ids:
        changed = Snapshot.of([pa.table({"n": [checkpoint_id]})])
        part = PendingPart("totals", lambda changed=changed: changed, 0.5, together)
        writer.writer.submit(Cut(CheckpointId(checkpoint_id), "v", (part,)))
    for checkpoint_id in given_up:
        writer.writer.discard(CheckpointId(checkpoint_id))
    *_, written = writer.results()
    assert isinstance(written, Written)
    tables = [writer.store.parts.read_state(segment) for segment in written.entries[0].segments]
    assert sorted(n for table in tables for n in table["n"].to_pylist()) == list(checkpoint_ids)


def together(name: str, tables: Iterable[pa.Table], expired_us: int | None) -> Iterable[pa.Table]:
    del name, expired_us
    yield pa.concat_tables(tables)


def test_checkpoints_that_were_given_up_count_until_their_parts_are_done():
    writer = Writer()
    for checkpoint_id in (3, 4):
        writer.submit(checkpoint_id, window=Snapshot.of([ROWS]))
        writer.writer.discard(CheckpointId(checkpoint_id))
        writer.writer.discard(CheckpointId(checkpoint_id))  # Here, and by the coordinator.
    assert writer.writer.given_up == 2
    for _ in range(3):  # The part of the first one, and both discards.
        writer.background.queue.popleft()()
    assert writer.writer.given_up == 1
    writer.results()
    assert writer.writer.given_up == 0


def test_giving_one_up_leaves_the_others_alone():
    writer = Writer()
    for checkpoint_id in (3, 4):
        writer.submit(checkpoint_id, window=Snapshot.of([ROWS]))
    writer.writer.discard(CheckpointId(3))
    assert [type(result) for result in writer.results()] == [NotWritten, Written]


def test_cuts_are_finished_in_the_order_in_which_they_were_made():
    writer, order = Writer(), []
    for checkpoint_id in (3, 4, 5):
        writer.submit(checkpoint_id, sink=lambda n=checkpoint_id: order.append(n) or Snapshot())
    assert [result.cut.checkpoint_id for result in writer.results()] == [3, 4, 5]
    assert order == [3, 4, 5]


# --- in-flight data -----------------------------------------------------------------------------

SCHEMA = pa.schema([("n", pa.int64())])


def queue(number: int = 0) -> Queue:
    edge = EdgeRef(upstream="up", downstream="v", input_index=0)
    return Queue(QueueId("input", number), "first", 1, edge, number, 1, SCHEMA)


def piece(*values: int, checkpoint_id: int = 3, number: int = 0, last: bool = False) -> Captured:
    rows = tuple(Batch(pa.record_batch({"n": [value]}, schema=SCHEMA)) for value in values)
    return InFlightChannelData(CheckpointId(checkpoint_id), QueueId("input", number), rows, 0, last)


def values(writer: Writer, result) -> list[int]:
    elements = writer.store.parts.read_inflight(result.entry, SCHEMA)
    return [n for element in elements for n in element.data.column("n").to_pylist()]


def test_pieces_of_a_queue_become_one_file_when_nothing_follows():
    writer = Writer()
    writer.writer.capture("v", queue(), piece(1, 2))
    writer.writer.capture("v", queue(), piece(3))
    assert writer.results() == []
    writer.writer.capture("v", queue(), piece(last=True))
    (result,) = writer.results()
    assert isinstance(result, InflightWritten)
    assert (result.entry.event_count, result.entry.row_count) == (3, 3)
    assert (result.entry.subtask_index, result.entry.input_id) == (1, 0)
    assert values(writer, result) == [1, 2, 3]
    assert writer.wakes == 1


def test_a_queue_in_which_nothing_was_has_no_file():
    writer = Writer()
    writer.writer.capture("v", queue(), piece())
    writer.writer.capture("v", queue(), piece(last=True))
    (result,) = writer.results()
    assert result == InflightWritten(CheckpointId(3), queue(), None)
    assert writer.store.objects.list("") == []


def test_queues_and_checkpoints_have_files_of_their_own():
    writer = Writer()
    for number in (0, 1):
        writer.writer.capture("v", queue(number), piece(number, number=number))
    for number in (0, 1):
        writer.writer.capture("v", queue(number), piece(number=number, last=True))
    writer.writer.capture("v", queue(), piece(9, checkpoint_id=4, last=True))
    assert [values(writer, result) for result in writer.results()] == [[0], [1], [9]]


def test_in_flight_data_of_what_was_given_up_is_forgotten_and_that_of_others_is_not():
    writer = Writer()
    writer.writer.capture("v", queue(), piece(1))
    writer.writer.capture("v", queue(), piece(5, checkpoint_id=4))
    assert writer.results() == []
    writer.writer.discard(CheckpointId(3))
    writer.writer.capture("v", queue(), piece(2, last=True))
    writer.writer.capture("v", queue(), piece(6, checkpoint_id=4, last=True))
    (result,) = writer.results()
    assert values(writer, result) == [5, 6]
    assert writer.writer._encoders == {}


def test_a_store_that_refuses_in_flight_data_declines_the_checkpoint():
    writer = Writer(Fault("put_if_absent", Effect.FAIL, last=2))
    writer.writer.capture("v", queue(), piece(1, last=True))
    (result,) = writer.results()
    assert isinstance(result, NotWritten)
    assert (result.checkpoint_id, result.vertex_id) == (3, "v")
    assert result.reason.startswith("in-flight data of first: memory:// cannot put_if_absent")


def test_in_flight_data_that_cannot_be_encoded_is_more_than_a_lost_checkpoint():
    writer = Writer()
    broken = InFlightChannelData(CheckpointId(3), QueueId("input", 0), (object(),), 0, last=True)
    writer.writer.capture("v", queue(), broken)
    assert isinstance(writer.results()[0], NotFinished)


@pytest.fixture
def files(monkeypatch) -> Background:
    """The threads that write the files of queues: they do it when somebody waits for them."""
    background = Background()
    monkeypatch.setattr(snapshots, "wait", lambda _: background.run())
    return background


def test_files_of_queues_are_written_while_state_is(files):
    writer = Writer(files=files)
    for number in (0, 1):
        writer.writer.capture("v", queue(number), piece(number, number=number, last=True))
    writer.submit(3, window=Snapshot.of([ROWS]))
    assert [type(result) for result in writer.results()] == [Written]
    assert len(files.queue) == 2
    files.run()
    assert [values(writer, result) for result in writer.results()] == [[0], [1]]
    assert writer.wakes == 3


@pytest.mark.parametrize("next_part", ["state", "queue"])
def test_nothing_of_another_checkpoint_is_written_before_they_are(files, next_part):
    writer = Writer(files=files)
    writer.writer.capture("v", queue(), piece(1, last=True))
    writer.results()
    if next_part == "state":
        writer.submit(4, window=Snapshot.of([ROWS]))
    else:
        writer.writer.capture("v", queue(), piece(2, checkpoint_id=4, last=True))
    found = writer.results()
    files.run()
    found += writer.results()
    assert isinstance(found[0], InflightWritten)
    assert found[0].checkpoint_id == 3
    written = [key for verb, key in writer.store.objects.calls if verb == "put_if_absent"]
    assert "0000000003" in written[0]
    assert "0000000004" in written[1]


def test_a_discard_is_done_when_no_file_is_being_written_and_those_that_wait_are_left_out(files):
    writer = Writer(files=files)
    writer.writer.capture("v", queue(), piece(1, last=True))
    writer.results()
    writer.writer.discard(CheckpointId(3))
    assert writer.writer.given_up == 1
    assert writer.results() == []
    assert writer.writer.given_up == 0
    assert len(files.queue) == 0
    assert writer.store.objects.list("") == []


def test_a_queue_whose_file_another_thread_could_not_write_declines_the_checkpoint(files):
    writer = Writer(Fault("put_if_absent", Effect.FAIL, last=2), files=files)
    for number in (0, 1):
        writer.writer.capture("v", queue(number), piece(number, number=number, last=True))
    writer.results()
    files.run()
    assert [type(result) for result in writer.results()] == [NotWritten, InflightWritten]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_in_flight_data_may_be_compressed(compression):
    plain, small = Writer(), Writer(compression=compression)
    for writer in (plain, small):
        rows = Batch(pa.record_batch({"n": [7] * 50_000}, schema=SCHEMA))
        captured = InFlightChannelData(CheckpointId(3), QueueId("input", 0), (rows,), 0, last=True)
        writer.writer.capture("v", queue(), captured)
    (large,), (compressed,) = plain.results(), small.results()
    assert compressed.entry.size_bytes < large.entry.size_bytes / 10
    assert values(small, compressed) == values(plain, large)


def test_what_has_expired_is_recorded_as_far_as_it_is_a_time():
    """A window that began before all time has finished is none that there was."""
    writer = Writer()
    tables = [StateTable("left", ROWS), StateTable("right", ROWS)]
    expired_us = {"left": 7, "right": TIME_US_MIN - 1}
    writer.submit(3, join=Snapshot(tables, expired_us=expired_us))
    (written,) = writer.results()
    (entry,) = written.entries
    assert [segment.table for segment in entry.segments] == ["left", "right"]
    assert entry.expired_us == {"left": 7}
