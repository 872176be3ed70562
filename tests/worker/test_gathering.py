"""A unit of a source takes the rows of several polls, as long as they are few and there at once."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors import datagen
from laminar_core.connectors.base import Source, SourceBatch
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.stand_in import StandInSource
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.clock import ManualClock
from laminar_core.pipeline import Pipeline
from laminar_core.testing.memory_source import MemorySource
from laminar_core.worker import gathering
from laminar_core.worker.gathering import GATHERED_ROWS_MAX, gathered
from laminar_core.worker.pacing import PacedSource
from laminar_core.worker.wiring import gathers

ALL = 1_000_000
LETTERS = pa.record_batch({"index": pa.array([0], pa.int64())})


class Polls:
    """Gives these batches one after the other; None: nothing is there for one poll."""

    def __init__(self, *batches: pa.RecordBatch | SourceBatch | None, ms_each: float = 0) -> None:
        self.clock = ManualClock()
        self.asked: list[int] = []
        self._batches = list(batches)
        self._ms_each = ms_each

    def __call__(self, rows_max: int) -> SourceBatch | None:
        self.asked.append(rows_max)
        self.clock.wait_ms(self._ms_each)
        batch = self._batches.pop(0) if self._batches else None
        return SourceBatch(batch) if isinstance(batch, pa.RecordBatch) else batch

    def gathered(self, rows_max: int = ALL) -> SourceBatch:
        batch = gathered(self, rows_max, self.clock)
        assert batch is not None
        return batch


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def of_gathered(polls: Polls) -> list[int]:
    return polls.gathered().rows.column("n").to_pylist()


def test_rows_that_are_there_become_one_batch_and_nothing_waits_for_more():
    polls = Polls(numbers(1, 2), numbers(3), None, numbers(4))
    assert of_gathered(polls) == [1, 2, 3]
    assert of_gathered(polls) == [4]
    assert gathered(polls, ALL, polls.clock) is None


def test_one_batch_is_handed_on_as_it_is():
    lone = SourceBatch(numbers(1), split_id=4, messages=3)
    assert Polls(lone).gathered() is lone


@given(st.lists(st.integers(1, 700), min_size=1, max_size=30), st.integers(1, 3_000))
def test_a_reader_is_never_asked_for_more_rows_than_fit(sizes, rows_max):
    source = MemorySource([pa.table({"n": range(sum(sizes))})], batch_rows=sizes[0])
    reader, read = source.open(first_splits(source)), list[int]()
    while batch := gathered(reader.poll, rows_max, ManualClock()):
        assert batch.rows.num_rows <= min(rows_max, max(sizes[0], GATHERED_ROWS_MAX))
        read += batch.rows.column("n").to_pylist()
    assert read == list(range(sum(sizes)))


def test_a_batch_that_is_large_enough_is_not_copied():
    large = SourceBatch(numbers(*range(GATHERED_ROWS_MAX)))
    polls = Polls(large, numbers(1))
    assert polls.gathered() is large
    assert polls.asked == [ALL]


def test_bytes_end_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gathering, "GATHERED_BYTES_MAX", 16)
    assert of_gathered(Polls(numbers(1), numbers(2), numbers(3))) == [1, 2]


def test_a_slow_reader_is_not_polled_again():
    assert of_gathered(Polls(numbers(1), numbers(2), numbers(3), ms_each=3)) == [1, 2]


def test_letters_end_it_and_are_handed_on_with_the_rows_before_them():
    with_letters = SourceBatch(numbers(2), split_id=1, letters=LETTERS)
    polls = Polls(numbers(1), with_letters, numbers(3))
    batch = polls.gathered()
    assert batch.rows.column("n").to_pylist() == [1, 2]
    assert batch.letters is LETTERS
    assert of_gathered(polls) == [3]


def keys(*values: str, index: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values).dictionary_encode().cast(_keys(index))})


def _keys(index: pa.DataType | None) -> pa.DataType:
    return pa.dictionary(index or pa.int32(), pa.string())


def test_dictionaries_are_united():
    batch = Polls(keys("a", "b"), keys("c", "a")).gathered()
    assert batch.rows.column("k").to_pylist() == ["a", "b", "c", "a"]


@pytest.mark.parametrize("nested", [False, True])
def test_dictionaries_are_united_if_null_is_among_their_values(nested):
    def one(*values: str | None) -> pa.RecordBatch:
        places = pa.array([*range(len(values)), None], pa.int32())
        column = pa.DictionaryArray.from_arrays(places, pa.array(values))
        return pa.record_batch(
            {"k": pa.StructArray.from_arrays([column], ["k"]) if nested else column}
        )

    batch = Polls(one("a", None, "b"), one("c", "a")).gathered().rows
    column = batch.column("k").field("k") if nested else batch.column("k")
    assert column.to_pylist() == ["a", None, "b", None, "c", "a", None]
    assert batch.schema == one("a").schema


@pytest.mark.parametrize("nested", [False, True])
def test_dictionaries_whose_values_an_index_may_not_be_able_to_name_are_left_alone(nested):
    def one(value: str) -> pa.RecordBatch:
        column = keys(value, index=pa.int8()).column("k")
        return pa.record_batch(
            {"k": pa.StructArray.from_arrays([column], ["k"]) if nested else column}
        )

    batches = [one("a"), one("b")]
    polls = Polls(*batches)
    assert [polls.gathered().rows for _ in batches] == batches


@pytest.mark.parametrize("values", [pa.array([{"a": 1}]), pa.nulls(1, pa.uuid())])
def test_dictionaries_that_pyarrow_cannot_join_are_left_alone(values):
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values)
    polls = Polls(pa.record_batch({"k": column}), keys("b"))
    assert polls.gathered().rows.column("k").to_pylist() == values.to_pylist()


def test_batches_with_different_columns_are_an_error_of_the_source():
    with pytest.raises(ConfigurationError, match="batches whose columns differ") as caught:
        Polls(numbers(1), keys("a")).gathered()
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_a_paced_source_gathers_no_more_than_is_due():
    source = MemorySource([pa.table({"n": range(100)})], batch_rows=10)
    clock = ManualClock()
    paced = PacedSource(source.open(first_splits(source)), clock, 1_000, None)
    paced.gathers = True
    sizes = []
    for _ in range(3):
        batch = paced.poll(ALL)
        sizes.append(batch.rows.num_rows)
        assert paced.poll(ALL) is None
        clock.wait_ms(20)
    assert sizes == [10, 20, 20]


def test_sources_gather_unless_they_or_the_event_time_of_their_rows_say_otherwise():
    table = pa.table({"ts": pa.array([1], pa.timestamp("us")), "k": ["a"]})

    def of(source: Source, *, timed: bool) -> bool:
        p = Pipeline("p")
        rows = p.source("in", source)
        rows = rows.watermark("ts") if timed else rows.map(lambda batch: batch)
        rows.rebalance().sink("out", CollectSink())
        (vertex,) = (v for v in p.plan().vertices if v.source is not None)
        assert vertex.source is not None
        return gathers(vertex.source, vertex)

    eager = MemorySource([table], gathered=True)
    assert of(eager, timed=False)
    assert not of(eager, timed=True)
    assert not of(MemorySource([table]), timed=False)
    assert of(StandInSource(eager), timed=False)
    assert not of(StandInSource(MemorySource([table])), timed=False)
    assert of(datagen.DatagenSource({"ts": datagen.Sequence()}, 10), timed=False)
