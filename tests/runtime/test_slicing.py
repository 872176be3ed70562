"""The size of a unit of work follows what units take."""

from collections.abc import Callable

from laminar_core.runtime.slicing import (
    JUDGED_SLICES,
    PATIENCE_UNITS,
    SLICE_ROWS_MAX,
    UNIT_MS,
    WorkUnit,
)

BATCH_ROWS = 10_000


def after(cost_ms: Callable[[int], float], units: int) -> tuple[WorkUnit, list[int]]:
    """A unit that has met so many batches' worth of units of an operator with this cost."""
    unit, sizes = WorkUnit(), []
    for _ in range(units):
        rows = min(unit.rows_max or BATCH_ROWS, BATCH_ROWS)
        sizes.append(rows)
        unit.took(rows, cost_ms(rows))
    return unit, sizes


def test_a_fast_operator_takes_whole_batches() -> None:
    unit, _ = after(lambda rows: rows / BATCH_ROWS, 50)
    assert unit.rows_max is None


def test_a_slow_operator_takes_about_a_unit_at_a_time() -> None:
    _, sizes = after(lambda rows: rows * 0.1, 50)
    assert sizes[0] == BATCH_ROWS
    assert all(UNIT_MS / 2 <= rows * 0.1 <= 2 * UNIT_MS for rows in sizes[1:])


def test_one_row_is_the_least() -> None:
    _, sizes = after(lambda rows: rows * 500.0, 20)
    assert sizes[1:] == [1] * 19


def slices(unit: WorkUnit, elapsed_ms: float, count: int = JUDGED_SLICES) -> None:
    for _ in range(count):
        assert unit.rows_max is not None
        unit.took(unit.rows_max, elapsed_ms)


def slow_unit(rows: int = BATCH_ROWS, elapsed_ms: float = 100.0) -> WorkUnit:
    unit = WorkUnit()
    unit.took(rows, elapsed_ms)
    return unit


def test_slices_shrink_when_rows_get_slower() -> None:
    unit = slow_unit()
    assert unit.rows_max == BATCH_ROWS // 5
    slices(unit, 2 * UNIT_MS)
    assert unit.rows_max == BATCH_ROWS // 5, "that is slow, but not too slow"
    unit = slow_unit(elapsed_ms=10 * UNIT_MS)
    unit._whole_rows_per_ms /= 3
    slices(unit, 2 * UNIT_MS + 1)
    assert unit.rows_max == BATCH_ROWS // 20


def test_one_slice_on_a_busy_machine_decides_nothing() -> None:
    unit = slow_unit()
    slices(unit, 500.0, count=1)
    assert unit.rows_max == BATCH_ROWS // 5
    unit = slow_unit()
    slices(unit, 60.0, count=1)
    slices(unit, UNIT_MS, count=JUDGED_SLICES - 1)
    assert unit.rows_max == BATCH_ROWS // 5


def test_the_end_of_a_batch_says_little() -> None:
    unit = slow_unit()
    for _ in range(3 * JUDGED_SLICES):
        unit.took(10, 1000.0)
    assert unit.rows_max == BATCH_ROWS // 5


def test_slices_grow_when_the_operator_gets_faster_until_they_are_whole_batches() -> None:
    unit = slow_unit(elapsed_ms=2 * UNIT_MS)
    sizes = []
    while unit.rows_max is not None:
        sizes.append(unit.rows_max)
        slices(unit, 1.0)
    assert sizes == [BATCH_ROWS // 2 * 2**n for n in range(len(sizes))]
    assert sizes[-1] <= SLICE_ROWS_MAX < 2 * sizes[-1]


def test_an_operator_with_a_price_for_each_call_gets_whole_batches_again() -> None:
    _, sizes = after(lambda rows: 200.0 + rows * 0.001, 160)
    whole = [rows == BATCH_ROWS for rows in sizes]
    assert whole.count(False) == 2 * JUDGED_SLICES
    assert whole[1 : 1 + JUDGED_SLICES] == [False] * JUDGED_SLICES
    first_again = 2 + JUDGED_SLICES + PATIENCE_UNITS
    assert all(whole[1 + JUDGED_SLICES : first_again])
    assert not whole[first_again]
    assert all(whole[first_again + JUDGED_SLICES :][: 2 * PATIENCE_UNITS])


def test_a_batch_of_one_row_cannot_be_cut() -> None:
    unit = WorkUnit()
    unit.took(1, 1000.0)
    assert unit.rows_max is None
