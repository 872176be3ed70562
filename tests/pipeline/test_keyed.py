"""Keyed streams: with windows and without."""

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg, windows
from laminar_core.operators.base import SubtaskContext
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.plan import Keyed
from laminar_core.protocol.types import Generation
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


def test_sessions_are_combined_before_the_exchange_and_take_every_aggregate() -> None:
    p, stream = rows()
    sessions = stream.watermark("ts").key_by("k").session("10 minutes")
    visits = sessions.aggregate(
        "visits", agg.last("v", by="ts"), agg.percentile("v", 0.9), allowed_lateness="1 minute"
    )
    assert visits.schema.names == ["k", "window_start", "window_end", "last_v", "percentile_v"]
    visits.sink("out", CollectSink())
    plan = p.plan()
    assert plan.operator_ids() == ["in", "watermark-1", "visits-combine", "visits", "out"]
    merging = plan.descriptions()["visits"]
    assert (merging["gap_us"], merging["allowed_lateness_us"]) == (600_000_000, 60_000_000)


def test_behind_sessions_their_end_is_event_time_and_their_start_is_not() -> None:
    _, stream = rows()
    visits = stream.watermark("ts").key_by("k").session("1 minute").aggregate("v", agg.count())
    again = visits.key_by("k").window(windows.tumbling("1 hour"), time="window_end")
    assert again.aggregate("w", agg.sum("count")).schema.names[-1] == "sum_count"
    with pytest.raises(ConfigurationError, match="'window_start' is not the event time"):
        visits.key_by("k").session("1 hour", time="window_start")


def test_sessions_need_event_time_and_a_gap() -> None:
    _, stream = rows()
    with pytest.raises(ConfigurationError, match="windows need event time"):
        stream.key_by("k").session("1 minute")
    with pytest.raises(ConfigurationError, match="duration"):
        stream.watermark("ts").key_by("k").session("0 minutes")


def test_an_aggregation_of_nothing_is_refused() -> None:
    _, stream = rows()
    with pytest.raises(ConfigurationError, match="totals aggregates nothing") as caught:
        stream.key_by("k").aggregate("totals")
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_users_aggregates_travel_to_the_workers_and_stay_what_they_are() -> None:
    class Longest:
        """Local to this test, so that workers cannot import it."""

        name, state_type, result_type = "longest", pa.string(), pa.string()

        def init(self) -> str:
            return ""

        def accumulate(self, state: str, values: pa.Array) -> str:
            return max(state, *values.drop_null().to_pylist(), key=len)

        def merge(self, left: str, right: str) -> str:
            return max(left, right, key=len)

        def finish(self, state: str) -> str:
            return state

    p, stream = rows()
    stream.key_by("v").aggregate("words", agg.user(Longest(), "k")).sink("out", CollectSink())
    plan = p.plan()
    arrived = cloudpickle.loads(cloudpickle.dumps(plan))
    assert arrived.descriptions() == plan.descriptions()
    [combine, merge, *_] = [operator for v in arrived.vertices for operator in v.operators]
    context = SubtaskContext("words", 0, 1, 128, Generation(1))
    batch = pa.record_batch({"k": ["aa", "b"], "v": [1, 1]})
    [combined] = combine.open(context, batch.schema).process(batch)
    [result] = merge.open(context, combined.schema).process(combined)
    assert result.to_pylist() == [{"v": 1, "longest": "aa"}]
