"""Aggregations in the plan: with and without late rows, and what may become idle."""

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.errors import ConfigurationError
from laminar_core.operators import agg, windows
from laminar_core.operators.late_rows import RowsBehind
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.pipeline.combined import can_become_idle
from laminar_core.plan.plan import Keyed, Plan, SideOutput
from laminar_core.plan.updates import Updates
from laminar_core.testing.memory_source import MemorySource

MINUTES = windows.tumbling("5 minutes")


def payments(*, abreast: bool = False, **options) -> tuple[Pipeline, Stream]:
    p = Pipeline("p")
    times = pa.array([0, 1], pa.timestamp("us"))
    table = pa.table({"k": ["a", "b"], "v": [1, 2], "ts": times})
    rows = p.source("in", MemorySource([table], abreast=abreast), **options)
    return p, rows.watermark("ts")


def plan(**options) -> Plan:
    p, rows = payments()
    totals = rows.key_by("k").window(MINUTES).aggregate("w", agg.count(), **options)
    totals.sink("out", CollectSink())
    if options.get("late_rows"):
        totals.side("late").sink("late", CollectSink())
    return p.plan()


def test_late_rows_take_a_second_edge() -> None:
    made = plan(late_rows=True, allowed_lateness="1 minute")
    assert made.operator_ids() == ["in", "watermark-1", "w-behind", "w-combine", "w", "out", "late"]
    parts, rows, late = made.edges
    assert (parts.feeds, rows.feeds, late.feeds) == (0, 1, 0)
    assert parts.partitioning == rows.partitioning == Keyed(("k",))
    assert (rows.side, late.side) == (SideOutput("w-behind", "behind"), SideOutput("w", "late"))
    assert rows.schema == late.schema
    [behind] = [o for v in made.vertices for o in v.operators if isinstance(o, RowsBehind)]
    assert behind == RowsBehind("w-behind", "ts", 60_000_000)


def test_a_pipeline_without_the_options_is_what_it_was() -> None:
    without = plan()
    assert without.operator_ids() == ["in", "watermark-1", "w-combine", "w", "out"]
    assert without.descriptions()["w"].keys() == {
        "kind", "keys", "window", "allowed_lateness_us", "aggregates", "inputs",
    }  # fmt: skip
    assert plan(early="1 minute").descriptions() == without.descriptions()
    assert plan(late_rows=True).descriptions() != without.descriptions()


def test_late_rows_may_have_no_taker() -> None:
    p, rows = payments()
    sessions = rows.key_by("k").session("1 minute").aggregate("s", agg.count(), late_rows=True)
    sessions.sink("out", CollectSink())
    assert len(p.plan().edges) == 2


def test_without_the_option_there_is_no_side_output() -> None:
    _, rows = payments()
    totals = rows.key_by("k").window(MINUTES).aggregate("w", agg.count())
    with pytest.raises(
        ConfigurationError, match="w has no side output 'late'; it has: none"
    ) as caught:
        totals.side("late")
    assert str(caught.value).endswith("; for late rows, aggregate with late_rows=True")


def test_windows_behind_are_as_without_late_rows() -> None:
    _, rows = payments()
    totals = rows.key_by("k").window(MINUTES).aggregate("w", agg.count(), late_rows=True)
    hours = totals.key_by("k").window(windows.tumbling("1 hour"), time="window_start")
    assert hours.aggregate("h", agg.sum("count")).schema.names[-1] == "sum_count"


@pytest.mark.parametrize("late_rows", [False, True])
def test_early_results_replace_each_other(*, late_rows: bool) -> None:
    p, rows = payments()
    totals = rows.key_by("k").window(MINUTES)
    so_far = totals.aggregate("w", agg.count(), early="1 minute", late_rows=late_rows)
    assert so_far.comes_from.updates == Updates("upsert", ("k", "window_start", "window_end"))
    so_far.changes().sink("history", ParquetSink("build/history"))
    p.plan()
    so_far.sink("out", ParquetSink("build/out"))
    with pytest.raises(ConfigurationError, match="sink out only appends, and rows of this stream"):
        p.plan()


def test_late_rows_of_rows_that_replace_others_are_refused() -> None:
    _, rows = payments()
    totals = rows.key_by("k", "ts").aggregate("running", agg.count())
    by_key = totals.key_by("k").window(MINUTES, time="ts")
    with pytest.raises(ConfigurationError, match=r"call \.changes\(\)"):
        by_key.aggregate("w", agg.count(name="rows"), late_rows=True)


@pytest.mark.parametrize("late_rows", [False, True])
def test_early_results_of_sessions_come_and_go(*, late_rows: bool) -> None:
    p, rows = payments()
    sessions = rows.key_by("k").session("1 minute")
    so_far = sessions.aggregate("s", agg.count(), early="10 seconds", late_rows=late_rows)
    assert so_far.comes_from.updates == Updates("retract", ("k", "window_start"))
    assert so_far.schema.names == ["k", "window_start", "window_end", "count", "_weight"]
    so_far.changes().sink("history", ParquetSink("build/history"))
    p.plan()
    so_far.sink("out", ParquetSink("build/out"))
    with pytest.raises(ConfigurationError, match="sink out takes no row away") as caught:
        p.plan()
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="again-combine would take a row that goes"):
        so_far.key_by("k").window(MINUTES, time="window_end").aggregate("again", agg.count())
    with pytest.raises(ConfigurationError, match="come and go already"):
        so_far.to_retract(name="twice")


def test_early_results_are_not_what_sessions_were_before() -> None:
    """Goal: a checkpoint of the one is no state of the other, and plain sessions stay as they were.

    The interval is the meaning of the watermark that the state was written with.
    """
    _, rows = payments()
    sessions = rows.key_by("k").session("1 minute")
    described = [
        sessions.aggregate("s", agg.count(), **early).comes_from.node.operator.describe()
        for early in ({}, {"early": "10 seconds"}, {"early": "1 minute"})
    ]
    assert [one.pop("early_us", None) for one in described] == [None, 10_000_000, 60_000_000]
    assert described[0] == described[1] == described[2]


@pytest.mark.parametrize(
    ("abreast", "options", "idle"),
    [(False, {}, False), (False, {"idle_timeout": "1 second"}, True), (True, {}, True)],
)
def test_rows_of_a_source_that_can_be_idle_all_travel_as_they_are(
    *, abreast: bool, options: dict, idle: bool
) -> None:
    p, rows = payments(abreast=abreast, **options)
    kept = rows.select("k", "ts")
    assert can_become_idle(kept.comes_from) == idle
    assert not can_become_idle(kept.rebalance().comes_from)
    assert not can_become_idle(kept.rebalance().select("k", "ts").comes_from)
    other = p.source("other", MemorySource([pa.table({"k": ["a"], "ts": [0]}, kept.schema)]))
    assert can_become_idle(other.union(kept).comes_from) == idle
    assert not can_become_idle(other.union(kept.rebalance()).comes_from)
