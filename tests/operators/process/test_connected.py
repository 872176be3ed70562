"""Process functions of two inputs: one state per key, late rows of each input, and refusals."""

# ruff: noqa: ARG002, RUF012 - classes as users write them

from typing import Any

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import SubtaskContext, needs_event_time
from laminar_core.operators.process.connected import ProcessConnected, ProcessInput
from laminar_core.operators.process.subtask import ConnectedSubtask
from laminar_core.operators.process.values import ValueState
from laminar_core.protocol.types import Generation
from tests.operators.process.processes import (
    INPUT,
    NOTED,
    SECOND_US,
    TIME,
    cut,
    known,
    noted,
    rows,
    said,
)

RIGHT = pa.schema([("number", pa.int64()), ("of", pa.string()), ("at", TIME)])
BOTH = (ProcessInput(("key",), "ts"), ProcessInput(("of",), "at"))


class Weigh:
    """Adds left values, and subtracts right numbers; says the result five seconds later."""

    state = {"total": ValueState(pa.int64())}
    schema = NOTED

    def process_left(self, rows, keys, state, timers):
        for key, mine in keys.each(rows):
            state["total"][key] = (state["total"][key] or 0) + sum(mine["value"].to_pylist())
        timers.set(keys, keys.times_us + 5 * SECOND_US)

    def process_right(self, rows, keys, state, timers):
        for key, mine in keys.each(rows):
            state["total"][key] = (state["total"][key] or 0) - sum(mine["number"].to_pylist())

    def on_timer(self, due, keys, state, timers):
        return noted(keys.column("key"), "total", known(state["total"].get(keys)))


def spec(process: Any = None, inputs: Any = BOTH, **changes: Any) -> ProcessConnected:
    return ProcessConnected("mine", inputs[0].keys, process or Weigh(), inputs, **changes)


def opened() -> ConnectedSubtask:
    context = SubtaskContext("mine", 0, 1, 128, Generation(1))
    return spec().open(context, INPUT, RIGHT)


def right(*values: tuple[str, float, int]) -> pa.RecordBatch:
    found = [{"of": key, "at": int(at * SECOND_US), "number": n} for key, at, n in values]
    return pa.RecordBatch.from_pylist(found, schema=RIGHT)


def test_rows_of_both_inputs_meet_in_the_state_of_their_key() -> None:
    subtask = opened()
    assert said(subtask.process_input(0, rows(("a", 1, 10), ("b", 2, 20)))) == []
    assert said(subtask.process_input(1, right(("a", 1, 3), ("c", 1, 4)))) == []
    assert said(subtask.on_watermark(8 * SECOND_US)) == [("a", "total", 7), ("b", "total", 20)]
    (table,) = cut(subtask).tables
    assert table.rows.column_names == ["key_group", "key", "total"]
    assert sorted(table.rows["key"].to_pylist()) == ["a", "b", "c"]


def test_late_rows_of_each_input_have_a_side_output_of_their_own() -> None:
    assert spec().side_outputs(INPUT, RIGHT) == {"late_left": INPUT, "late_right": RIGHT}
    subtask = opened()
    list(subtask.on_watermark(4 * SECOND_US))
    (late,) = subtask.process_input(0, rows(("a", 1, 10)))
    (other,) = subtask.process_input(1, right(("a", 1, 3)))
    assert (late.output, late.rows.num_rows) == ("late_left", 1)
    assert (other.output, other.rows.num_rows) == ("late_right", 1)
    assert subtask.late_row_count == 2


def test_an_input_may_lag_behind_the_watermark_by_itself() -> None:
    inputs = (BOTH[0], BOTH[1]._replace(lag_us=2 * SECOND_US))
    context = SubtaskContext("mine", 0, 1, 128, Generation(1))
    subtask = spec(inputs=inputs).open(context, INPUT, RIGHT)
    list(subtask.on_watermark(4 * SECOND_US))
    assert said(subtask.process_input(1, right(("a", 2, 3)))) == []
    assert said(subtask.process_input(0, rows(("a", 2, 9)))) == [("late_left", 9)]


def test_the_right_keys_are_a_part_of_the_description() -> None:
    described = spec().describe()
    other = spec(inputs=(BOTH[0], ProcessInput(("number",), "at"))).describe()
    assert described["keys"] == ["key"]
    assert (described["right_keys"], other["right_keys"]) == (["of"], ["number"])
    assert {**described, "right_keys": 0} == {**other, "right_keys": 0}


def with_sides(*names: str) -> Weigh:
    process = Weigh()
    process.sides = dict.fromkeys(names, NOTED)  # pyright: ignore[reportAttributeAccessIssue]
    return process


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"inputs": (BOTH[0], ProcessInput(("nobody",), "at"))}, ErrorCode.WRONG_SCHEMA, "nobody"),
        ({"inputs": (BOTH[0], ProcessInput(("of",)))}, ErrorCode.INVALID_PIPELINE, "right input"),
        ({"inputs": (BOTH[0], ProcessInput(("of",), "no"))}, ErrorCode.WRONG_SCHEMA, "no column"),
        (
            {"inputs": (BOTH[0], ProcessInput(("number",), "at"))},
            ErrorCode.UNSUPPORTED_TYPE,
            "key 'key' is string on the left and 'number' is int64 on the right: cast one",
        ),
        (
            {"inputs": (BOTH[0], ProcessInput(("of", "number"), "at"))},
            ErrorCode.INVALID_PIPELINE,
            "as many on both sides",
        ),
        (
            {"inputs": (ProcessInput(("key", "ts"), "ts"), ProcessInput(("of", "of"), "at"))},
            ErrorCode.INVALID_PIPELINE,
            "'of' is more than one of the keys",
        ),
        ({"process": with_sides("late_left")}, ErrorCode.INVALID_PIPELINE, "its late rows"),
    ],
)
def test_what_cannot_meet_or_be_stored_is_refused_before_anything_starts(
    changes: Any, code: ErrorCode, text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text) as refused:
        spec(**changes).output_schema(INPUT, RIGHT)
    assert refused.value.code is code


def test_event_time_is_needed_by_timers_only() -> None:
    assert needs_event_time(spec())
    plain = (ProcessInput(("key",)), ProcessInput(("of",)))

    class NoTimer:
        state, schema = Weigh.state, NOTED
        process_left, process_right = Weigh.process_left, Weigh.process_right

    assert not needs_event_time(spec(NoTimer(), plain))
    assert spec(NoTimer(), plain).output_schema(INPUT, RIGHT) == NOTED
    assert spec(NoTimer(), plain).side_outputs(INPUT, RIGHT) == {}
