"""Timers against a set of (due time, key): set, deleted, fired, cut and restored."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.operators.process.timers import WAITING_ROWS_MAX, TimerTable, timer_layout
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.window_state import rows_of_key_groups
from tests.sampling import drawn

LAYOUT = timer_layout("event-timers", [pa.field("k", pa.string())])
CHANGE = st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.booleans())
STEPS = st.lists(
    st.lists(CHANGE, min_size=1, max_size=6)
    | st.integers(0, 30)
    | st.just("cut")
    | st.just("restore"),
    max_size=15,
)


def listed(rows: pa.Table) -> list[tuple[int, str]]:
    dues = rows.column(EXPIRES).cast(pa.int64()).to_pylist()
    return list(zip(dues, rows.column("k").to_pylist(), strict=True))


def fired(timers: TimerTable, until_us: int) -> list[tuple[int, str]]:
    calls = [listed(rows) for rows in timers.fire(until_us)]
    for call in calls:
        assert len({key for _, key in call}) == len(call), "a key at most once"
    return [timer for call in calls for timer in call]


@settings(deadline=None, max_examples=drawn(150))
@given(STEPS, st.sampled_from([1, 4, WAITING_ROWS_MAX]))
def test_timers_are_those_of_a_set(steps: list, waiting_rows_max: int) -> None:
    timers = TimerTable(LAYOUT, waiting_rows_max)
    model, cuts, now_us = set[tuple[int, str]](), [], -1
    for step in steps:
        if step == "cut":
            cuts.append(timers.take_changes().stored_table(8))
        elif step == "restore":
            cuts.append(timers.take_changes().stored_table(8))
            whole = LAYOUT.present_rows(LAYOUT.merge(cuts, now_us))
            assert set(listed(whole)) == model
            assert sorted(listed(timers.pin().stored_table(8))) == sorted(model)
            timers, cuts = TimerTable(LAYOUT, waiting_rows_max), []
            timers.take(rows_of_key_groups(whole, range(8)))
        elif isinstance(step, int):
            now_us = max(now_us, step)
            due = sorted(timer for timer in model if timer[0] <= now_us)
            assert fired(timers, now_us) == due
            model -= set(due)
        else:
            for key, due_us, is_set in step:
                if due_us > now_us:
                    keys = pa.table({"k": [key]})
                    timers.change(keys, np.array([due_us]), is_set=is_set)
                    (model.add if is_set else model.discard)((due_us, key))
        assert timers.next_due_us is None or timers.next_due_us <= min(model, default=(31,))[0]
    assert fired(timers, 100) == sorted(model)


def test_parts_stay_few() -> None:
    timers = TimerTable(LAYOUT, 1)
    for n in range(400):
        timers.change(pa.table({"k": [f"k{n}"]}), np.array([n]), is_set=True)
    assert len(timers._parts) < 12
    assert len(fired(timers, 399)) == 400
    assert timers.next_due_us is None


def test_changes_that_nobody_takes_do_not_pile_up() -> None:
    timers = TimerTable(LAYOUT)
    timers.take_changes()
    for n in range(30):
        timers.change(pa.table({"k": [f"k{i}" for i in range(200)]}), np.full(200, n), is_set=True)
        list(timers.fire(n))
    assert sum(table.num_rows for table in timers._log._changes or []) < 3_000


def test_single_changes_wait_until_one_is_due_or_there_are_many() -> None:
    timers = TimerTable(LAYOUT, 10)
    for n in range(25):
        timers.change(pa.table({"k": [f"k{n}"]}), np.array([100 - n]), is_set=True)
        assert timers.next_due_us == 100 - n
    assert sum(len(part.dues_us) for part in timers._parts) == 20
    assert fired(timers, 75) == []
    assert sum(len(part.dues_us) for part in timers._parts) == 20
    assert fired(timers, 77) == [(76, "k24"), (77, "k23")]
    assert sum(len(part.dues_us) for part in timers._parts) == 23


def test_a_change_that_waits_keeps_no_other_key_in_memory() -> None:
    timers = TimerTable(LAYOUT)
    timers.take_changes()
    many = pa.table({"k": [f"k{n}" for n in range(10_000)]})
    timers.change(many.slice(7, 1), np.array([1]), is_set=True)
    kept = [*timers._waiting.tables, *(timers._log._changes or [])]
    assert [table.num_rows for table in kept] == [1, 1]
    assert all(table.get_total_buffer_size() < 1_000 for table in kept)


def test_keys_of_any_type_have_timers() -> None:
    halves = pa.array([1.0, None, -2.0]).cast(pa.float16())
    points = pa.StructArray.from_arrays([halves], ["half"])
    for keys in (halves, points, pa.array([3, None, 1], pa.duration("s"))):
        timers = TimerTable(timer_layout("event-timers", [pa.field("k", keys.type)]))
        timers.change(pa.table({"k": keys}), np.array([5, 5, 5]), is_set=True)
        [due] = timers.fire(5)
        assert due.column("k").to_pylist() == keys.take(pa.array([2, 0, 1])).to_pylist()
