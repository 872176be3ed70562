"""The background half of a snapshot: everything durable, or the checkpoint declined."""

from collections.abc import Iterable
from concurrent.futures import Executor, Future

import pyarrow as pa
import pytest

from laminar_core.errors import DataError, ErrorCode
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import Snapshot, StateTable
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.types import Batch, CheckpointId, Generation
from laminar_core.protocol.unaligned import InFlightChannelData, QueueId
from laminar_core.records.channel_entries import EdgeRef
from laminar_core.records.limits import TIME_US_MIN
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.worker import inflight_writing, snapshots
from laminar_core.worker.cuts import Cut, PendingPart
from laminar_core.worker.inflight import Captured, Queue
from laminar_core.worker.inflight_writing import (
    InflightComplete,
    InflightWritten,
    NotFinished,
    NotWritten,
)
from laminar_core.worker.segments import SegmentWriter
from laminar_core.worker.snapshots import (
    INFLIGHT_FILES,
    SnapshotWriter,
    WorkerPart,
    Written,
    channels_of,
)
from tests.driver.hosts import Background, threads_of
from tests.store.stores import open_job

ROWS = pa.table({"key": ["a", "b"], "value": [1, 2]})


class Writer:
    """A writer whose background runs when the test says so."""

    def __init__(self, *faults: Fault, compression=None, inflight=None, files=None) -> None:
        self.store = open_job(FaultyStore(MemoryObjectStore(), *faults))
        self.background, self.wakes = Background(), 0
        self.segments = SegmentWriter(
            self.store, Generation(1), 1, StateOptions(), self.background, {"window"}
        )
        threads = threads_of(self.background, inflight, files)
        self.writer = SnapshotWriter(self.segments, threads, ManualClock(), self._wake, compression)

    def _wake(self) -> None:
        self.wakes += 1

    def submit(self, checkpoint_id: int, *, small: bool = False, **parts) -> None:
        """Parts by operator id: a snapshot, or a function that makes one."""
        pending = tuple(
            PendingPart(operator, part if callable(part) else lambda part=part: part, 0.5)
            for operator, part in parts.items()
        )
        self.writer.submit(Cut(CheckpointId(checkpoint_id), "v", pending, small))

    @property
    def written(self) -> list[str]:
        """Keys below ``checkpoints/``, in the order in which they were written."""
        calls = self.store.objects.calls
        return [key.partition("/checkpoints/")[2] for verb, key in calls if verb == "put_if_absent"]

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


def test_rows_without_keys_may_have_columns_that_are_called_like_those_of_keyed_state():
    writer = Writer()
    rows = pa.table({"key_group": ["b", None, "a"], "window_start": ["monday", "", "-"]})
    keyed = pa.table({"key_group": pa.array([3, 5], pa.int32())})
    writer.submit(3, sink=Snapshot.of([rows]), window=Snapshot.of([keyed]))
    (written,) = writer.results()
    (of_sink,), (of_window,) = (entry.segments for entry in written.entries)
    assert writer.store.parts.read_state(of_sink).equals(rows)
    assert (of_sink.key_groups, of_sink.newest_window_us) == (None, None)
    assert of_window.key_groups == (3, 6)


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


def capture(writer: Writer, number: int = 0, checkpoint_id: int = 3, *, complete=True) -> None:
    """Capture a row with the number of its queue."""
    captured = piece(number, number=number, checkpoint_id=checkpoint_id, last=True)
    writer.writer.capture("v", queue(number), captured)
    if complete:
        writer.writer.complete_inflight(CheckpointId(checkpoint_id))


def test_in_flight_data_is_written_in_its_turn_where_there_is_one_thread():
    writer = Writer()
    capture(writer)
    assert writer.writer.results() == []
    complete, written = writer.results()
    assert isinstance(written, InflightWritten)
    assert complete == InflightComplete(CheckpointId(3), 1)
    assert writer.wakes == 2


class AtOnce(Executor):
    """Runs what is submitted before it answers."""

    def submit(self, fn, /, *args, **kwargs):
        background = Background()
        future = background.submit(fn, *args, **kwargs)
        background.run()
        return future


@pytest.fixture
def other(monkeypatch) -> Background:
    """Other threads than that for state: they work when somebody waits for them."""
    background = Background()

    def wait(futures: Iterable[Future[None]]) -> None:
        if not all(future.done() for future in futures):
            background.run()

    for module in (inflight_writing, snapshots):
        monkeypatch.setattr(module, "wait", wait)
    return background


def test_the_file_with_in_flight_data_is_written_while_state_is(other):
    """State was queued before it, and has not been written yet."""
    writer = Writer(inflight=AtOnce(), files=other)
    writer.submit(3, window=Snapshot.of([ROWS]))
    capture(writer)
    assert [type(result) for result in writer.writer.results()] == [InflightComplete]
    other.run()
    assert [type(result) for result in writer.writer.results()] == [InflightWritten]
    assert [type(result) for result in writer.results()] == [Written]


@pytest.mark.parametrize(
    ("first_part", "next_part"),
    [
        ("queue", "state"),
        ("queue", "small"),
        ("queue", "queue"),
        ("small", "state"),
        ("small",) * 2,
    ],
)
def test_nothing_of_another_checkpoint_is_written_before_it_is(other, first_part, next_part):
    writer = Writer(files=other)
    for checkpoint_id, part in ((3, first_part), (4, next_part)):
        if part == "queue":
            capture(writer, checkpoint_id=checkpoint_id)
        else:
            writer.submit(checkpoint_id, small=part == "small", window=Snapshot.of([ROWS]))
        writer.results()
    other.run()
    assert [found[:10] for found in writer.written] == ["0000000003", "0000000004"]


def test_state_waits_for_in_flight_data_that_is_still_to_be_written(other):
    """The thread that encodes it has not come to its end when the next checkpoint begins."""
    writer = Writer(inflight=other, files=other)
    capture(writer)
    writer.submit(4, window=Snapshot.of([ROWS]))
    writer.results()
    assert [found[:10] for found in writer.written] == ["0000000003", "0000000004"]


def test_small_cuts_do_not_wait_for_the_state_of_another_vertex(other):
    writer = Writer(files=other)
    writer.submit(3, window=Snapshot.of([ROWS]))
    writer.submit(3, small=True, source=Snapshot.of([ROWS]))
    assert [result.entries[0].operator_id for result in writer.results()] == ["window"]
    other.run()
    assert [result.entries[0].operator_id for result in writer.results()] == ["source"]


def test_a_small_cut_that_is_discarded_is_over_when_the_discard_is(other):
    writer = Writer(files=other)
    writer.submit(3, small=True, source=Snapshot.of([ROWS]))
    writer.writer.discard(CheckpointId(3))
    assert [type(result) for result in writer.results()] == [NotWritten]
    assert (writer.writer.given_up, len(other.queue)) == (0, 0)
    assert writer.store.objects.list("") == []


def test_a_discard_is_done_when_no_file_is_being_written_and_those_that_wait_are_left_out(other):
    writer = Writer(files=other)
    capture(writer)
    writer.results()
    writer.writer.discard(CheckpointId(3))
    assert writer.writer.given_up == 1
    assert writer.results() == []
    assert writer.writer.given_up == 0
    assert len(other.queue) == 0
    assert writer.store.objects.list("") == []


def test_a_part_of_a_worker_is_packed_when_all_of_its_channels_are_complete():
    part = WorkerPart.of(["a", "b"])
    part.missing.discard(channels_of("a"))
    part.missing.discard(channels_of("b"))
    assert not part.can_be_packed, "nothing was captured"
    part = WorkerPart.of(["a", "b"])
    part.missing.add(INFLIGHT_FILES)
    part.missing.discard(channels_of("a"))
    assert not part.can_be_packed, "b is recorded"
    part.missing.discard(channels_of("b"))
    assert part.can_be_packed
    assert part.lacks_state_of("a")


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
