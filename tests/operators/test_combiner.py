"""Bundles of batches: windows and late rows are those of batches that are passed on at once."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates import key_places
from laminar_core.operators import agg, combiner
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import KeepsBundle, SubtaskContext
from laminar_core.operators.combiner import Combiner
from laminar_core.operators.windows import CumulativeWindow, SlidingWindow, TumblingWindow, Window
from laminar_core.protocol.types import WATERMARK_END_US, WATERMARK_MIN_US, CheckpointId, Generation

AGGREGATES = (agg.count(), agg.sum("v"), agg.min("v"), agg.max("v"), agg.avg("v"))
TUMBLING = TumblingWindow(10)
WINDOWS = (TUMBLING, TumblingWindow(4, offset_us=1), SlidingWindow(8, 2), CumulativeWindow(12, 3))
Row = tuple[int, str, int, int]  # Key, another key, event time, v.


@pytest.fixture(autouse=True, scope="module")
def few_rows_will_do():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combiner, "BUNDLED_ROWS_MIN", 2)
        patch.setattr(combiner, "OUTPUT_ROWS_MAX", 3)
        patch.setattr(key_places, "KEYS_PER_ROW_MAX", 100)
        yield


def batch(*rows: Row) -> pa.RecordBatch:
    numbers, texts, times, values = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.record_batch(
        {
            "n": pa.array(numbers, pa.int16()),
            "k": pa.array(texts, pa.string()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "v": pa.array(values, pa.int64()),
        }
    )


def spec(window: Window = TUMBLING, keys: Sequence[str] = ("n",), lag_us: int = 0):
    return PartialAggregate("p", tuple(keys), "ts", window, AGGREGATES, lag_us, bundles=True)


def opened(made: PartialAggregate) -> Combiner:
    context = SubtaskContext("any", 0, 1, 8, Generation(1))
    return made.open(context, batch().schema)


def counts(batches) -> list[tuple[int, int]]:
    """(key, rows) of each result."""
    found = [row for each in batches for row in each.to_pylist()]
    return [(row["n"], row["count(*)"]) for row in found]


class Job:
    """Both halves of a window, one subtask each."""

    def __init__(self, partial: PartialAggregate, lateness_us: int) -> None:
        self.combiner = opened(partial)
        merging = WindowAggregate("w", partial.keys, partial.window, AGGREGATES, lateness_us)
        exchanged = partial.output_schema(batch().schema)
        self.schema = exchanged
        self.owner = merging.open(SubtaskContext("w", 0, 1, 8, Generation(1)), exchanged)
        self.sent = 0

    def take(self, batches) -> None:
        for each in batches:
            assert each.schema == self.schema
            self.sent += each.num_rows
            assert list(self.owner.process(each)) == []

    def advance(self, watermark_us: int) -> list[tuple]:
        self.take(self.combiner.on_watermark(watermark_us))
        passed_us = watermark_us
        if watermark_us != WATERMARK_END_US:
            passed_us = max(self.combiner.output_watermark(watermark_us), WATERMARK_MIN_US)
        fired = [row for each in self.owner.on_watermark(passed_us) for row in each.to_pylist()]
        return sorted(tuple(row.values()) for row in fired)


ROW = st.tuples(st.integers(-3, 3), st.sampled_from("ab"), st.integers(0, 60), st.integers(-9, 9))
STEP = st.lists(ROW, min_size=1, max_size=6) | st.integers(-5, 70) | st.just("cut")


@settings(deadline=None)
@given(
    st.lists(STEP, max_size=12),
    st.sampled_from(WINDOWS),
    st.sampled_from([("n",), ("k",), ("k", "n"), ()]),
    st.sampled_from([0, 3]),
    st.sampled_from([0, 7]),
)
def test_bundles_change_no_window_and_no_late_row(steps, window, keys, lag_us, lateness_us) -> None:
    bundling = spec(window, keys, lag_us)
    jobs = [Job(made, lateness_us) for made in (bundling, replace(bundling, bundles=False))]
    for step in [*steps, WATERMARK_END_US]:
        found = []
        for job in jobs:
            if isinstance(step, list):
                job.take(job.combiner.process(batch(*step)))
            elif step == "cut":
                job.take(job.combiner.finish_bundle())
                assert not job.combiner.has_bundle
                job.combiner.snapshot(CheckpointId(1))
            else:
                found.append(job.advance(step))
        assert found == [] or found[0] == found[1]
    assert jobs[0].owner.late_row_count == jobs[1].owner.late_row_count
    assert jobs[0].sent <= jobs[1].sent


class TestBundle:
    def test_rows_wait_until_event_time_passes_their_pane(self) -> None:
        made = opened(spec())
        assert isinstance(made, KeepsBundle)
        assert list(made.process(batch((1, "a", 1, 5), (2, "a", 12, 5)))) == []
        assert list(made.process(batch((1, "a", 2, 5), (2, "a", 3, 5)))) == []
        assert counts(made.on_watermark(9)) == []
        assert counts(made.on_watermark(10)) == [(1, 2), (2, 1)]
        assert made.has_bundle, "the next pane is open"
        assert counts(made.finish_bundle()) == [(2, 1)]
        assert not made.has_bundle

    def test_rows_of_a_pane_that_is_over_do_not_wait(self) -> None:
        made = opened(spec())
        assert list(made.on_watermark(10)) == []
        assert counts(made.process(batch((1, "a", 9, 5), (1, "a", 15, 5)))) == [(1, 1)]
        assert counts(made.on_watermark(WATERMARK_END_US)) == [(1, 1)]

    def test_event_time_of_the_window_may_be_behind(self) -> None:
        made = opened(spec(lag_us=100))
        assert list(made.process(batch((1, "a", 1, 5), (1, "a", 2, 5)))) == []
        assert list(made.on_watermark(109)) == []
        assert counts(made.on_watermark(110)) == [(1, 2)]

    def test_few_rows_and_rows_that_are_not_simple_are_passed_on(self) -> None:
        made = opened(spec())
        assert counts(made.process(batch((1, "a", 1, 5)))) == [(1, 1)]
        nulls = batch((1, "a", 1, 5), (1, "a", 1, 5)).set_column(
            3, "v", pa.array([None, 1], pa.int64())
        )
        assert counts(made.process(nulls)) == [(1, 2)]
        assert not made.has_bundle
        assert list(made.process(batch())) == []

    def test_few_rows_join_a_bundle_that_is_there(self) -> None:
        made = opened(spec())
        assert list(made.process(batch((1, "a", 1, 5), (1, "a", 2, 5)))) == []
        assert list(made.process(batch((1, "a", 3, 5)))) == []
        assert counts(made.finish_bundle()) == [(1, 3)]

    def test_few_rows_finish_no_bundle_in_which_they_have_no_room(self) -> None:
        made = opened(spec())
        assert list(made.process(batch((1, "a", 1, 5), (1, "a", 2, 5)))) == []
        assert counts(made.process(batch((1, "a", 71, 5)))) == [(1, 1)]
        assert counts(made.finish_bundle()) == [(1, 2)]

    def test_few_rows_say_nothing_about_the_keys_of_many(self) -> None:
        made = opened(spec())
        assert counts(made.process(batch((1, "a", 1, 5)))) == [(1, 1)]
        assert list(made.process(batch((1, "a", 1, 5), (1, "a", 2, 5)))) == []

    def test_it_is_finished_before_what_has_no_room_in_it(self) -> None:
        made = opened(spec())
        assert list(made.process(batch((1, "a", 1, 5), (1, "a", 2, 5)))) == []
        assert counts(made.process(batch((1, "a", 71, 5), (1, "a", 72, 5)))) == [(1, 2)]
        assert counts(made.finish_bundle()) == [(1, 2)]

    def test_large_results_come_in_pieces(self) -> None:
        made = opened(spec())
        list(made.process(batch(*((n, "a", 1, 5) for n in range(7)))))
        assert [each.num_rows for each in made.finish_bundle()] == [3, 3, 1]

    def test_a_snapshot_of_an_open_bundle_would_lose_its_rows(self) -> None:
        made = opened(spec())
        list(made.process(batch((1, "a", 1, 5), (1, "a", 2, 5))))
        with pytest.raises(AssertionError, match="a cut finishes bundles first"):
            made.snapshot(CheckpointId(1))

    def test_without_bundles_every_batch_is_passed_on(self) -> None:
        made = opened(replace(spec(), bundles=False))
        assert counts(made.process(batch((1, "a", 1, 5), (1, "a", 2, 5)))) == [(1, 2)]

    def test_they_are_not_part_of_the_description(self) -> None:
        assert spec().describe() == replace(spec(), bundles=False).describe()
