"""A window takes for its time only what the watermark tells about, as late as that has to be."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg, windows
from laminar_core.operators.aggregation import PartialAggregate
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.pipeline.event_time import EventTime
from laminar_core.testing.memory_source import MemorySource

MINUTE = windows.tumbling("1 minute")
SIZE_US = 60_000_000


def source(pipeline: Pipeline, name: str = "in") -> Stream:
    times = pa.array([0, 1], pa.timestamp("us"))
    table = pa.table({"k": ["a", "b"], "v": [1, 2], "ts": times, "paid_at": times})
    return pipeline.source(name, MemorySource([table]))


@pytest.fixture
def rows() -> Stream:
    return source(Pipeline("p")).watermark("ts", max_delay="5 seconds")


def results(stream: Stream) -> Stream:
    return stream.key_by("k").window(MINUTE).aggregate("w", agg.count())


def lags(stream: Stream) -> dict[str, int] | None:
    return None if stream.event_time is None else dict(stream.event_time.lags_us)


def test_a_watermark_is_about_one_column(rows: Stream) -> None:
    assert lags(rows) == {"ts": 0}
    assert lags(rows.watermark("paid_at")) == {"paid_at": 0}


def test_the_start_of_a_window_is_its_size_behind_its_end(rows: Stream) -> None:
    assert lags(results(rows)) == {"window_end": 0, "window_start": SIZE_US}
    sliding = windows.sliding("2 minutes", "1 minute")
    again = results(rows).key_by("k").window(sliding, time="window_start")
    assert lags(again.aggregate("x", agg.count())) == {"window_end": 0, "window_start": 2 * SIZE_US}


@pytest.mark.parametrize(("time", "lag_us"), [("window_start", SIZE_US), ("window_end", 0)])
def test_the_lag_reaches_the_operator(rows: Stream, time: str, lag_us: int) -> None:
    again = results(rows).key_by("k").window(MINUTE, time=time).aggregate("x", agg.count())
    partial = again._from.node.inputs[0].node.operator
    assert isinstance(partial, PartialAggregate)
    assert (partial.time_column, partial.time_lag_us) == (time, lag_us)
    assert "time_lag_us" not in partial.describe(), "state from before it fits"


def test_it_is_kept_as_long_as_the_column_is(rows: Stream) -> None:
    same = rows.rebalance().filter(pc.field("v") > 0).select("k", "ts")
    assert lags(same) == {"ts": 0}
    assert lags(rows.select("k")) == {}
    assert lags(rows.map(lambda b: b.set_column(2, "ts", b.column("v")))) == {}, "another type"


def test_a_total_is_no_event_time_and_a_key_is(rows: Stream) -> None:
    totals = rows.key_by("k").aggregate("t", agg.min("ts", name="ts"))
    assert lags(totals) == {}
    assert lags(rows.key_by("k", "ts").aggregate("u", agg.count())) == {"ts": 0}


def test_first_rows_wait_for_one_column_and_keep_no_other() -> None:
    p = Pipeline("p")
    left, right = (source(p, name).watermark("ts") for name in "ab")
    pairs = left.join(right, on="k", within=("-1 minute", "0 seconds"))
    assert lags(pairs) == {"ts": 0, "ts_right": 0}
    assert lags(pairs.key_by("k").first("f", time="ts_right")) == {"ts_right": 0}
    of_windows = results(left)
    assert of_windows.key_by("k").first("g", time="window_end").event_time == of_windows.event_time


def test_a_union_is_as_late_as_the_latest() -> None:
    joined = EventTime({"a": 1, "b": 0}, "b").joined(EventTime({"a": 5, "c": 0}, "c"))
    assert joined == EventTime({"a": 5})
    p = Pipeline("p")
    timed, untimed = source(p, "a").watermark("ts"), source(p, "b")
    assert lags(timed.union(timed)) == {"ts": 0}
    assert lags(timed.union(untimed)) == lags(untimed.union(timed)) == {"ts": 0}
    made = timed.key_by("k").process("made", lambda *_: (), schema=timed.schema)
    mixed = timed.union(made)
    assert mixed.event_time == EventTime({"ts": 0}), "rows of a process function may be of any time"
    with pytest.raises(ConfigurationError, match="this window has to name its event time"):
        mixed.key_by("k").window(windows.tumbling("1 minute"))
    with pytest.raises(ConfigurationError, match="'paid_at' is not the event time of this stream"):
        mixed.key_by("k").window(windows.tumbling("1 minute"), time="paid_at")
    assert lags(timed.union(source(p, "c").watermark("paid_at"))) == {}
    assert untimed.union(source(p, "d")).event_time is None


REFUSED = {
    "another column": (
        lambda rows: rows.key_by("k").window(MINUTE, time="paid_at"),
        "'paid_at' is not the event time of this stream, which is time='ts'; or call watermark",
    ),
    "one of two": (
        lambda rows: results(rows).key_by("k").window(MINUTE),
        "has to name its event time, which is time='window_end' or time='window_start'",
    ),
    "none is left": (
        lambda rows: rows.select("k", "v").key_by("k").window(MINUTE),
        "has to name its event time, which is in no column any more",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_lose_rows_is_refused(rows: Stream, what: str) -> None:
    build, problem = REFUSED[what]
    with pytest.raises(ConfigurationError, match=problem) as caught:
        build(rows)
    assert caught.value.code is ErrorCode.INVALID_PIPELINE
    assert "\n" not in str(caught.value)


def test_without_a_watermark_nothing_is_late_and_any_column_will_do() -> None:
    stream = source(Pipeline("p"))
    assert lags(stream.key_by("k").window(MINUTE, time="paid_at").aggregate("w", agg.count()))
