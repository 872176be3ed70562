"""A plan in words: chains, exchanges, state, event time, updates and sinks."""

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.connectors import CollectSink
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.testing import MemorySource

AT = pa.timestamp("us", "UTC")
PAYMENTS = pa.table(
    {
        "at": pa.array([], AT),
        "merchant": pa.array([], pa.string()),
        "cents": pa.array([], pa.int64()),
    }
)


def explained(pipeline: Pipeline, capsys) -> list[str]:
    pipeline.explain()
    return capsys.readouterr().out.splitlines()


def test_a_window_shows_its_exchange_its_state_and_its_event_time(capsys):
    p = Pipeline("payments")
    rows = p.source("payments", MemorySource([PAYMENTS]), rows_per_second=5)
    hourly = rows.watermark("at", max_delay="1 minute").key_by("merchant")
    totals = hourly.window(windows.tumbling("1 hour")).aggregate("totals", agg.sum("cents"))
    totals.sink("out", CollectSink())
    assert explained(p, capsys) == [
        "pipeline payments: 2 chains, each with one subtask on every worker; at most 128 workers",
        "",
        "payments",
        (
            "  source payments: memory, row counts 0, splits are read one after the other, "
            "5 rows per s"
        ),
        "  operator watermark-1: watermark, column at, max delay 60 s; event time begins here",
        (
            "  operator totals-combine: partial-aggregate, keys merchant, time column at, "
            "window tumbling; waits for event time"
        ),
        "  output: to totals",
        (
            "  rows: merchant string, window_start timestamp[us, tz=UTC], "
            "count(*) int64, sum(cents) int64"
        ),
        "",
        "totals",
        "  input: payments, keyed by merchant, between workers",
        "  operator totals: window-aggregate, keys merchant, window tumbling; waits for event time",
        (
            "    state: key_group int32, merchant string, window_start timestamp[us, tz=UTC], "
            "count(*) int64, sum(cents) int64"
        ),
        "  sink out: collect, rows are appended",
    ]


def test_rows_that_replace_others_or_go_again_are_named(capsys):
    p = Pipeline("updates")
    rows = p.source("payments", MemorySource([PAYMENTS]))
    rows.key_by("merchant").aggregate("count", agg.count()).changes().sink("out", CollectSink())
    rows.join(rows, on="merchant", unbounded=True).changes().sink("pairs", CollectSink())
    text = "\n".join(explained(p, capsys))
    assert "running-aggregate, keys merchant; rows replace earlier ones of merchant" in text
    assert "  operator join-1: " in text
    assert "; rows come and go" in text
    assert "  input: payments, keyed by merchant, between workers, as input 1" in text


def test_loops_and_side_outputs_are_named(capsys):
    p = Pipeline("loops")
    rows = p.source("in", MemorySource([PAYMENTS]), on_bad_row="letters")
    rows.side("letters").sink("bad", CollectSink())
    body = lambda s: (s.filter(pc.field("cents") < 0), s.filter(pc.field("cents") >= 0))  # noqa: E731
    p.iterate(rows, body, name="again").sink("out", CollectSink())
    lines = explained(p, capsys)
    assert "  input: letters of in, forward" in lines
    assert any(line.endswith("back into the loop") for line in lines)


def test_a_plan_is_explained_without_reading_anything_but_schemas(capsys):
    p = Pipeline("one")
    p.source("in", MemorySource([PAYMENTS])).sink("out", CollectSink())
    first = explained(p, capsys)[0]
    assert first.startswith("pipeline one: 1 chain,")
