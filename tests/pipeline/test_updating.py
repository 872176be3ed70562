"""First, last and best rows and joins without bounds in the builder."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError
from laminar_core.operators import agg
from laminar_core.operators.first_rows import FirstRows
from laminar_core.operators.joins.side import JoinSide
from laminar_core.operators.joins.updating import UpdatingJoin
from laminar_core.operators.sort_keys import SortKey
from laminar_core.operators.top_rows import TopRows
from laminar_core.operators.weighted_top import WeightedTop
from laminar_core.operators.windows import tumbling
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.plan import Keyed
from laminar_core.testing.memory_source import MemorySource

TIME = pa.timestamp("us")
DAY_US = 86_400_000_000


def stream(p: Pipeline, name: str = "in", *, timed: bool = True) -> Stream:
    table = pa.table({"k": ["a"], "v": [1], "t": pa.array([0], TIME), "l": pa.array([[1]])})
    rows = p.source(name, MemorySource([table]))
    rows = rows.watermark("t") if timed else rows
    return rows if name == "lists" else rows.select("k", "v", "t")


def rows() -> Stream:
    return stream(Pipeline("p"))


def operator_of(stream: Stream) -> object:
    return stream._from.node.operator


def test_distinct_rows_are_exchanged_by_their_columns() -> None:
    p = Pipeline("p")
    found = stream(p).distinct("k", "v", name="kinds")
    assert operator_of(found) == FirstRows("kinds", ("k", "v"))
    assert found.event_time is not None
    found.sink("out", CollectSink())
    assert [edge.partitioning for edge in p.plan().edges] == [Keyed(("k", "v"))]
    everything = rows().distinct()
    assert operator_of(everything) == FirstRows("distinct-1", ("k", "v", "t"))
    bounded = operator_of(rows().distinct("k", within="1 day"))
    assert bounded == FirstRows("distinct-1", ("k",), "t", DAY_US)
    assert bounded.needs_event_time
    assert not operator_of(everything).needs_event_time


def test_the_first_and_the_last_row_of_a_key() -> None:
    first = rows().key_by("k").first("f", ttl="1 day")
    assert operator_of(first) == FirstRows("f", ("k",), "t", DAY_US, waits=True)
    assert (first.updates.mode, first.event_time.default) == ("append", "t")
    by = (SortKey("t", descending=True),)
    last = rows().key_by("k").last("l", ttl="1 day")
    assert operator_of(last) == TopRows("l", ("k",), 1, by, replaces=True, time="t", ttl_us=DAY_US)
    assert (last.updates.mode, last.updates.key, last.event_time) == ("upsert", ("k",), None)
    without_time = stream(Pipeline("p"), timed=False).key_by("k").last("l", time="v")
    assert operator_of(without_time).by == (SortKey("v", descending=True),)
    assert not operator_of(without_time).needs_event_time


def test_the_best_rows_come_and_go() -> None:
    best = rows().key_by("k").top("best", 10, by=("v desc", "t"))
    by = (SortKey("v", descending=True), SortKey("t"))
    assert operator_of(best) == TopRows("best", ("k",), 10, by)
    assert best.schema.names == ["k", "v", "t", "_weight"]
    assert (best.updates.mode, best.updates.key, best.event_time) == ("retract", (), None)
    ranked = rows().key_by("k").top("best", 10, by="v desc", rank="place", ttl="1 day")
    assert operator_of(ranked).time == "t"
    assert ranked.updates.key == ()
    assert rows().key_by("k").top("b", 2, by="v", rank="n").updates.key == ("k", "n")
    assert rows().key_by("k").top("b", 1, by="v").updates.key == ("k",)


def test_the_best_of_rows_that_come_and_go_are_ranked_again() -> None:
    totals = rows().key_by("k", "v").aggregate("totals", agg.count(name="n"), emit="retract")
    best = totals.key_by("k").top("best", 10, by=("n desc", "v"), rank="place")
    by = (SortKey("n", descending=True), SortKey("v"))
    assert operator_of(best) == WeightedTop("best", ("k",), 10, by, "place")
    assert best.schema.names == ["k", "v", "n", "place", "_weight"]
    assert (best.updates.mode, best.updates.key) == ("retract", ("k", "place"))
    again = best.key_by("v").top("again", 1, by="n")
    assert (operator_of(again).keys, again.updates.key) == (("v",), ("v",))
    timed = rows().key_by("k").top("b", 9, by="v").watermark("t").key_by("v")
    bounded = operator_of(timed.top("recent", 2, by="t desc", ttl="1 day"))
    assert (bounded.time, bounded.ttl_us, bounded.needs_event_time) == ("t", DAY_US, True)


def test_a_join_with_a_time_to_live_and_one_without() -> None:
    p = Pipeline("p")
    left, right = stream(p), stream(p, "other")
    joined = left.join(right, on="k", ttl="1 day", how="full", name="j")
    sides = (JoinSide("left", ("k",), "t"), JoinSide("right", ("k",), "t"))
    assert operator_of(joined) == UpdatingJoin("j", *sides, how="full", ttl_us=DAY_US)
    assert joined.schema.names == ["k", "v", "t", "v_right", "t_right", "_weight"]
    assert (joined.updates.mode, joined.event_time) == ("retract", None)
    joined.sink("out", CollectSink())
    assert [edge.partitioning for edge in p.plan().edges] == [Keyed(("k",)), Keyed(("k",))]


def test_rows_that_come_and_go_can_be_joined_and_need_no_time_if_they_are_kept() -> None:
    p = Pipeline("p")
    best = stream(p).key_by("k").top("best", 2, by="v")
    other = stream(p, "other", timed=False)
    joined = best.join(other, on={"k": "k"}, unbounded=True, how="semi", name="j")
    sides = (JoinSide("left", ("k",), ""), JoinSide("right", ("k",), ""))
    assert operator_of(joined) == UpdatingJoin("j", *sides, how="semi", weighted=(True, False))
    assert joined.schema.names == ["k", "v", "t", "_weight"]


WITHIN = ("0 seconds", "1 second")


@pytest.mark.parametrize(
    ("describe", "problem"),
    [
        (lambda a, _: a.distinct("y"), "no column 'y'"),
        (lambda a, _: a.distinct("k", time="t", name="d"), "d has a time and keeps its keys for"),
        (lambda a, _: a.distinct("k", within="0 days"), "must be positive"),
        (lambda _, b: b.distinct("k", within="1 day"), "has no event time: call watermark"),
        (lambda _, b: b.key_by("k").first("f"), "the input of f has no event time"),
        (lambda _, b: b.key_by("k").last("l"), "the input of l has no event time"),
        (lambda a, _: a.key_by("k").last("l", time="v", ttl="1 day"), "event time t, and not 'v'"),
        (lambda a, _: a.key_by("k").top("b", 0, by="v"), "1 to 10,000 rows per key"),
        (lambda a, _: a.key_by("k").top("b", 2, by="x desc"), "no column 'x'"),
        (lambda a, _: a.key_by("k").top("b", 2, by=()), "needs a column to order by"),
        (lambda _, b: b.key_by("k").top("b", 2, by="v", ttl="1 day"), "has no event time"),
        (
            lambda a, _: (
                a.key_by("k").top("b", 2, by="v").key_by("v").top("c", 1, by="t", ttl="1s")
            ),
            "the input of c has no event time: call watermark",
        ),
        (
            lambda a, _: a.key_by("k").last("l").key_by("v").top("c", 1, by="t"),
            "replaces an earlier one for another row: call .to_retract() on it",
        ),
        (lambda a, b: a.join(b, on="k", ttl="1 day", name="j"), "the right input of j has no"),
        (lambda a, _: a.join(a, on="k"), "needs within=(low, high), window=... or ttl=..."),
        (lambda a, b: a.join(b, on="k", within=WITHIN, ttl="1 day"), "ttl and unbounded, not sev"),
        (lambda a, b: a.join(b, on="k", unbounded=True, ttl="1 day"), "one of within, window"),
        (lambda a, b: a.join(b, on="k", window=tumbling("1s"), unbounded=True), "not several"),
        (lambda a, b: a.join(b, on="k", unbounded=True, how="outer"), "how is inner, left"),
        (
            lambda a, _: a.key_by("k").top("b", 2, by="v").distinct("k", name="d"),
            "d would take a row that goes for one that comes",
        ),
        (
            lambda a, _: a.key_by("k").last("l").key_by("v").first("g", time="t"),
            "the input of g has no event time",
        ),
        (
            lambda a, b: a.key_by("k").last("l").join(b, on="k", unbounded=True, name="j"),
            "j would take a row that replaces an earlier one",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    describe: Callable[[Stream, Stream], Stream], problem: str
) -> None:
    p = Pipeline("p")
    with pytest.raises(ConfigurationError) as caught:
        describe(stream(p), stream(p, "other", timed=False))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_can_be_passed_on_and_not_be_taken_back() -> None:
    lists = stream(Pipeline("p"), "lists")
    assert lists.distinct("k").schema.names == ["k", "v", "t", "l"]
    with pytest.raises(ConfigurationError, match="'l' is list"):
        lists.key_by("k").top("best", 2, by="v")
