"""Whether housekeeping is due, from what a schedule saw."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from laminar_core.orchestration.housekeeping.schedule_decision import Due, NotDue, Tick, decide_tick

TICK = Tick("s", "j", datetime(2026, 1, 2, 3, 4, tzinfo=UTC), generation=1, completed=2)


def test_it_is_due_when_the_stream_ran_and_has_what_the_job_needs() -> None:
    assert decide_tick(TICK, 2) == Due("s of 2026-01-02T03:04Z")


def test_why_it_is_not_due_is_said() -> None:
    down = replace(TICK, problem="no answer", generation=None)
    assert decide_tick(down) == NotDue("the store could not be read: no answer")
    never = decide_tick(replace(TICK, generation=None))
    assert isinstance(never, NotDue)
    assert "never ran" in never.reason
    assert decide_tick(TICK, 3) == NotDue("the store has 2 completed checkpoints: j needs 3")


def test_the_time_is_that_of_utc_wherever_the_schedule_is() -> None:
    there = TICK.time.astimezone(timezone(timedelta(hours=5)))
    assert replace(TICK, time=there).at == TICK.at
