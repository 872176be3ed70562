"""Two keyed streams and a process function: keys and times of each, and what is refused."""

from typing import Any

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError
from laminar_core.operators import ValueState
from laminar_core.operators.process.connected import ProcessConnected
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.plan import Keyed
from laminar_core.testing.memory_source import MemorySource

OUT = pa.schema([("k", pa.string()), ("v", pa.int64())])
TIMES = pa.array([0, 1], pa.timestamp("us"))


class Meet:
    state = {"v": ValueState(pa.int64())}  # noqa: RUF012
    schema = OUT

    def process_left(self, rows, keys, state, timers): ...

    def process_right(self, rows, keys, state, timers): ...

    def on_timer(self, due, keys, state, timers): ...


class Half:
    state = Meet.state
    schema = OUT

    def process_left(self, rows, keys, state, timers): ...


def streams() -> tuple[Pipeline, Stream, Stream]:
    p = Pipeline("p")
    left = pa.table({"k": ["a", "b"], "v": [1, 2], "ts": TIMES})
    right = pa.table({"of": ["a", "b"], "n": pa.array([1, 2], pa.int32()), "at": TIMES})
    return p, p.source("left", MemorySource([left])), p.source("right", MemorySource([right]))


def test_each_stream_has_its_keys_and_the_time_of_its_watermark() -> None:
    p, left, right = streams()
    met = left.watermark("ts").key_by("k").connect(right.watermark("at").key_by("of"))
    out = met.process("meet", Meet())
    assert out.schema == OUT
    assert out.event_time is None
    assert out.side("late_right").schema == right.schema
    out.sink("out", CollectSink())
    plan = p.plan()
    (operator,) = (one for v in plan.vertices for one in v.operators if one.operator_id == "meet")
    assert isinstance(operator, ProcessConnected)
    assert [one.time_column for one in operator.inputs] == ["ts", "at"]
    assert [edge.partitioning for edge in plan.inputs_of("meet")] == [Keyed(("k",)), Keyed(("of",))]


def test_time_names_a_column_of_both_or_one_of_each() -> None:
    _, left, right = streams()
    met = left.key_by("k").connect(right.key_by("of"))
    assert met.process("meet", Meet(), time=("ts", "at")).schema == OUT
    same = left.key_by("k").connect(left.key_by("k"))
    assert same.process("same", Meet(), time="ts").schema == OUT
    with pytest.raises(ConfigurationError, match="need event time of the left input: call water"):
        met.process("none", Meet())


@pytest.mark.parametrize("process", [Meet, Half(), print])
def test_a_process_without_both_functions_is_refused(process: Any) -> None:
    _, left, right = streams()
    met = left.key_by("k").connect(right.key_by("of"))
    with pytest.raises(ConfigurationError, match=r"needs an object with .* process_left and proc"):
        met.process("meet", process)


def test_keys_that_cannot_meet_are_refused() -> None:
    _, left, right = streams()
    with pytest.raises(ConfigurationError, match="'v' is int64 on the left and 'n' is int32"):
        left.key_by("v").connect(right.key_by("n")).process("meet", Meet(), time=("ts", "at"))


def test_it_is_of_two_keyed_streams_of_rows_that_are_appended() -> None:
    _, left, right = streams()
    keyed: Any = left.key_by("k")
    for others in ((right,), (), (keyed, keyed)):
        with pytest.raises(ConfigurationError, match="is of two keyed streams: call key_by"):
            keyed.connect(*others)
    totals = left.key_by("k").last("newest", time="ts")
    with pytest.raises(ConfigurationError, match=r"call \.changes\(\) on the stream"):
        totals.key_by("k").connect(keyed).process("meet", Meet(), time="ts")
