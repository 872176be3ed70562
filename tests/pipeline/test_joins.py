"""Joins in the builder: keys and event times are found, and what does not fit is one line."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError
from laminar_core.operators import agg, windows
from laminar_core.operators.joins.forward import ForwardAsOfJoin
from laminar_core.operators.joins.interval import IntervalJoin
from laminar_core.operators.joins.kinds import How
from laminar_core.operators.joins.side import JoinSide
from laminar_core.operators.joins.window import WindowJoin
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.plan import Keyed
from laminar_core.testing.memory_source import MemorySource

TIME = pa.timestamp("us")


def streams() -> tuple[Pipeline, Stream, Stream]:
    p = Pipeline("p")
    left = pa.table({"id": ["a"], "ts": pa.array([0], TIME), "v": [1]})
    right = pa.table({"seller": ["a"], "ts": pa.array([0], TIME), "at": pa.array([0], TIME)})
    return (
        p,
        p.source("left", MemorySource([left])).watermark("ts"),
        p.source("right", MemorySource([right])).watermark("at"),
    )


def operator_of(stream: Stream) -> Any:
    return stream._from.node.operator


def test_both_streams_are_exchanged_by_their_keys() -> None:
    p, left, right = streams()
    pairs = left.join(right, on={"id": "seller"}, within=("-5 seconds", "1 minute"), name="pairs")
    assert pairs.schema.names == ["id", "ts", "v", "seller", "ts_right", "at"]
    sides = (JoinSide("left", ("id",), "ts"), JoinSide("right", ("seller",), "at"))
    assert operator_of(pairs) == IntervalJoin("pairs", *sides, -5_000_000, 60_000_000)
    pairs.sink("out", CollectSink())
    plan = p.plan()
    assert [edge.partitioning for edge in plan.edges] == [Keyed(("id",)), Keyed(("seller",))]
    assert [edge.feeds for edge in plan.edges] == [0, 1]
    assert plan.vertices[-1].vertex_id == "pairs"


def counts(
    stream: Stream,
    key: str,
    window: windows.Window | None = None,
    early: str | None = None,
) -> Stream:
    """Count the rows of each window."""
    window = window or windows.tumbling("1 minute")
    name = f"counts-{key}-{window.size_us}"
    return stream.key_by(key).window(window).aggregate(name, agg.count(), early=early)


@pytest.mark.parametrize("how", ["inner", "full", "semi"])
def test_results_of_equal_windows_are_joined_by_their_window(how: How) -> None:
    p, left, right = streams()
    mine = counts(left, "id", windows.sliding("1 minute", "1 minute"))
    rows = mine.join(counts(right, "seller"), on=ON, equal_windows=True, how=how, name="both")
    found = operator_of(rows)
    assert [found.left.keys, found.right.keys] == [
        ("id", "window_start", "window_end"),
        ("seller", "window_start", "window_end"),
    ]
    assert (found.left.time, found.low_us, found.high_us, found.how) == ("window_end", 0, 0, how)
    names = ["id", "window_start", "window_end", "count"]
    assert rows.schema.names == names + ([] if how == "semi" else ["seller", "count_right"])
    assert dict(rows.event_time.lags_us) == {"window_end": 0, "window_start": 60_000_000}
    again = counts(left, "v").select("v", "window_end", "window_start")
    rows.join(again, on={"count": "v"}, equal_windows=True).sink("again", CollectSink())
    rows.sink("out", CollectSink())
    partitionings = [edge.partitioning for edge in p.plan().edges]
    assert Keyed(("id", "window_start", "window_end")) in partitionings


def test_an_as_of_join_has_a_distance_and_unnamed_ones_are_counted() -> None:
    _, left, right = streams()
    on = {"id": "seller"}
    first, second = left.as_of(right, on=on), left.as_of(right, on=on, max_distance="1 hour")
    assert operator_of(first).operator_id == "as-of-1"
    assert operator_of(first).distance_us is None
    assert operator_of(second).operator_id == "as-of-2"
    assert operator_of(second).distance_us == 3_600_000_000


def test_event_time_behind_a_join_is_the_time_of_the_sides_that_are_in_every_row() -> None:
    _, left, right = streams()
    options = {"on": {"id": "seller"}, "within": ("0 seconds", "1 second")}
    known = {
        how: left.join(right, **options, how=how).event_time
        for how in ("inner", "left", "right", "full")
    }
    assert {how: dict(time.lags_us) for how, time in known.items()} == {
        "inner": {"ts": 0, "at": 0},
        "left": {"ts": 0},
        "right": {"at": 0},
        "full": {},
    }
    assert [time.default for time in known.values()] == ["ts", "ts", "at", ""]
    assert dict(left.as_of(right, on={"id": "seller"}).event_time.lags_us) == {"ts": 0}
    counts = left.join(right, **options).key_by("id").window(windows.tumbling("1 minute"))
    assert counts.aggregate("counts", agg.count()).schema.names[0] == "id"


def test_a_side_behind_windows_lags_as_far_as_they_do() -> None:
    _, left, right = streams()
    counts = left.key_by("id").window(windows.tumbling("1 minute")).aggregate("n", agg.count())
    on = {"id": "seller"}
    joined = counts.as_of(right, on=on, time=("window_start", "at"))
    assert operator_of(joined).lag_us == 60_000_000
    assert operator_of(counts.as_of(right, on=on, time=("window_end", "at"))).lag_us == 0


def test_a_window_join_has_the_time_of_its_windows_and_of_rows_which_lag() -> None:
    _, left, right = streams()
    window = windows.tumbling("1 minute")
    pairs = left.join(right, on={"id": "seller"}, window=window, name="pairs")
    sides = (JoinSide("left", ("id",), "ts"), JoinSide("right", ("seller",), "at"))
    assert operator_of(pairs) == WindowJoin("pairs", *sides, window)
    assert pairs.schema.names[-2:] == ["window_start", "window_end"]
    lag_us = 60_000_000
    assert dict(pairs.event_time.lags_us) == {
        "window_end": 0,
        "window_start": lag_us,
        "ts": lag_us,
        "at": lag_us,
    }
    alone = left.join(right, on={"id": "seller"}, window=window, how="anti")
    assert list(alone.event_time.lags_us) == ["window_end", "window_start", "ts"]
    counts = pairs.key_by("id").window(windows.tumbling("1 hour"), time="window_end")
    assert counts.aggregate("counts", agg.count()).schema.names[0] == "id"


def test_the_upper_bound_can_be_a_column_and_then_the_right_time_is_event_time() -> None:
    _, left, right = streams()
    closing = left.map(lambda rows: rows.append_column("until", rows.column("ts")))
    options = {"on": {"id": "seller"}, "within": ("0 seconds", "until")}
    pairs = closing.join(right, **options)
    assert operator_of(pairs).left == JoinSide("left", ("id",), "ts", until="until")
    assert operator_of(pairs).high_us is None
    assert dict(pairs.event_time.lags_us) == {"at": 0}
    assert dict(closing.join(right, **options, how="semi").event_time.lags_us) == {"ts": 0}


def test_a_forward_as_of_join_is_an_operator_of_its_own() -> None:
    _, left, right = streams()
    rows = left.as_of(right, on={"id": "seller"}, direction="forward", max_distance="1 hour")
    assert isinstance(operator_of(rows), ForwardAsOfJoin)
    assert operator_of(rows).distance_us == 3_600_000_000
    assert dict(rows.event_time.lags_us) == {"ts": 0}


WITHIN = ("0 seconds", "1 second")
ON = {"id": "seller"}


@pytest.mark.parametrize(
    ("describe", "problem"),
    [
        (lambda a, b: a.join(b, on="id", within=WITHIN), "no column 'id'; there are: seller"),
        (lambda a, b: a.join(b, on=(), within=WITHIN), "key_by needs at least one column"),
        (lambda a, b: a.join(b, on=ON, within=("2s", "1s")), "exchange them"),
        (lambda a, b: a.join(b, on=ON, within=("0", "1s")), "has no unit"),
        (lambda a, b: a.join(b, on=ON, within=WITHIN, how="outer"), "how is inner, left"),
        (
            lambda a, b: a.join(b, on=ON, within=("0s", "until"), name="j"),
            "j: the upper bound is no column of the left input, and",
        ),
        (
            lambda a, b: a.join(b, on=ON, within=("0s", "id")),
            "event time must be a timestamp or int64 microseconds, and 'id' is string",
        ),
        (lambda a, b: a.join(b, on=ON, name="j"), "j: a join needs within=(low, high), window"),
        (
            lambda a, b: a.join(b, on=ON, within=WITHIN, window=windows.tumbling("1s")),
            "one of within, window, equal_windows, ttl and unbounded, not several",
        ),
        (lambda a, b: a.as_of(b, on=ON, direction="nearest"), "direction is backward or forward"),
        (
            lambda a, b: a.as_of(b, on=ON, direction="forward", name="j"),
            "j: direction='forward' needs a max_distance",
        ),
        (lambda a, b: a.as_of(b, on=ON, max_distance="0s"), "must be positive"),
        (lambda a, b: a.as_of(b, on={"v": "seller"}), "'v' is int64 on the left and 'seller'"),
        (
            lambda a, b: a.join(b, on=ON, within=WITHIN, time="ts", name="j"),
            "the right input of j has the event time at, and not 'ts'",
        ),
        (
            lambda a, b: a.as_of(b.map(lambda rows: rows.drop_columns(["at"])), on=ON, name="j"),
            "the right input of j has no event time: call watermark",
        ),
        (
            lambda a, b: (
                a.key_by("id")
                .window(windows.tumbling("1 minute"))
                .aggregate("n", agg.count())
                .as_of(b, on=ON, name="j")
            ),
            "the left input of j has several event times: choose one of window_end, window_start",
        ),
        (lambda a, _: a.as_of(streams()[2], on=ON), "streams of one pipeline"),
        (
            lambda a, b: counts(a, "id").join(b, on=ON, equal_windows=True, name="j"),
            "the right input of j has no results of windows, or not their window_start",
        ),
        (
            lambda a, b: (
                counts(a, "id")
                .select("id", "window_end", "count")
                .join(counts(b, "seller"), on=ON, equal_windows=True, name="j")
            ),
            "the left input of j has no results of windows",
        ),
        (
            lambda a, b: counts(a, "id").join(
                counts(b, "seller", windows.sliding("5 minutes", "1 minute", offset="5 s")),
                on=ON,
                equal_windows=True,
                name="j",
            ),
            "tumbling windows of 60 s on the left and sliding windows of 300 s every 60 s, from 5",
        ),
        (
            lambda a, b: counts(a, "id").join(
                counts(b, "seller"), on=ON, equal_windows=True, time="window_end", name="j"
            ),
            "j: the event time of results of windows is window_end: leave time out",
        ),
        (
            lambda a, b: counts(a, "id", early="5 s").join(
                counts(b, "seller"), on=ON, equal_windows=True, name="j"
            ),
            "j would take a row that replaces an earlier one",
        ),
        (
            lambda a, _: (
                counts(a, "id")
                .union(counts(a, "id", windows.tumbling("2 minutes")))
                .join(counts(a, "id"), on="id", equal_windows=True, name="j")
            ),
            "the left input of j has no results of windows, or not their window_start",
        ),
        *(
            (lambda a, b, of=of: a.join(b, **{"on": ON, "ttl": "1 h", "name": "j", **of}), problem)
            for of, problem in (
                ({"on": None}, "on is a column, several, or a mapping"),
                ({"on": [5]}, "or a mapping from the left ones to the right ones, not [5]"),
                (
                    {"time": ("ts",)},
                    "j: time is a column of both, or two, one of each, not",
                ),
                ({"ttl": 5}, "5 is not a duration: write a text"),
                ({"ttl": None, "within": "5s"}, '("0 seconds", "1 hour"), not \'5s\''),
                ({"ttl": None, "within": 5}, "j: within is two durations, as in"),
                ({"ttl": None, "within": ("1 s",)}, "not ('1 s',)"),
                ({"ttl": None, "within": (0, 5)}, "0 is not a duration: write a text"),
                ({"ttl": None, "window": "1 minute"}, "'1 minute' is no window: make one"),
            )
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    describe: Callable[[Stream, Stream], Stream], problem: str
) -> None:
    _, left, right = streams()
    with pytest.raises(ConfigurationError) as caught:
        describe(left, right)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_late_rows_of_each_side_are_a_side_output() -> None:
    p, left, right = streams()
    joined = left.join(right, on={"id": "seller"}, within=("0 seconds", "5 seconds"), time=None)
    joined.sink("out", CollectSink())
    before = p.plan().descriptions()
    late = joined.side("late_left")
    assert late.schema.names == ["id", "ts", "v"]
    assert joined.side("late_right").schema.names == ["seller", "ts", "at"]
    late.sink("late", CollectSink())
    after = p.plan().descriptions()
    assert {name: after[name] for name in before} == before
