"""Keyed streams: with windows and without."""

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import ValueState, agg, windows
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


def test_what_is_no_window_is_refused() -> None:
    _, stream = rows()
    with pytest.raises(ConfigurationError, match="'1 minute' is no window: make one") as caught:
        stream.watermark("ts").key_by("k").window("1 minute")  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_OPTION


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


def count(rows, keys, state, timers):
    del rows, timers
    counts = state["n"].get(keys).fill_null(0).to_numpy() + np.bincount(keys.of_row)
    state["n"].put(keys, counts)
    return pa.record_batch([keys.column("k"), pa.array(counts)], names=["k", "n"])


COUNTED = pa.schema([("k", pa.string()), ("n", pa.int64())])


class Alarm:
    state = {"n": ValueState(pa.int64(), ttl="1 hour")}  # noqa: RUF012 - as users write it
    schema = COUNTED

    def process(self, rows, keys, state, timers):
        del rows, state
        timers.set(keys, keys.times_us)

    def on_timer(self, due, keys, state, timers):
        del due, keys, state, timers


def test_a_function_is_a_process_with_the_schema_and_state_given() -> None:
    p, stream = rows()
    counted = stream.key_by("k").process(
        "c", count, schema=COUNTED, state={"n": ValueState(pa.int64())}
    )
    assert counted.schema == COUNTED
    counted.sink("out", CollectSink())
    plan = p.plan()
    [edge] = plan.edges
    assert edge.partitioning == Keyed(("k",))
    assert cloudpickle.loads(cloudpickle.dumps(plan)).descriptions() == plan.descriptions()


def test_a_process_takes_the_watermarks_column_and_late_rows_are_a_side_output() -> None:
    _, stream = rows()
    alarms = stream.watermark("ts").key_by("k").process("alarm", Alarm())
    assert alarms.side("late").schema == stream.schema
    assert alarms.event_time is None
    assert stream.key_by("k").process("by-hand", Alarm(), time="ts").schema == COUNTED


@pytest.mark.parametrize(
    ("process", "given", "problem"),
    [
        (Alarm(), {}, "need event time: call watermark"),
        (Alarm(), {"time": "ts", "schema": COUNTED}, "declares its schema, state and sides itself"),
        (Alarm, {"time": "ts"}, "is a class: pass an instance of it"),
        (count, {}, "is a function: pass the schema of what it emits"),
    ],
)
def test_a_process_that_is_not_whole_is_refused(process, given, problem: str) -> None:
    _, stream = rows()
    with pytest.raises(ConfigurationError, match=problem):
        stream.key_by("k").process("p", process, **given)
