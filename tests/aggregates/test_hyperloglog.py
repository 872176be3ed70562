"""Approximate distinct counts: the bytes, the error, and that merging is exact."""

import math

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.hyperloglog import HyperLogLog
from laminar_core.aggregates.row_groups import RowGroups, one_group
from laminar_core.codec.stable_hash import hash_array

SKETCH = HyperLogLog()


def sketch(values: pa.Array) -> pa.Array:
    return SKETCH.accumulate([values], one_group(len(values)))


def test_registers_are_those_of_the_definition() -> None:
    """Goal: format version 1, computed by hand from the stable hash."""
    registers: dict[int, int] = {}
    for hashed in hash_array(pa.array(range(2_000))).tolist():
        rank = 52 - (hashed & (2**52 - 1)).bit_length() + 1
        registers[hashed >> 52] = max(rank, registers.get(hashed >> 52, 0))
    expected = [register << 6 | rank for register, rank in sorted(registers.items())]
    assert sketch(pa.array(range(2_000))).to_pylist() == [expected]


def test_nothing_is_zero_and_nulls_are_nothing() -> None:
    assert SKETCH.estimate(sketch(pa.nulls(3, pa.string()))).to_pylist() == [0]
    assert SKETCH.estimate(sketch(pa.array([], pa.int64()))).to_pylist() == [0]


@pytest.mark.parametrize("count", [1, 100, 5_000, 20_000, 200_000])
def test_the_error_is_the_stated_one(count: int) -> None:
    """Goal: over 30 disjoint sets, errors average about nothing and spread as stated."""
    draws = 30 if count < 200_000 else 8
    errors = [
        SKETCH.estimate(sketch(pa.array(np.arange(count) + draw * 10**7)))[0].as_py() / count - 1
        for draw in range(draws)
    ]
    stated = 1.04 / math.sqrt(2**12)
    assert abs(np.mean(errors)) < 4 * stated / math.sqrt(draws)
    assert math.sqrt(np.mean(np.square(errors))) < 1.6 * stated


def by_the_book(ranks: list[int]) -> float:
    """Ertl's algorithm 6, one register after the other."""

    def sigma(x: float) -> float:
        if x == 1:
            return math.inf
        return x + sum(x ** (2**k) * 2 ** (k - 1) for k in range(1, 40))

    def tau(x: float) -> float:
        if x in (0, 1):
            return 0
        return (1 - x - sum((1 - x ** (2**-k)) ** 2 * 2**-k for k in range(1, 60))) / 3

    registers, largest = len(ranks), 53
    z = registers * tau(1 - ranks.count(largest) / registers)
    for rank in range(largest - 1, 0, -1):
        z = 0.5 * (z + ranks.count(rank))
    z += registers * sigma(ranks.count(0) / registers)
    return registers**2 / (2 * math.log(2) * z)


@pytest.mark.parametrize("ranks", [(0, 1, 2, 53), (52, 53, 53, 53), (0, 0, 0, 3), (5, 6, 7, 8)])
def test_the_estimator_is_that_of_the_paper(ranks: tuple[int, ...]) -> None:
    """Goal: also for registers that no set of values of this world fills."""
    each = [ranks[register % 4] for register in range(4_096)]
    kept = [register << 6 | rank for register, rank in enumerate(each) if rank]
    state = pa.array([kept], pa.list_(pa.int32()))
    assert SKETCH._estimates(state).tolist() == [pytest.approx(by_the_book(each), rel=1e-9)]
    assert SKETCH.estimate(state)[0].as_py() <= 2**62


def test_merging_is_exact_in_any_order() -> None:
    values = pa.array(np.arange(10_000))
    halves = [sketch(values.slice(start, 4_000)) for start in (6_000, 0, 3_000)]
    merged = SKETCH.merge(pa.concat_arrays(halves), one_group(3))
    assert merged.equals(sketch(values))


def test_groups_do_not_mix() -> None:
    groups = RowGroups(np.array([0, 2, 1]), np.array([0, 2, 2, 3]))
    state = SKETCH.accumulate([pa.array(["a", "b", "c"])], groups)
    assert SKETCH.estimate(state).to_pylist() == [2, 0, 1]
    assert SKETCH.estimate(state.slice(1)).to_pylist() == [0, 1]


def test_estimates_come_in_passes_of_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    states = pa.concat_arrays([sketch(pa.array(range(n))) for n in (3, 0, 9)])
    whole = SKETCH.estimate(states)
    monkeypatch.setattr("laminar_core.aggregates.hyperloglog._GROUPS_PER_PASS", 2)
    assert SKETCH.estimate(states).equals(whole)
    assert SKETCH.estimate(states.slice(0, 0)).to_pylist() == []


def test_a_sketch_of_more_registers_is_of_another_name() -> None:
    assert (HyperLogLog(12).label, HyperLogLog(14).label) == ("hyperloglog_12", "hyperloglog_14")
    assert SKETCH.state_type([pa.list_(pa.int8())]) is None
