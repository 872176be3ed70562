"""An operator that waits for watermarks is refused where none can come."""

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg, windows
from laminar_core.operators.first_rows import FirstRows
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.plan import Keyed
from laminar_core.testing.memory_source import MemorySource
from tests.plan.plans import SOURCE

MINUTE = windows.tumbling("1 minute")


def rows(pipeline: Pipeline, name: str = "in") -> Stream:
    return pipeline.source(name, SOURCE)


def counted(stream: Stream) -> None:
    window = stream.key_by("key").window(MINUTE, time="at")
    window.aggregate("n", agg.count()).sink("out", CollectSink())


def refusal(pipeline: Pipeline) -> str:
    with pytest.raises(ConfigurationError) as caught:
        pipeline.plan()
    assert caught.value.code is ErrorCode.INVALID_PIPELINE
    return str(caught.value)


def test_a_window_behind_a_watermark_is_planned() -> None:
    p = Pipeline("p")
    counted(rows(p).watermark("at").rebalance().select("key", "at"))
    assert len(p.plan().vertices) == 3


def test_a_window_without_a_watermark_is_refused_with_the_source() -> None:
    p = Pipeline("p")
    counted(rows(p).select("key", "at"))
    assert refusal(p) == (
        "n-combine needs event time, and rows of in come to it without a watermark: "
        "call watermark(column) in between"
    )


def test_every_input_of_a_union_needs_a_watermark() -> None:
    """Event time is the minimum of all inputs: one without holds the others up for ever."""
    p = Pipeline("p")
    counted(rows(p).watermark("at").union(rows(p, "second")))
    assert "n-combine needs event time, and rows of second come" in refusal(p)


def test_a_watermark_behind_the_union_is_enough() -> None:
    p = Pipeline("p")
    counted(rows(p).union(rows(p, "second")).watermark("at"))
    assert p.plan()


def test_no_watermark_leaves_a_loop() -> None:
    p = Pipeline("p")
    counted(rows(p).watermark("at").iterate(lambda again: (again, again), name="retry"))
    assert "rows of loop retry come to it without a watermark" in refusal(p)


def test_a_window_behind_windows_is_planned() -> None:
    p = Pipeline("p")
    first = rows(p).watermark("at").key_by("key").window(MINUTE).aggregate("a", agg.count())
    second = first.key_by("key").window(windows.tumbling("1 hour"), time="window_end")
    second.aggregate("b", agg.sum("count")).sink("out", CollectSink())
    assert p.plan()


def beside_a_watermark(name: str) -> Pipeline:
    """A reader of rows that are read side by side, in front of the watermark of another one."""
    p = Pipeline("p")
    table = pa.table({"key": [1], "at": pa.array([0], pa.timestamp("us"))})
    before = p.source("in", MemorySource([table], abreast=True))
    if name == "window":
        counted(before)
    elif name == "operator":
        kept = FirstRows("f", ("key",), "at", None, waits=True, lag_us=0)
        before.then(kept, Keyed(("key",))).sink("first", CollectSink())
    behind = before.watermark("at")
    if name != "nothing behind":
        behind.sink("other", CollectSink())
    else:
        before.sink("other", CollectSink())
    return p


@pytest.mark.parametrize(("name", "operator"), [("window", "n-combine"), ("operator", "f")])
def test_a_watermark_counts_only_behind_the_place_where_it_was_written(
    name: str, operator: str
) -> None:
    refused = f"{operator} needs event time, and rows of in come to it without a watermark"
    assert refused in refusal(beside_a_watermark(name))


def test_a_watermark_that_nothing_reads_is_refused_although_the_source_is_read() -> None:
    assert "nothing consumes" in refusal(beside_a_watermark("nothing behind"))
