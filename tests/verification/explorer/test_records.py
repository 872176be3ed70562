"""Operators that count notice what is missing, doubled or out of order."""

import pytest

from laminar_core.protocol.types import (
    Batch,
    CancelMarker,
    CheckpointBarrier,
    CheckpointId,
    EndOfInput,
    Idle,
    Watermark,
)
from verification.explorer.records import (
    CountingOperator,
    MeetingOperator,
    NumberedReader,
    Record,
    StagingWriter,
    TimingOperator,
    ViolationError,
    batch_of,
    record_of,
    render,
)

ONE = CheckpointId(1)


def operator(*seen: Record) -> CountingOperator:
    created = CountingOperator("m", lambda path: path + "m")
    for record in seen:
        list(created.process(batch_of(record)))
    return created


def test_a_record_is_a_batch_and_back() -> None:
    assert record_of(batch_of(Record("ab", 3))) == Record("ab", 3)
    assert record_of(batch_of(Record("ab", 3)).slice(0)) == Record("ab", 3)
    assert batch_of(Record("ab", 3)) is batch_of(Record("ab", 3))


def test_records_go_on_under_the_new_path() -> None:
    (passed,) = operator().process(batch_of(Record("a", 0)))
    assert record_of(passed) == Record("am", 0)


@pytest.mark.parametrize(
    ("record", "what"),
    [(Record("a", 2), "a loss"), (Record("a", 0), "a duplicate"), (Record("b", 1), "a loss")],
)
def test_a_gap_and_a_repetition_are_noticed(record: Record, what: str) -> None:
    with pytest.raises(ViolationError, match=what):
        list(operator(Record("a", 0)).process(batch_of(record)))


def test_counts_are_the_state() -> None:
    first = operator(Record("a", 0), Record("b", 0), Record("a", 1))
    second = operator()
    second.restore([first.snapshot(ONE)()])
    assert second.counts == {"a": 2, "b": 1}
    assert list(second.on_watermark(5)) == []


def test_a_reader_continues_at_its_offset_and_may_never_end() -> None:
    reader = NumberedReader("a", 2, 1, ends=True)
    assert not reader.finished
    batch = reader.poll(1)
    assert batch is not None
    assert record_of(batch.rows) == Record("a", 1)
    assert (reader.finished, reader.poll(1)) == (True, None)
    (split,) = reader.position().to_pylist()
    assert (split["offset"], split["rows_read"], split["done"]) == ("2", 2, True)
    assert not NumberedReader("a", 2, 2, ends=False).finished


def test_a_sink_hands_over_what_came_since_the_last_cut() -> None:
    writer = StagingWriter()
    writer.write(batch_of(Record("a", 1)))
    writer.write(batch_of(Record("a", 0)))
    assert writer.snapshot(ONE)().committables == ({"checkpoint": 1, "rows": ["a0", "a1"]},)
    assert writer.snapshot(ONE)().committables == ()


def test_elements_as_a_trace_shows_them() -> None:
    elements = [
        Batch(batch_of(Record("a", 0))), Watermark(1), Idle(), CheckpointBarrier(ONE),
        CheckpointBarrier(ONE, unaligned=True), CancelMarker(ONE), EndOfInput(),
    ]  # fmt: skip
    assert list(map(render, elements)) == [
        "a0", "watermark", "idle", "barrier 1", "unaligned barrier 1", "cancel 1", "end",
    ]  # fmt: skip


def test_event_time_follows_each_record() -> None:
    timing = TimingOperator()
    record = batch_of(Record("a", 3))
    assert list(timing.process(record)) == [record, Watermark(4)]
    timing.restore([timing.snapshot(ONE)()])
    assert list(timing.on_watermark(4)) == []


def test_a_record_of_another_input_and_a_late_one_are_noticed() -> None:
    meeting = MeetingOperator(operator(), ("a", "b"))
    (passed,) = meeting.process_input(1, batch_of(Record("b", 0)))
    assert record_of(passed) == Record("bm", 0)
    with pytest.raises(ViolationError, match="b1 is processed as if it came on input 0"):
        list(meeting.process_input(0, batch_of(Record("b", 1))))
    assert list(meeting.on_watermark(2)) == []
    with pytest.raises(ViolationError, match="b1 is late: event time is 2"):
        list(meeting.process_input(1, batch_of(Record("b", 1))))
    again = MeetingOperator(operator(), ("a", "b"))
    again.restore([meeting.snapshot(ONE)()])
    assert again.counting.counts == {"b": 1}
