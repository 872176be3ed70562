"""Queries: what makes no sense, and what makes two of them different."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg, queries, windows
from laminar_core.operators.queries import AggregateQuery
from laminar_core.records.manifest import fingerprint_of
from tests.operators.executor_states import RUNNING, SCHEMA, SECOND, WINDOWED


def fingerprint(query: AggregateQuery, schema: pa.Schema = SCHEMA, key_groups: int = 128) -> str:
    return fingerprint_of(query.definition(schema, key_groups))


def positive(batch: pa.RecordBatch) -> pa.Array:
    return pc.greater(batch["v"], 0)


def not_negative(batch: pa.RecordBatch) -> pa.Array:
    return pc.greater_equal(batch["v"], 0)


class Total:
    name, state_type, result_type = "total", pa.int64(), pa.int64()

    def init(self) -> int:
        return 0

    def accumulate(self, state: int, values: pa.Array) -> int:
        return state + (pc.sum(values).as_py() or 0)

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> int:
        return state


class OtherTotal(Total):
    def init(self) -> int:
        return 1


BASE = replace(WINDOWED, keys=("k", "v"), filter=positive)
CHANGES = {
    "order of keys": {"keys": ("v", "k")},
    "aggregate": {"aggregates": (agg.count(), agg.max("v"))},
    "name of a result": {"aggregates": (agg.count(name="n"), agg.sum("v"))},
    "order of results": {"aggregates": (agg.sum("v"), agg.count())},
    "no filter": {"filter": None},
    "code of the filter": {"filter": not_negative},
    "expression": {"filter": pc.field("v") > 0},
    "window": {"window": windows.tumbling("20 seconds")},
    "sliding": {"window": windows.sliding("10 seconds", "5 seconds")},
    "time": {"time_column": "v"},
    "lateness": {"allowed_lateness_us": 1},
    "running": {"window": None, "time_column": None},
}


@pytest.mark.parametrize("name", CHANGES)
def test_everything_the_state_depends_on_changes_the_fingerprint(name: str) -> None:
    assert fingerprint(replace(BASE, **CHANGES[name])) != fingerprint(BASE)


def test_key_groups_types_and_the_engine_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wider = SCHEMA.set(1, pa.field("v", pa.int32()))
    found = {fingerprint(BASE), fingerprint(BASE, key_groups=64), fingerprint(BASE, wider)}
    monkeypatch.setattr(queries, "ENGINE_STATE_VERSION", 2)
    assert len(found | {fingerprint(BASE)}) == 4


def test_versions_and_code_of_functions_change_it() -> None:
    one, other = (
        replace(RUNNING, aggregates=(agg.user(udaf, "v"),)) for udaf in (Total(), OtherTotal())
    )
    assert fingerprint(one) != fingerprint(other)
    assert one.definition(SCHEMA, 8)["accumulators"] == {"count(*)": 1, "user_total(v)": 1}


def test_the_id_does_not_change_it() -> None:
    assert fingerprint(replace(BASE, query_id="renamed")) == fingerprint(BASE)


def test_columns_that_are_not_read_do_not_change_it() -> None:
    wider = SCHEMA.insert(0, pa.field("more", pa.string()))
    assert fingerprint(WINDOWED, wider) == fingerprint(WINDOWED)
    assert fingerprint(RUNNING, pa.schema(list(SCHEMA)[:2])) == fingerprint(RUNNING)
    assert fingerprint(BASE, wider) != fingerprint(BASE), "a filter may read any"


def test_the_fingerprint_is_frozen() -> None:
    """Goal: another release computes the same, or its checkpoints would be refused."""
    frozen = "419e62de"
    assert fingerprint(WINDOWED).startswith(frozen)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"aggregates": ()}, "'totals' aggregates nothing"),
        ({"window": WINDOWED.window}, "needs both a window and a time_column"),
        ({"time_column": "ts"}, "needs both a window and a time_column"),
        ({"allowed_lateness_us": SECOND}, "has no window, so nothing is late"),
        ({"emit": "on-window-close"}, "cannot emit on-window-close"),
        ({"query_id": "no/name"}, "no/name"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        replace(RUNNING, **changes).check()


def test_emission_may_be_said() -> None:
    replace(RUNNING, emit="changes").check()
    replace(WINDOWED, emit="on-window-close").check()
    with pytest.raises(ConfigurationError, match="cannot emit changes") as caught:
        replace(WINDOWED, emit="changes").check()
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_the_output_is_keys_window_and_results() -> None:
    assert RUNNING.output_schema(SCHEMA).names == ["k", "sum_v", "avg_v"]
    assert WINDOWED.output_schema(SCHEMA).names[:3] == ["k", "window_start", "window_end"]
    with pytest.raises(ConfigurationError, match="no column 'w'"):
        replace(RUNNING, filter=pc.field("w") > 0).output_schema(SCHEMA)
