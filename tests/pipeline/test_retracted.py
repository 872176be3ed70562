"""Rows that replace each other as rows that come and go, in the builder."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError
from laminar_core.operators import agg, windows
from laminar_core.operators.retract_rows import RetractRows
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.pipeline.retracted import KEPT_AFTER_WINDOW_US
from laminar_core.plan.plan import Keyed
from laminar_core.plan.updates import Updates
from laminar_core.testing.memory_source import MemorySource

DAY_US = 86_400_000_000


def rows(p: Pipeline, name: str = "in") -> Stream:
    table = pa.table({"k": ["a"], "v": [1], "t": pa.array([0], pa.timestamp("us"))})
    return p.source(name, MemorySource([table])).watermark("t", name=f"{name}-time")


def totals(p: Pipeline, name: str = "n") -> Stream:
    return rows(p, f"{name}-in").key_by("k").aggregate(name, agg.count(), agg.max("t", name="t"))


def early(stream: Stream) -> Stream:
    window = stream.key_by("k").window(windows.tumbling("1 minute"))
    return window.aggregate("w", agg.count(), early="1 second")


def operator_of(stream: Stream) -> object:
    return stream._from.node.operator


def test_totals_are_kept_by_their_key_for_ever() -> None:
    p = Pipeline("p")
    found = totals(p).to_retract()
    assert operator_of(found) == RetractRows("to-retract-1", ("k",))
    assert (found.updates, found.schema.names) == (
        Updates("retract", ("k",)),
        ["k", "count", "t", "_weight"],
    )
    found.sink("out", CollectSink())
    assert [edge.partitioning for edge in p.plan().edges] == [Keyed(("k",))] * 2


def test_results_of_windows_are_kept_until_they_are_over() -> None:
    found = early(rows(Pipeline("p"))).to_retract(name="back")
    keys = ("k", "window_start", "window_end")
    assert operator_of(found) == RetractRows("back", keys, "window_end", KEPT_AFTER_WINDOW_US)
    assert found.updates == Updates("retract", keys)
    assert {*found.event_time.lags_us} == {"window_start", "window_end"}


def test_a_time_to_live_lets_rows_be_so_late() -> None:
    last = rows(Pipeline("p")).key_by("k").last("l").select("t", "k", "v").watermark("t")
    found = last.to_retract(ttl="1 day")
    assert operator_of(found) == RetractRows("to-retract-1", ("k",), "t", DAY_US, DAY_US)
    assert found.updates == Updates("retract", ())
    assert not found.event_time.lags_us


def test_what_is_taken_back_can_be_aggregated_and_joined() -> None:
    p = Pipeline("p")
    last = rows(p).key_by("k").last("l").to_retract()
    counts = last.key_by("v").aggregate("c", agg.count())
    assert counts.updates == Updates("retract", ("v",))
    joined = last.join(rows(p, "other"), on="k", unbounded=True, name="j")
    assert joined.updates.mode == "retract"


def joined(stream: Stream, p: Pipeline) -> Stream:
    return stream.join(rows(p), on="k", unbounded=True, name="j")


@pytest.mark.parametrize(
    ("describe", "problem"),
    [
        (lambda p: rows(p).to_retract(), "rows of its input replace no others: leave it out"),
        (lambda p: totals(p).changes().to_retract(), "replace no others"),
        (lambda p: totals(p).to_retract().to_retract(), "rows of its input come and go already"),
        (lambda p: totals(p).select("t").to_retract(), "keep the columns of the key"),
        (lambda p: totals(p).filter(pc.field("count") > 1).to_retract(), "before .filter()"),
        (lambda p: totals(p).rebalance().select("k", "count").to_retract(), "needs every row that"),
        (lambda p: totals(p, "a").union(totals(p, "b")).to_retract(), "in its order"),
        (lambda p: totals(p).select("k").to_retract(), "no column besides its keys"),
        (lambda p: totals(p).to_retract(ttl="1 day"), "the input of to-retract-1 has no event ti"),
        (lambda p: totals(p).to_retract(time="t"), "has a time and keeps its keys for ever"),
        (lambda p: joined(totals(p), p), "call .to_retract() on it to take the earlier row back"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    describe: Callable[[Pipeline], Stream], problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        describe(Pipeline("p"))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
