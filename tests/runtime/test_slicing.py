"""The size of a unit of work follows what units take."""

from collections.abc import Callable

from laminar_core.runtime.slicing import PATIENCE_UNITS, SLICE_ROWS_MAX, UNIT_MS, WorkUnit

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


def test_slices_shrink_when_rows_get_slower() -> None:
    unit = WorkUnit()
    unit.took(BATCH_ROWS, 100.0)
    assert unit.rows_max == BATCH_ROWS // 5
    unit.took(unit.rows_max, 39.0)
    assert unit.rows_max == BATCH_ROWS // 5
    unit.took(unit.rows_max, 41.0)
    assert unit.rows_max is None, "that is more than twice the cost of whole batches a row"
    unit = WorkUnit()
    unit.took(BATCH_ROWS, 10 * UNIT_MS)
    unit.took(10, 1000.0)
    assert unit.rows_max == BATCH_ROWS // 10, "the end of a batch says little"


def test_slices_grow_when_the_operator_gets_faster_until_they_are_whole_batches() -> None:
    unit = WorkUnit()
    unit.took(BATCH_ROWS, 2 * UNIT_MS)
    assert unit.rows_max is not None
    for _ in range(20):
        if unit.rows_max is not None:
            assert unit.rows_max <= SLICE_ROWS_MAX
            unit.took(unit.rows_max, 1.0)
    assert unit.rows_max is None


def test_an_operator_with_a_price_for_each_call_gets_whole_batches_again() -> None:
    unit, sizes = after(lambda rows: 200.0 + rows * 0.001, 2 * PATIENCE_UNITS)
    assert len([rows for rows in sizes if rows < BATCH_ROWS]) <= 4
    assert sizes[-1] == BATCH_ROWS
    del unit


def test_a_batch_of_one_row_cannot_be_cut() -> None:
    unit = WorkUnit()
    unit.took(1, 1000.0)
    assert unit.rows_max is None
