"""Process functions call by call: timers in order, state that expires, snapshots and restores."""

# ruff: noqa: ARG002, RUF012 - classes as users write them

from collections import Counter
from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import key_groups_of
from laminar_core.errors import ConfigurationError, DataError
from laminar_core.host.clock import ManualClock
from laminar_core.operators.base import Side, Snapshot
from laminar_core.operators.keyed import owned_key_groups
from laminar_core.operators.process.subtask import ProcessSubtask
from laminar_core.operators.process.values import ValueState
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from tests.operators.process.processes import (
    INPUT,
    NOTED,
    SECOND_US,
    Forgetful,
    Remember,
    Reminders,
    cut,
    noted,
    opened,
    readable,
    rows,
    said,
)
from tests.state.shelves import rocks_backend


def test_a_timer_fires_once_event_time_has_reached_it() -> None:
    subtask = opened(Remember())
    assert said(subtask.process(rows(("a", 1, 10), ("b", 2, 20), ("a", 3, 30)))) == []
    assert said(subtask.on_watermark(7 * SECOND_US)) == [("b", "total", 20)]
    assert said(subtask.on_watermark(8 * SECOND_US)) == [("a", "total", 40)]
    assert said(subtask.on_watermark(WATERMARK_END_US)) == []


def test_at_the_end_of_the_input_all_timers_fire_also_those_that_are_set_then() -> None:
    subtask = opened(Chain(3))
    list(subtask.process(rows(("a", 1, 1), ("b", 2, 1))))
    found = said(subtask.on_watermark(WATERMARK_END_US))
    assert [(key, number) for key, _, number in found] == [
        ("a", 1), ("b", 2), ("a", 2), ("b", 3), ("a", 3), ("b", 4),
    ]  # fmt: skip


class Chain:
    """A timer at each second from the first row on, up to a number of them."""

    state = {"count": ValueState(pa.int64())}
    schema = NOTED

    def __init__(self, length: int) -> None:
        self.length = length

    def process(self, rows, keys, state, timers):
        timers.set(keys, keys.times_us)

    def on_timer(self, due, keys, state, timers):
        for key, mine in keys.each(due):
            count = state["count"][key] = (state["count"][key] or 0) + 1
            if count < self.length:
                timers.set(key, mine.column("due").cast(pa.int64()).to_numpy() + SECOND_US)
        yield noted(keys.column("key"), "at", keys.times_us // SECOND_US)


def test_timers_without_end_stop_the_job_at_the_end_of_the_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laminar_core.operators.process.subtask.CALLS_AFTER_END_MAX", 100)
    subtask = opened(Chain(100_000))
    list(subtask.process(rows(("a", 1, 1))))
    with pytest.raises(DataError, match=r"'mine' still sets timers .* timers.input_ended"):
        list(subtask.on_watermark(WATERMARK_END_US))


class Patient:
    """Sets a timer of both kinds for each row, and none when they fire."""

    state: dict[str, ValueState] = {}
    schema = NOTED

    def process(self, rows, keys, state, timers):
        for key, mine in keys.each(rows):
            for second in mine.column("value").to_pylist():
                timers.set(key, second * SECOND_US)
                timers.set_clock(key, second * SECOND_US)

    def on_timer(self, due, keys, state, timers):
        yield noted(keys.column("key"), "event", [1] * due.num_rows)

    def on_clock_timer(self, due, keys, state, timers):
        yield noted(keys.column("key"), "clock", [1] * due.num_rows)


def test_timers_that_wait_at_the_end_of_the_input_all_fire_however_many_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laminar_core.operators.process.subtask.CALLS_AFTER_END_MAX", 10)
    subtask = opened(Patient(), clock=ManualClock(0))
    list(subtask.process(rows(*(("a", 1, second) for second in range(100, 120)))))
    found = Counter(what for _, what, _ in said(subtask.on_watermark(WATERMARK_END_US)))
    assert found == {"event": 20, "clock": 20}


class Several:
    """Sets timers at the seconds that are the digits of a value; deletes that at second 9."""

    state: dict[str, ValueState] = {}
    schema = NOTED

    def process(self, rows, keys, state, timers):
        for key, mine in keys.each(rows):
            for value in mine.column("value").to_pylist():
                for digit in str(value):
                    timers.set(key, int(digit) * SECOND_US)

    def on_timer(self, due, keys, state, timers):
        timers.delete(keys, 9 * SECOND_US)
        yield noted(keys.column("key"), "at", keys.times_us // SECOND_US)


def test_timers_fire_in_the_order_of_due_time_and_key_and_can_be_deleted_while_others_fire() -> (
    None
):
    subtask = opened(Several())
    list(subtask.process(rows(("b", 1, 3593), ("a", 1, 745), ("c", 1, 9))))
    found = said(subtask.on_watermark(20 * SECOND_US))
    assert [(number, key) for key, _, number in found] == [
        (3, "b"), (4, "a"), (5, "a"), (5, "b"), (7, "a"), (9, "c"),
    ]  # fmt: skip


def test_a_timer_that_is_due_when_it_is_set_fires_at_once() -> None:
    subtask = opened(Several())
    list(subtask.on_watermark(4 * SECOND_US))
    assert said(subtask.process(rows(("a", 5, 38)))) == [("a", "at", 3)]
    assert said(subtask.on_watermark(9 * SECOND_US)) == [("a", "at", 8)]
    snapshot = cut(subtask)
    assert snapshot.tables == ()


def test_late_rows_are_counted_and_go_to_the_side_output() -> None:
    subtask = opened(Remember())
    list(subtask.on_watermark(4 * SECOND_US))
    assert said(subtask.process(rows(("a", 3, 7), ("a", 4, 8)))) == [("late", 7)]
    assert subtask.late_row_count == 1
    assert subtask.output_watermark(5) == 5
    assert said(subtask.on_watermark(WATERMARK_END_US)) == [("a", "total", 8)]


def test_a_value_expires_some_time_after_its_last_change_however_far_the_watermark_is() -> None:
    for watermark in (0, 19):
        subtask = opened(Forgetful())
        list(subtask.process(rows(("a", 1, 1))))
        assert said(subtask.process(rows(("a", 9, 1)))) == [("a", "count", 2)]
        list(subtask.on_watermark(watermark * SECOND_US))
        assert said(subtask.process(rows(("a", 19, 1)))) == [("a", "count", 3)]
        assert said(subtask.process(rows(("a", 29.1, 1)))) == [("a", "count", 1)]
        assert subtask.expired_row_count == 1


def test_values_that_nobody_reads_again_are_dropped_and_counted_once() -> None:
    subtask = opened(Forgetful())
    list(subtask.process(rows(*((f"k{n}", 1, 1) for n in range(50)))))
    first = cut(subtask, changes=True)
    list(subtask.on_watermark(30 * SECOND_US))
    assert len(subtask._values["count"]) == 0
    assert subtask.expired_row_count == 50
    second = cut(subtask, changes=True)
    assert second.tables == ()
    assert second.expired_us == {"count": 30 * SECOND_US - 1}
    again = opened(Forgetful())
    restored = readable([Snapshot(first.tables, second.properties, expired_us=second.expired_us)])
    again.restore(restored)
    assert len(again._values["count"]) == 0
    list(again.on_watermark(60 * SECOND_US))
    assert again.expired_row_count == 50


def test_removed_values_leave_memory_and_replace_older_ones_in_checkpoints() -> None:
    subtask = opened(Remember())
    cuts = [cut(subtask, changes=True)]
    list(subtask.process(rows(*((f"k{n}", 1, 1) for n in range(3_000)))))
    cuts.append(cut(subtask, changes=True))
    list(subtask.on_watermark(10 * SECOND_US))
    assert [table.rows.num_rows for table in cut(subtask).tables] == []
    cuts.append(cut(subtask, changes=True))
    list(subtask.process(rows(("k1", 11, 5))))
    list(subtask.on_watermark(12 * SECOND_US))
    assert len(subtask._values["total"]) == 1
    cuts.append(cut(subtask, changes=True))
    again = opened(Remember())
    again.restore(joined([cuts]))
    assert said(again.on_watermark(WATERMARK_END_US)) == [("k1", "total", 5)]


def joined(chains: Sequence[Sequence[Snapshot]]) -> list[Snapshot]:
    """Return chains of cuts as a restore gets them: all tables, the facts of the newest cut."""
    return readable(
        [
            Snapshot(
                tuple(table for one in chain for table in one.tables),
                chain[-1].properties,
                expired_us=chain[-1].expired_us,
            )
            for chain in chains
        ]
    )


def test_a_chain_that_goes_on_after_a_restore_keeps_what_has_fired_and_expired() -> None:
    """With an equal number of workers, the runtime takes the restored rows for unchanged."""
    subtask = opened(Forgetful())
    list(subtask.process(rows(("a", 1, 1))))
    list(subtask.on_watermark(40 * SECOND_US))
    again = opened(Forgetful())
    again.restore(readable([cut(subtask)]))
    again.snapshot_changes(CheckpointId(1))
    later = cut(again, changes=True)
    assert later.expired_us == {"count": 40 * SECOND_US - 1}
    timed = opened(Remember())
    list(timed.on_watermark(40 * SECOND_US))
    other = opened(Remember())
    other.restore(readable([cut(timed)]))
    assert cut(other, changes=True).expired_us["event-timers"] == 40 * SECOND_US


def test_timers_by_the_clock_fire_when_it_has_come_so_far() -> None:
    clock = ManualClock(1_000)
    subtask = opened(Reminders(), clock=clock)
    assert subtask.next_due_ms() is None
    list(subtask.process(rows(("a", 1, 1))))
    assert subtask.next_due_ms() == 2_000
    assert said(subtask.on_time(1_999)) == []
    assert said(subtask.on_time(2_005)) == [("a", "fired", 2 * SECOND_US)]
    assert subtask.next_due_ms() is None
    assert said(subtask.on_time(9_000)) == []


def test_overdue_timers_by_the_clock_fire_once_after_a_restore() -> None:
    first = opened(Reminders(), clock=ManualClock(1_000))
    list(first.process(rows(("a", 1, 1), ("b", 1, 1))))
    snapshot = cut(first)
    again = opened(Reminders())
    again.restore(readable([snapshot]))
    assert again.next_due_ms() == 2_000
    assert len(said(again.on_time(60_000))) == 2
    once = opened(Reminders())
    once.restore(readable([cut(again)]))
    assert said(once.on_time(70_000)) == []


def test_a_timer_is_not_lost_if_the_clock_was_set_back() -> None:
    clock = ManualClock(10_000)
    subtask = opened(Reminders(), clock=clock)
    list(subtask.process(rows(("a", 1, 1))))
    list(subtask.on_time(11_000))
    clock.wait_ms(0)
    clock._now_ms = 5_000.0
    list(subtask.process(rows(("b", 1, 1))))
    again = opened(Reminders())
    again.restore(readable([cut(subtask)]))
    assert [key for key, *_ in said(again.on_time(60_000))] == ["b"]


def test_timers_by_the_clock_fire_at_the_end_of_the_input() -> None:
    subtask = opened(Reminders(), clock=ManualClock(1_000))
    list(subtask.process(rows(("a", 1, 1))))
    assert said(subtask.on_watermark(WATERMARK_END_US)) == [("a", "fired", 2 * SECOND_US)]


class Alternating:
    """Timers in event time and by the clock that set each other, up to a number of them."""

    state = {"count": ValueState(pa.int64())}
    schema = NOTED

    def __init__(self, length: int) -> None:
        self.length = length

    def process(self, rows, keys, state, timers):
        timers.set_clock(keys, timers.now_us + SECOND_US)

    def on_clock_timer(self, due, keys, state, timers):
        timers.set(keys, SECOND_US)
        yield self.counted("clock", keys, state)

    def on_timer(self, due, keys, state, timers):
        if (state["count"][keys] or 0) < self.length:
            timers.set_clock(keys, timers.now_us + SECOND_US)
        yield self.counted("event", keys, state)

    def counted(self, what, key, state):
        state["count"][key] = (state["count"][key] or 0) + 1
        return noted(key.column("key"), what, [state["count"][key]])


def test_a_timer_that_a_timer_by_the_clock_sets_for_the_past_fires_at_once() -> None:
    subtask = opened(Alternating(2), clock=ManualClock(1_000))
    list(subtask.on_watermark(4 * SECOND_US))
    list(subtask.process(rows(("a", 5, 1))))
    assert said(subtask.on_time(2_000)) == [("a", "clock", 1), ("a", "event", 2)]
    assert "event-timers" not in {table.name for table in cut(subtask).tables}


def test_at_the_end_of_the_input_timers_of_both_kinds_set_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subtask = opened(Alternating(4))
    list(subtask.process(rows(("a", 1, 1))))
    found = said(subtask.on_watermark(WATERMARK_END_US))
    assert [what for _, what, _ in found] == ["clock", "event", "clock", "event", "clock", "event"]
    monkeypatch.setattr("laminar_core.operators.process.subtask.CALLS_AFTER_END_MAX", 100)
    endless = opened(Alternating(100_000))
    list(endless.process(rows(("a", 1, 1))))
    with pytest.raises(DataError, match="still sets timers"):
        list(endless.on_watermark(WATERMARK_END_US))


def test_what_it_emits_has_the_declared_columns() -> None:
    class Wrong(Several):
        def process(self, rows, keys, state, timers):
            yield rows

    with pytest.raises(ConfigurationError, match=r"'mine' emitted \(key string, .* instead of"):
        list(opened(Wrong()).process(rows(("a", 1, 1))))

    class NoBatch(Several):
        def process(self, rows, keys, state, timers):
            yield 7

    class OnlyNumber(Several):
        def process(self, rows, keys, state, timers):
            return 7

    for process in (NoBatch(), OnlyNumber()):
        with pytest.raises(ConfigurationError, match="'mine' emitted int instead of"):
            list(opened(process).process(rows(("a", 1, 1))))


class Sorting:
    """Sends rows to the side output that the sign of their value names."""

    state: dict[str, ValueState] = {}
    schema = NOTED
    sides = {"high": INPUT, "low": INPUT}

    def process(self, rows, keys, state, timers):
        for row in rows.to_pylist():
            name = "high" if row["value"] > 9 else "low" if row["value"] >= 0 else "nowhere"
            yield Side(name, pa.RecordBatch.from_pylist([row], schema=INPUT))


def test_rows_go_to_the_side_outputs_that_are_declared() -> None:
    subtask = opened(Sorting())
    assert said(subtask.process(rows(("a", 1, 1), ("a", 1, 10)))) == [("low", 1), ("high", 10)]
    with pytest.raises(
        ConfigurationError, match="'mine' emitted rows for the side output 'nowhere', which is not"
    ):
        list(subtask.process(rows(("a", 1, -1))))


def test_one_side_output_can_be_returned_by_itself() -> None:
    class Low(Sorting):
        def process(self, rows, keys, state, timers):
            return Side("low", rows)

    assert said(opened(Low()).process(rows(("a", 1, 1)))) == [("low", 1)]


def test_timers_need_their_functions() -> None:
    class NoTimer(Reminders):
        def process(self, rows, keys, state, timers):
            timers.set(keys, 1)

    with pytest.raises(ConfigurationError, match="'mine' sets a timer and has no on_timer"):
        list(opened(NoTimer()).process(rows(("a", 1, 1))))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
def test_cuts_of_changes_and_other_numbers_of_workers_change_nothing(seed: int) -> None:
    """Against a subtask that goes on undisturbed: 1 to 3 to 2 workers, chains of drawn cuts."""
    random = Random(seed)
    steps = [
        rows(*((f"k{random.randrange(9)}", at + random.randrange(3), at) for _ in range(4)))
        for at in range(0, 60, 2)
    ]
    alone, expected = opened(Remember()), []
    workers: list[ProcessSubtask] = [opened(Remember())]
    chains: list[list[Snapshot]] = [[]]
    found: list[tuple] = []
    for at, batch in enumerate(steps):
        expected += said(alone.process(batch)) + said(alone.on_watermark(2 * at * SECOND_US))
        for worker in workers:
            found += said(worker.process(owned(batch, worker)))
            found += said(worker.on_watermark(2 * at * SECOND_US))
        if random.random() < 0.5:
            for worker, chain in zip(workers, chains, strict=True):
                chain.append(cut(worker, changes=True))
            if random.random() < 0.4:
                count = random.randrange(1, 4)
                workers, chains = restored(joined(chains), count), [[] for _ in range(count)]
    expected += said(alone.on_watermark(WATERMARK_END_US))
    for worker in workers:
        found += said(worker.on_watermark(WATERMARK_END_US))
    assert sorted(found) == sorted(expected)
    assert len(expected) > 9


def owned(batch: pa.RecordBatch, worker: ProcessSubtask) -> pa.RecordBatch:

    groups = owned_key_groups(worker._context)
    mine = [group in groups for group in key_groups_of(batch, ["key"], 128).tolist()]
    return batch.filter(pa.array(mine, pa.bool_()))


def restored(snapshots: Sequence[Snapshot], count: int) -> list[ProcessSubtask]:
    workers = [opened(Remember(), n, count, backend=rocks_backend()) for n in range(count)]
    for worker in workers:
        mine = owned_key_groups(worker._context)
        worker.restore(
            [s for s in snapshots if set(range(*s.properties["key_groups"])) & set(mine)]
        )
    return workers
