"""The size of a unit of work follows what units take."""

from collections.abc import Callable

from laminar_core.worker.slicing import (
    JUDGED_SLICES,
    PATIENCE_UNITS,
    SLICE_ROWS_MAX,
    SLOW_BATCHES,
    UNIT_MS,
    URGENT_UNIT_MS,
    VERY_SLOW_MS,
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


def slices(unit: WorkUnit, *elapsed_ms: float) -> None:
    for each_ms in elapsed_ms:
        assert unit.rows_max is not None
        unit.took(unit.rows_max, each_ms)


def slow_unit(elapsed_ms: float = 100.0) -> WorkUnit:
    unit = WorkUnit()
    while unit.rows_max is None:
        unit.took(BATCH_ROWS, elapsed_ms)
    return unit


def test_a_fast_operator_takes_whole_batches() -> None:
    unit, _ = after(lambda rows: rows / BATCH_ROWS, 50)
    assert unit.rows_max is None


def test_a_slow_operator_takes_about_a_unit_at_a_time() -> None:
    _, sizes = after(lambda rows: rows * 0.005, 50)
    assert sizes[:SLOW_BATCHES] == [BATCH_ROWS] * SLOW_BATCHES
    assert {rows * 0.005 for rows in sizes[SLOW_BATCHES:]} == {UNIT_MS}


def test_a_single_batch_decides_if_no_busy_machine_explains_it() -> None:
    unit = WorkUnit()
    unit.took(BATCH_ROWS, VERY_SLOW_MS)
    assert unit.rows_max is None
    unit.took(1, 0.0)
    unit.took(BATCH_ROWS, 2 * VERY_SLOW_MS)
    assert unit.rows_max == BATCH_ROWS * UNIT_MS // (2 * VERY_SLOW_MS)


def test_a_batch_that_met_a_busy_machine_decides_nothing() -> None:
    unit = WorkUnit()
    for elapsed_ms in (90.0, 1.0, 90.0, 1.0):
        unit.took(BATCH_ROWS, elapsed_ms)
    assert unit.rows_max is None


def test_slices_that_met_a_busy_machine_decide_nothing() -> None:
    unit = slow_unit()
    for _ in range(5):
        slices(unit, *[200.0] * (JUDGED_SLICES - 1), UNIT_MS)
        assert unit.rows_max == BATCH_ROWS // 5


def test_one_row_is_the_least() -> None:
    _, sizes = after(lambda rows: rows * 500.0, 20)
    assert sizes == [BATCH_ROWS] + [1] * 19


def test_slices_shrink_when_rows_get_slower() -> None:
    unit = slow_unit(elapsed_ms=10 * UNIT_MS)
    slices(unit, *[2 * UNIT_MS] * JUDGED_SLICES)
    assert unit.rows_max == BATCH_ROWS // 10, "that is slow, but not too slow"
    unit._whole_rate /= 3
    slices(unit, *[2.5 * UNIT_MS] * JUDGED_SLICES)
    assert unit.rows_max == BATCH_ROWS // 25


def test_the_end_of_a_batch_says_little() -> None:
    unit = slow_unit()
    for _ in range(3 * JUDGED_SLICES):
        unit.took(10, 1000.0)
    assert unit.rows_max == BATCH_ROWS // 5


def test_slices_grow_when_the_operator_gets_faster_until_they_are_whole_batches() -> None:
    unit = slow_unit(elapsed_ms=2 * UNIT_MS)
    slices(unit, *[UNIT_MS / 4] * JUDGED_SLICES)
    assert unit.rows_max == 4 * BATCH_ROWS // 2
    slices(unit, *[UNIT_MS * BATCH_ROWS / SLICE_ROWS_MAX] * JUDGED_SLICES)
    assert unit.rows_max is None


def test_an_operator_with_a_price_for_each_call_gets_whole_batches_again() -> None:
    _, sizes = after(lambda rows: 200.0 + rows * 0.001, 160)
    whole = [rows == BATCH_ROWS for rows in sizes]
    tried = [n for n, is_whole in enumerate(whole) if not is_whole]
    again = 1 + JUDGED_SLICES + PATIENCE_UNITS + 1
    assert tried == [
        *range(1, 1 + JUDGED_SLICES),
        *range(again, again + JUDGED_SLICES),
    ], "and after that for twice as long"


def test_a_batch_of_one_row_cannot_be_cut() -> None:
    unit = WorkUnit()
    for _ in range(10):
        unit.took(1, 1000.0)
    assert unit.rows_max is None


USUAL_ROWS = BATCH_ROWS // 5
"""Rows that take one unit."""
URGENT_ROWS = USUAL_ROWS // 4
assert URGENT_UNIT_MS == UNIT_MS / 4


def urgent_unit() -> WorkUnit:
    """A slow unit whose slices were judged, while a checkpoint waits."""
    unit = slow_unit()
    slices(unit, *[UNIT_MS] * JUDGED_SLICES)
    unit.urgent = True
    return unit


def test_slices_are_short_only_while_a_checkpoint_waits() -> None:
    unit = urgent_unit()
    assert unit.rows_max == URGENT_ROWS
    slices(unit, *[URGENT_UNIT_MS] * 3 * JUDGED_SLICES)
    assert unit.rows_max == URGENT_ROWS
    unit.urgent = False
    assert unit.rows_max == USUAL_ROWS, "what was learned while one waits is not about slices"


def test_a_fast_operator_takes_whole_batches_while_a_checkpoint_waits() -> None:
    unit = WorkUnit()
    unit.took(BATCH_ROWS, URGENT_UNIT_MS)
    unit.urgent = True
    assert unit.rows_max is None


def test_a_batch_that_is_not_sliced_is_sliced_while_a_checkpoint_waits() -> None:
    unit = WorkUnit()
    unit.took(BATCH_ROWS, UNIT_MS)
    assert unit.rows_max is None
    unit.urgent = True
    assert unit.rows_max == BATCH_ROWS // 4
    slices(unit, *[URGENT_UNIT_MS] * JUDGED_SLICES)
    assert unit.rows_max == BATCH_ROWS // 4
    unit.urgent = False
    assert unit.rows_max is None


def test_urgent_units_follow_rows_that_get_slower_also_if_it_never_ends() -> None:
    unit = urgent_unit()
    slices(unit, *[1.6 * URGENT_UNIT_MS] * JUDGED_SLICES)
    assert unit.rows_max == int(URGENT_ROWS / 1.6)


def test_an_operator_with_a_price_for_each_call_keeps_its_slices() -> None:
    unit = urgent_unit()
    slices(unit, *[UNIT_MS] * JUDGED_SLICES)
    assert unit.rows_max == USUAL_ROWS
    unit.urgent = False
    slices(unit, *[UNIT_MS / 4] * JUDGED_SLICES)
    unit.urgent = True
    assert unit.rows_max == USUAL_ROWS, "another cost: tried again"


def test_whole_batches_that_slices_cost_too_much_of_are_whole_while_a_checkpoint_waits() -> None:
    unit, _ = after(lambda rows: 200.0 + rows * 0.001, 1 + JUDGED_SLICES)
    unit.urgent = True
    assert unit.rows_max is None


def test_one_row_is_the_least_while_a_checkpoint_waits() -> None:
    unit = slow_unit(elapsed_ms=BATCH_ROWS * UNIT_MS)
    unit.urgent = True
    assert unit.rows_max == 1
