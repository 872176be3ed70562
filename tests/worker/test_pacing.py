"""A source is never faster than its pace, and idle only if it has nothing to give."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.base import SourceBatch
from laminar_core.connectors.discovery import first_splits
from laminar_core.host.clock import ManualClock
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.splits import split_table
from laminar_core.testing.memory_source import MemorySource
from laminar_core.worker.pacing import PacedSource

ALL = 1_000_000


class Queue:
    """A reader of batches that a test puts in; an empty queue has nothing right now.

    Its offsets have gaps: between two rows there are nine that nobody gets to see.
    """

    def __init__(self, *sizes: int, rows_read: int = 0) -> None:
        self.sizes = list(sizes)
        self.finished = False
        self._rows_read = rows_read

    def poll(self, rows_max: int) -> SourceBatch | None:
        if not self.sizes:
            return None
        size = self.sizes.pop(0)
        if size > rows_max:
            self.sizes.insert(0, size - rows_max)
        size = min(size, rows_max)
        self._rows_read += size
        return SourceBatch(pa.record_batch({"value": pa.nulls(size, pa.int64())}))

    def position(self) -> pa.Table:
        offset = str(10 * self._rows_read)
        row = {"split_id": 0, "split": "queue", "offset": offset, "rows_read": self._rows_read}
        return split_table([row])

    def close(self) -> None:
        pass


def paced(reader: Queue, pace: float | None = None, idle_ms: float | None = None):
    clock = ManualClock()
    return PacedSource(reader, clock, pace, idle_ms), clock


def test_without_a_pace_everything_comes_at_once() -> None:
    source, _ = paced(Queue(5, 5, 5))
    assert [source.poll(ALL).rows.num_rows for _ in range(3)] == [5, 5, 5]
    assert source.wait_ms() == 0
    assert source.poll(ALL) is None
    assert source.rows_since_start == 15


def test_a_batch_is_due_when_the_rows_before_it_have_had_their_time() -> None:
    source, clock = paced(Queue(50, 100, 1), pace=100)
    assert source.poll(ALL).rows.num_rows == 50
    assert (source.poll(ALL), source.wait_ms()) == (None, 500)
    clock.wait_ms(499)
    assert (source.poll(ALL), source.wait_ms()) == (None, 1)
    clock.wait_ms(1)
    assert source.poll(ALL).rows.num_rows == 100
    assert source.wait_ms() == 1000


@pytest.mark.parametrize(("pace", "rows"), [(100, 100), (0.5, 1), (float("inf"), 900)])
def test_a_batch_has_at_most_the_rows_of_a_second(pace: float, rows: int) -> None:
    source, _ = paced(Queue(900), pace=pace)
    assert source.poll(ALL).rows.num_rows == rows


@given(
    st.lists(st.integers(1, 1000), max_size=20),
    st.floats(0.1, 1e6),
    st.lists(st.floats(0, 5000), min_size=20, max_size=40),
)
def test_the_pace_is_never_exceeded(sizes: list[int], pace: float, naps: list[float]) -> None:
    """But for the first batch, which comes at once: its rows are what the pace is counted from."""
    source, clock = paced(Queue(*sizes), pace=pace)
    began_ms, read = clock.monotonic_ms(), 0
    for nap in naps:
        batch = source.poll(ALL)
        if batch is not None:
            elapsed_s = (clock.monotonic_ms() - began_ms) / 1000
            assert read <= elapsed_s * pace * 1.000001 + 1e-6 * pace
            read += batch.rows.num_rows
        clock.wait_ms(nap)
    assert source.rows_since_start == read


def test_a_restored_source_keeps_its_pace_from_where_it_restarts() -> None:
    """Rows of earlier generations count as read, but neither as debt nor as credit."""
    source, clock = paced(Queue(10, 10, rows_read=1_000_000), pace=10)
    clock.wait_ms(60_000)  # The workers took their time to come up.
    assert source.poll(ALL).rows.num_rows == 10
    assert source.wait_ms() == 1000
    assert (source.rows_before, source.rows_since_start) == (1_000_000, 10)


def test_idle_is_said_once_until_rows_come_again() -> None:
    source, clock = paced(reader := Queue(), idle_ms=100)
    clock.wait_ms(99)
    assert (source.poll(ALL), source.became_idle()) == (None, False)
    clock.wait_ms(1)
    assert [source.became_idle(), source.became_idle()] == [True, False]
    reader.sizes.append(1)
    assert source.poll(ALL) is not None
    assert not source.became_idle()
    clock.wait_ms(100)
    assert source.became_idle()


def test_a_source_without_idle_timeout_is_never_idle() -> None:
    source, clock = paced(Queue())
    clock.wait_ms(1e9)
    assert not source.became_idle()


def test_a_source_without_splits_to_watch_is_idle_without_a_timeout() -> None:
    source, _ = paced(Queue())
    source.watch_splits().done(0)
    assert [source.became_idle(), source.became_idle()] == [True, False]


def test_a_source_that_its_pace_holds_back_is_not_idle() -> None:
    """Its rows would come late if event time went on without it."""
    source, clock = paced(Queue(1, 1), pace=0.1, idle_ms=500)
    assert source.poll(ALL) is not None
    for _ in range(9):
        clock.wait_ms(1000)
        assert source.poll(ALL) is None
        assert not source.became_idle()
    clock.wait_ms(1000)
    assert source.poll(ALL) is not None


def test_a_source_with_nothing_to_give_becomes_idle_in_spite_of_its_pace() -> None:
    source, clock = paced(Queue(100), pace=100, idle_ms=500)
    source.poll(ALL)
    clock.wait_ms(1000)
    assert source.poll(ALL) is None
    clock.wait_ms(500)
    assert source.poll(ALL) is None
    assert source.became_idle()


def test_the_snapshot_is_the_position_at_the_cut() -> None:
    source, _ = paced(Queue(5, 5))
    source.poll(ALL)
    pending = source.snapshot(CheckpointId(1))
    source.poll(ALL)
    assert pending().tables[0].rows.column("rows_read").to_pylist() == [5]


@pytest.mark.parametrize("finished", [True, False])
def test_the_end_is_the_readers(finished: bool) -> None:  # noqa: FBT001 - a parameter of the test
    source, _ = paced(reader := Queue())
    reader.finished = finished
    assert source.finished is finished


class TestSlices:
    """A slow operator takes few rows at a time; the reader says where it is after each of them."""

    def test_slices_are_the_rows_in_order_and_the_position_follows_them(self) -> None:
        table = pa.table({"n": list(range(10))})
        source = MemorySource([table.slice(0, 3), table.slice(3)], batch_rows=7)
        reader = PacedSource(source.open(first_splits(source)), ManualClock(), None, None)
        seen, positions = [], []
        while not reader.finished:
            part = reader.poll(2)
            assert part is not None
            assert 0 < part.rows.num_rows <= 2
            seen += part.rows.column("n").to_pylist()
            table_now = reader.snapshot(CheckpointId(1))().tables[0].rows
            assert table_now is not None
            positions.append(table_now.column("offset").to_pylist())
        assert seen == list(range(10))
        assert positions == [["2", "0"], ["3", "0"], ["3", "2"], ["3", "4"], ["3", "6"], ["3", "7"]]

    def test_a_restore_from_the_middle_of_a_batch_reads_on_there(self) -> None:
        source = MemorySource([pa.table({"n": list(range(10))})], batch_rows=7)
        reader = PacedSource(source.open(first_splits(source)), ManualClock(), None, None)
        reader.poll(3)
        position = reader.snapshot(CheckpointId(1))().tables[0].rows
        assert position is not None
        again = PacedSource(source.open(position), ManualClock(), None, None)
        rest = [again.poll(ALL), again.poll(ALL)]
        assert [n for b in rest if b is not None for n in b.rows.column("n").to_pylist()] == [
            *range(3, 10)
        ]

    def test_how_the_source_reads_is_part_of_every_snapshot(self) -> None:
        source, _ = paced(Queue(10))
        assert source.snapshot(CheckpointId(1))().properties == {}
        source.properties = {"pages_verified": False}
        assert source.snapshot(CheckpointId(2))().properties == {"pages_verified": False}

    def test_an_offset_is_the_readers_own_and_nothing_is_added_to_it(self) -> None:
        """Offsets with gaps: three rows further is not three further."""
        source, _ = paced(Queue(10))
        source.poll(3)
        (row,) = source.snapshot(CheckpointId(1))().tables[0].rows.to_pylist()
        assert (row["offset"], row["rows_read"]) == ("30", 3)
