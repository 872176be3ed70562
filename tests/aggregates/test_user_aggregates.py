"""Aggregates in Python: called per group, typed by Arrow, known by their code."""

import math

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import accumulate, finish, merge
from laminar_core.aggregates.user_aggregates import UserDefined
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators import agg


class GeometricMean:
    name = "geometric_mean"
    state_type = pa.struct([("logs", pa.float64()), ("count", pa.int64())])
    result_type = pa.float64()

    def init(self) -> dict:
        return {"logs": 0.0, "count": 0}

    def accumulate(self, state: dict, values: pa.Array) -> dict:
        known = np.log(values.drop_null().to_numpy())
        return {"logs": state["logs"] + known.sum(), "count": state["count"] + len(known)}

    def merge(self, left: dict, right: dict) -> dict:
        return {field: left[field] + right[field] for field in left}

    def finish(self, state: dict) -> float | None:
        return math.exp(state["logs"] / state["count"]) if state["count"] else None


class Weighted:
    """An aggregate of two columns, whose state is no struct, in a second version."""

    name, state_type, result_type, version = "weighted", pa.int64(), pa.string(), 2

    def init(self) -> int:
        return 0

    def accumulate(self, state: int, values: pa.Array, weights: pa.Array) -> int:
        return state + int(np.dot(values.to_numpy(), weights.to_numpy()))

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> object:
        return f"{state}!"


def results(aggregate: object, rows: pa.Table, cut: int) -> list[dict]:
    needed = aggregate.accumulators
    parts = [accumulate({"k": p.column("k")}, p, needed) for p in (rows[:cut], rows[cut:])]
    merged = merge(pa.concat_tables(parts), ["k"], needed)
    return pa.table({"k": merged.column("k"), "r": finish(merged, aggregate)}).to_pylist()


def test_groups_are_distinguished_and_halves_merged() -> None:
    rows = pa.table({"k": ["a", "b", "a", "b", "c"], "v": [1.0, 5.0, 4.0, None, None]})
    for cut in (0, 1, 3, 5):
        found = results(agg.user(GeometricMean(), "v"), rows, cut)
        assert found == [
            {"k": "a", "r": pytest.approx(2.0)},
            {"k": "b", "r": pytest.approx(5.0)},
            {"k": "c", "r": None},
        ]


def test_several_columns_a_plain_state_and_a_dictionary() -> None:
    rows = pa.table({"k": ["a", "a"], "v": pa.array([2, 3]).dictionary_encode(), "w": [10, 100]})
    assert results(agg.user(Weighted(), "v", "w"), rows, 1) == [{"k": "a", "r": "320!"}]


def test_a_group_without_rows_has_the_first_state() -> None:
    aggregate = agg.user(Weighted(), "v", "w")
    nothing = pa.table({"v": pa.array([], pa.int64()), "w": pa.array([], pa.int64())})
    state = accumulate({}, nothing, aggregate.accumulators)
    assert state.column("user_weighted(v, w)").to_pylist() == [0]
    merged = merge(state.slice(0, 0), [], aggregate.accumulators)
    assert merged.column("user_weighted(v, w)").to_pylist() == [0]


def test_a_result_of_another_type_is_one_clear_line() -> None:
    class Wrong(Weighted):
        def finish(self, state: int) -> object:
            return state

    rows = pa.table({"k": ["a"], "v": [2], "w": [10]})
    with pytest.raises(
        DataError, match="'weighted' returned a result that is not string"
    ) as caught:
        results(agg.user(Wrong(), "v", "w"), rows, 1)
    assert caught.value.code is ErrorCode.WRONG_SCHEMA


@pytest.mark.parametrize("result", [2**70, 1.75])
def test_a_result_that_does_not_fit_its_type_is_one_clear_line(result: object) -> None:
    class Beyond(Weighted):
        result_type = pa.int64()

        def finish(self, state: int) -> object:
            del state
            return result

    rows = pa.table({"k": ["a"], "v": [2], "w": [10]})
    with pytest.raises(DataError, match="'weighted' returned a result that is not int64"):
        results(agg.user(Beyond(), "v", "w"), rows, 1)


@pytest.mark.parametrize(
    ("member", "value", "problem"),
    [
        ("state_type", "int64", "state_type of aggregate 'weighted' is no type of pyarrow"),
        ("result_type", None, "result_type of aggregate 'weighted' is no type of pyarrow"),
        ("merge", None, r"aggregate 'weighted' needs merge\(\)"),
    ],
)
def test_an_aggregate_that_lacks_a_part_is_refused(
    member: str, value: object, problem: str
) -> None:
    incomplete = type("Incomplete", (Weighted,), {member: value})
    with pytest.raises(ConfigurationError, match=problem):
        agg.user(incomplete(), "v", "w")


def test_the_code_is_the_identity() -> None:
    class Other(Weighted):
        def merge(self, left: int, right: int) -> int:
            return left - right

    one, same, other = (UserDefined.of(udaf) for udaf in (Weighted(), Weighted(), Other()))
    assert one == same != other
    described = agg.user(Weighted(), "v", "w").describe()
    assert (described["code"], described["version"]) == (one.code, 2)
    assert described["more"] == ["w"]
