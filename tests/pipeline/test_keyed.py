"""Keyed streams: with windows and without."""

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.runtime.plan import Keyed
from laminar_core.testing.memory_source import MemorySource


def rows() -> tuple[Pipeline, Stream]:
    p = Pipeline("p")
    times = pa.array([0, 1], pa.timestamp("us"))
    table = pa.table({"k": ["a", "b"], "v": [1, 2], "ts": times})
    return p, p.source("in", MemorySource([table]))


def test_running_totals_are_combined_before_the_exchange() -> None:
    p, stream = rows()
    totals = stream.key_by("k").aggregate("totals", agg.sum("v"), agg.stddev_samp("v"))
    assert totals.schema.names == ["k", "sum_v", "stddev_samp_v"]
    totals.sink("out", CollectSink())
    plan = p.plan()
    [edge] = plan.edges
    assert edge.partitioning == Keyed(("k",))
    assert [v.vertex_id for v in plan.vertices] == ["in", "totals"]
    assert plan.operator_ids() == ["in", "totals-combine", "totals", "out"]


def test_windows_take_every_aggregate() -> None:
    _, stream = rows()
    window = stream.watermark("ts").key_by("k").window(windows.tumbling("1 minute"))
    results = window.aggregate("w", agg.first("v", by="ts"), agg.approx_percentile("v", 0.9))
    assert results.schema.names == [
        "k", "window_start", "window_end", "first_v", "approx_percentile_v",
    ]  # fmt: skip


def test_windows_need_event_time() -> None:
    _, stream = rows()
    with pytest.raises(ConfigurationError, match="windows need event time"):
        stream.key_by("k").window(windows.tumbling("1 minute"))


def test_an_aggregation_of_nothing_is_refused() -> None:
    _, stream = rows()
    with pytest.raises(ConfigurationError, match="totals aggregates nothing") as caught:
        stream.key_by("k").aggregate("totals")
    assert caught.value.code is ErrorCode.INVALID_PIPELINE
