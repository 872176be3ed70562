"""Declarations of a process function: names, event time, and whether old state fits."""

# ruff: noqa: ARG002 - classes as users write them

from typing import Any

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import needs_event_time
from laminar_core.operators.process.lists import ListState
from laminar_core.operators.process.maps import MapState
from laminar_core.operators.process.spec import FunctionProcess, ProcessRows
from laminar_core.operators.process.values import ValueState
from tests.operators.process.processes import INPUT, NOTED, Forgetful, Remember, Reminders


def spec(process: Any, **changes: Any) -> ProcessRows:
    return ProcessRows(**{"operator_id": "mine", "keys": ("key",), "process": process, **changes})


class Version1(Remember):
    version = 1


class Version1Again(Remember):
    version = 1

    def helper(self) -> None: ...


class Changed(Remember):
    def process(self, rows, keys, state, timers):
        return None


def test_its_state_is_a_table_per_value_and_one_per_kind_of_timer() -> None:
    tables = spec(Remember(), time_column="ts").state_tables(INPUT)
    assert {name: schema.names for name, schema in tables.items()} == {
        "total": ["key_group", "key", "total"],
        "last": ["key_group", "key", "last"],
        "event-timers": ["key_group", "key", "_expires", "_set"],
    }
    assert spec(Reminders()).state_tables(INPUT).keys() == {"clock-timers"}
    expiring = spec(Forgetful(), time_column="ts").state_tables(INPUT)["count"]
    assert expiring.names == ["key_group", "key", "count", "_expires"]


def test_the_code_is_a_part_of_the_description_unless_it_has_a_version() -> None:
    assert spec(Remember()).describe() == spec(Remember()).describe()
    assert spec(Remember()).describe() != spec(Changed()).describe()
    assert spec(Version1()).describe() == spec(Version1Again()).describe()
    assert "code" not in spec(Version1()).describe()


def test_types_and_keys_are_a_part_of_the_description_and_the_time_to_live_is_not() -> None:
    def of(declared: ValueState, **changes: Any) -> object:
        return spec(FunctionProcess(print, NOTED, {"n": declared}), **changes).describe()["states"]

    hour = ValueState(pa.int64(), ttl="1 hour")
    assert of(hour) == of(ValueState(pa.int64(), ttl="2 hours"))
    assert of(hour) != of(ValueState(pa.int32(), ttl="1 hour"))


def with_state(name: str) -> FunctionProcess:
    return FunctionProcess(print, NOTED, {name: ValueState(pa.int64())})


def listing(name: str) -> FunctionProcess:
    return FunctionProcess(print, NOTED, {name: ListState(pa.int64())})


def test_a_name_that_lists_and_maps_need_is_free_without_them() -> None:
    assert spec(with_state("_place")).output_schema(INPUT) == NOTED


@pytest.mark.parametrize("process", [Remember(), Forgetful()])
def test_timers_and_times_to_live_need_event_time(process) -> None:
    with pytest.raises(ConfigurationError, match="'mine' need event time: call watermark"):
        spec(process).output_schema(INPUT)
    assert needs_event_time(spec(process))
    assert spec(process).side_outputs(INPUT) == {"late": INPUT}


def test_without_them_no_row_is_late_and_it_can_be_in_a_loop() -> None:
    assert spec(Reminders()).output_schema(INPUT) == NOTED
    assert not needs_event_time(spec(Reminders(), time_column="ts"))
    assert spec(Reminders(), time_column="ts").side_outputs(INPUT) == {}


class Sides(Remember):
    def __init__(self, *names: str) -> None:
        self.sides = dict.fromkeys(names, NOTED)


def test_it_declares_side_outputs_beside_that_of_late_rows() -> None:
    found = spec(Sides("large"), time_column="ts").side_outputs(INPUT)
    assert found == {"late": INPUT, "large": NOTED}
    with pytest.raises(ConfigurationError, match="the side output 'late', which is for its late"):
        spec(Sides("late"), time_column="ts").output_schema(INPUT)


def test_lists_and_maps_are_tables_of_their_own() -> None:
    state = {
        "list": ListState(pa.string(), ttl="1 hour"),
        "map": MapState(pa.int64(), pa.string()),
    }
    declared = spec(FunctionProcess(print, NOTED, state), time_column="ts")
    tables = declared.state_tables(INPUT)
    assert {name: schema.names for name, schema in tables.items()} == {
        "list": ["key_group", "key", "_position", "list", "_set", "_expires"],
        "map": ["key_group", "key", "_entry", "map"],
    }
    assert declared.describe()["states"] == {
        "list": {"kind": "list", "type": "string"},
        "map": {"kind": "map", "key": "int64", "type": "string"},
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"keys": ("nobody",)}, ErrorCode.WRONG_SCHEMA),
        ({"time_column": "nowhere"}, ErrorCode.WRONG_SCHEMA),
        ({"time_column": "key"}, ErrorCode.UNSUPPORTED_TYPE),
        ({"process": with_state("key")}, ErrorCode.INVALID_PIPELINE),
        ({"process": with_state("a b")}, ErrorCode.INVALID_PIPELINE),
        ({"process": with_state("due")}, ErrorCode.INVALID_PIPELINE),
        ({"process": listing("_place")}, ErrorCode.INVALID_PIPELINE),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_starts(changes, code) -> None:
    with pytest.raises(ConfigurationError) as refused:
        spec(**{"process": Reminders(), **changes}).output_schema(INPUT)
    assert refused.value.code is code
