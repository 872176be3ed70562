"""A source is never faster than its pace, and idle only if it has nothing to give."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.host.clock import ManualClock
from laminar_core.protocol.types import CheckpointId
from laminar_core.testing.memory_source import MemorySource
from laminar_core.worker.pacing import PacedSource, rows_before, rows_in_all


def splits(*next_and_count: tuple[int, int | None]) -> pa.Table:
    return pa.table(
        {
            "next_row": pa.array([n for n, _ in next_and_count], pa.int64()),
            "row_count": pa.array([count for _, count in next_and_count], pa.int64()),
        }
    )


class Queue:
    """A reader of batches that a test puts in; an empty queue has nothing right now."""

    def __init__(self, *sizes: int, next_row: int = 0) -> None:
        self.sizes = list(sizes)
        self.finished = False
        self._next_row = next_row

    def poll(self) -> pa.RecordBatch | None:
        if not self.sizes:
            return None
        size = self.sizes.pop(0)
        self._next_row += size
        return pa.record_batch({"value": pa.nulls(size, pa.int64())})

    def position(self) -> pa.Table:
        return splits((self._next_row, None))

    def close(self) -> None:
        pass


def paced(reader: Queue, pace: float | None = None, idle_ms: float | None = None):
    clock = ManualClock()
    return PacedSource(reader, clock, pace, idle_ms), clock


def test_rows_behind_a_position_are_summed_over_the_splits() -> None:
    assert rows_before(splits((3, 10), (0, 5), (7, 7))) == 10
    assert rows_before(splits()) == 0


def test_rows_in_all_are_known_only_if_every_split_ends() -> None:
    assert rows_in_all(splits((3, 10), (0, 5))) == 15
    assert rows_in_all(splits()) == 0
    assert rows_in_all(splits((3, 10), (0, None))) is None


def test_without_a_pace_everything_comes_at_once() -> None:
    source, _ = paced(Queue(5, 5, 5))
    assert [source.poll().num_rows for _ in range(3)] == [5, 5, 5]
    assert source.wait_ms() == 0
    assert source.poll() is None
    assert source.rows_since_start == 15


def test_a_batch_is_due_when_the_rows_before_it_have_had_their_time() -> None:
    source, clock = paced(Queue(50, 100, 1), pace=100)
    assert source.poll().num_rows == 50
    assert (source.poll(), source.wait_ms()) == (None, 500)
    clock.wait_ms(499)
    assert (source.poll(), source.wait_ms()) == (None, 1)
    clock.wait_ms(1)
    assert source.poll().num_rows == 100
    assert source.wait_ms() == 1000


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
        batch = source.poll()
        if batch is not None:
            elapsed_s = (clock.monotonic_ms() - began_ms) / 1000
            assert read <= elapsed_s * pace * 1.000001 + 1e-6 * pace
            read += batch.num_rows
        clock.wait_ms(nap)
    assert source.rows_since_start == read


def test_a_restored_source_keeps_its_pace_from_where_it_restarts() -> None:
    """Rows of earlier generations count as read, but neither as debt nor as credit."""
    source, clock = paced(Queue(10, 10, next_row=1_000_000), pace=10)
    clock.wait_ms(60_000)  # The workers took their time to come up.
    assert source.poll().num_rows == 10
    assert source.wait_ms() == 1000
    assert (source.rows_before, source.rows_since_start) == (1_000_000, 10)


def test_idle_is_said_once_until_rows_come_again() -> None:
    source, clock = paced(reader := Queue(), idle_ms=100)
    clock.wait_ms(99)
    assert (source.poll(), source.became_idle()) == (None, False)
    clock.wait_ms(1)
    assert [source.became_idle(), source.became_idle()] == [True, False]
    reader.sizes.append(1)
    assert source.poll() is not None
    assert not source.became_idle()
    clock.wait_ms(100)
    assert source.became_idle()


def test_a_source_without_idle_timeout_is_never_idle() -> None:
    source, clock = paced(Queue())
    clock.wait_ms(1e9)
    assert not source.became_idle()


def test_a_source_that_its_pace_holds_back_is_not_idle() -> None:
    """Its rows would come late if event time went on without it."""
    source, clock = paced(Queue(1000, 1), pace=100, idle_ms=500)
    assert source.poll() is not None
    for _ in range(9):
        clock.wait_ms(1000)
        assert source.poll() is None
        assert not source.became_idle()
    clock.wait_ms(1000)
    assert source.poll() is not None


def test_a_source_with_nothing_to_give_becomes_idle_in_spite_of_its_pace() -> None:
    source, clock = paced(Queue(100), pace=100, idle_ms=500)
    source.poll()
    clock.wait_ms(1000)
    assert source.poll() is None
    clock.wait_ms(500)
    assert source.poll() is None
    assert source.became_idle()


def test_the_snapshot_is_the_position_at_the_cut() -> None:
    source, _ = paced(Queue(5, 5))
    source.poll()
    pending = source.snapshot(CheckpointId(1))
    source.poll()
    assert pending().tables[0].column("next_row").to_pylist() == [5]


@pytest.mark.parametrize("finished", [True, False])
def test_the_end_is_the_readers(finished: bool) -> None:  # noqa: FBT001 - a parameter of the test
    source, _ = paced(reader := Queue())
    reader.finished = finished
    assert source.finished is finished


class TestSlices:
    """A slow operator takes its source's batches in parts; the position is that of the parts."""

    def test_slices_are_the_batch_in_order_and_the_position_follows_them(self) -> None:
        table = pa.table({"n": list(range(10))})
        source = MemorySource([table.slice(0, 3), table.slice(3)], batch_rows=7)
        reader = PacedSource(source.open(source.discover()), ManualClock(), None, None)
        seen, positions = [], []
        while not reader.finished:
            part = reader.poll(2)
            assert part is not None
            assert 0 < part.num_rows <= 2
            seen += part.column("n").to_pylist()
            table_now = reader.snapshot(CheckpointId(1))().tables[0]
            assert table_now is not None
            positions.append(table_now.column("next_row").to_pylist())
        assert seen == list(range(10))
        assert positions == [[2, 0], [3, 0], [3, 2], [3, 4], [3, 6], [3, 7]]

    def test_a_restore_from_the_middle_of_a_batch_reads_on_there(self) -> None:
        source = MemorySource([pa.table({"n": list(range(10))})], batch_rows=7)
        reader = PacedSource(source.open(source.discover()), ManualClock(), None, None)
        reader.poll(3)
        position = reader.snapshot(CheckpointId(1))().tables[0]
        assert position is not None
        again = PacedSource(source.open(position), ManualClock(), None, None)
        rest = [again.poll(), again.poll()]
        assert [n for b in rest if b is not None for n in b.column("n").to_pylist()] == [
            *range(3, 10)
        ]

    def test_the_rest_of_a_slice_comes_whole_once_nobody_asks_for_slices(self) -> None:
        reader, _ = paced(Queue(10, 4))
        assert [b.num_rows for b in (reader.poll(3), reader.poll(), reader.poll()) if b] == [
            3,
            7,
            4,
        ]

    def test_a_batch_of_several_splits_is_not_sliced(self) -> None:
        class Abreast(Queue):
            def position(self) -> pa.Table:
                return splits((self._next_row // 2, None), (self._next_row // 2, None))

        reader, _ = paced(Abreast(10))
        batch = reader.poll(2)
        assert batch is not None
        assert batch.num_rows == 10
