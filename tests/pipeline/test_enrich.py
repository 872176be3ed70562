"""Enrichment in a pipeline: options, event time behind it, and rows it does not take."""

from typing import Any

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators import agg, windows
from laminar_core.operators.enrich.subtask import Limits
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.enrich import enrichment
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource

TIME = pa.timestamp("us", tz="UTC")
TABLE = pa.table({"n": [1], "ts": pa.array([1], TIME)})
ADDED = pa.schema({"double": pa.int64()})


async def double(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def test_options_have_defaults_and_durations_are_words() -> None:
    made = enrichment("mine", double, {"schema": ADDED})
    assert made.limits == Limits(100, 10_000, 1, 100, 10_000)
    assert made.on_error == "fail"
    made = enrichment("mine", double, {"schema": ADDED, "timeout": "2 seconds", "on_error": "null"})
    assert made.limits.timeout_ms == 2_000
    with pytest.raises(ConfigurationError, match="soon"):
        enrichment("mine", double, {"schema": ADDED, "timeout": "soon"})


def test_event_time_goes_on_behind_it() -> None:
    p = Pipeline("p")
    rows = p.source("in", MemorySource([TABLE])).watermark("ts")
    added = rows.enrich("double", double, schema=ADDED, on_error="side")
    counted = added.key_by("n").window(windows.tumbling("1 second")).aggregate("c", agg.count())
    ledgers = [Ledger(), Ledger()]
    counted.sink("out", LedgerSink(ledgers[0]))
    added.side("failed").sink("failed", LedgerSink(ledgers[1]))
    p.plan()
    assert added.schema.names == ["n", "ts", "double"]


def test_rows_that_replace_earlier_ones_are_refused() -> None:
    rows: Any = Pipeline("p").source("in", MemorySource([TABLE]))
    totals = rows.key_by("n").aggregate("totals", agg.count())
    with pytest.raises(ConfigurationError, match=r"call \.changes\(\)"):
        totals.enrich("double", double, schema=ADDED)
