"""Which standbys are ended and started: the rules as a table."""

import pytest

from laminar_core.sensors.standby.decision import (
    STABLE_MS,
    Deaths,
    Waiting,
    decide_standbys,
    standby_incidents,
)

FIRST, SECOND = Waiting("1", "new", 0), Waiting("2", "new", 0)
OLD = Waiting("0", "old", 0)


@pytest.mark.parametrize(
    ("wanted", "job", "waiting", "left_ms", "then"),
    [
        (None, "runs", [], 0, ((), False, None)),
        (None, "runs", [FIRST, OLD], 0, (("1", "0"), False, None)),
        (None, "none", [FIRST], 0, (("1",), False, None)),
        ("new", "none", [], 0, ((), False, None)),
        ("new", "over", [], 0, ((), False, None)),
        ("new", "over", [FIRST], 0, ((), False, "1")),
        ("new", "starting", [], 0, ((), False, None)),
        ("new", "starting", [OLD], 0, ((), False, None)),
        ("new", "lost", [], 0, ((), False, None)),
        ("new", "lost", [OLD, FIRST], 0, ((), False, "1")),
        ("new", "runs", [], 0, ((), True, None)),
        ("new", "runs", [], 1, ((), False, None)),
        ("new", "runs", [FIRST], 0, ((), False, "1")),
        ("new", "runs", [FIRST], 1, ((), False, "1")),
        ("new", "runs", [FIRST, SECOND], 0, (("2",), False, "1")),
        ("new", "runs", [OLD], 0, (("0",), False, None)),
        ("new", "runs", [OLD, FIRST], 0, (("0",), False, "1")),
    ],
)
def test_the_rules(wanted, job, waiting, left_ms, then) -> None:
    plan = decide_standbys(wanted, job, waiting, left_ms)
    assert (plan.retire, plan.start, plan.stays) == then
    assert plan.why or plan.start or plan.stays


def started(deaths: Deaths, name: str) -> Deaths:
    return deaths.model_copy(update={"name": name})


def test_each_death_in_a_row_doubles_the_pause_up_to_a_bound() -> None:
    deaths, pauses = Deaths().then(1, "new", [], 0), list[int]()
    for number in range(9):
        deaths = started(deaths, str(number)).then(1, "new", [], 0)
        pauses.append(deaths.left_ms(0) // 1000)
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert deaths.left_ms(599_000) == 1_000
    assert deaths.left_ms(-1) == 0  # The clock was set back.


def test_one_warning_names_the_log_of_standbys_that_die() -> None:
    assert standby_incidents(Deaths(count=2), "a.log") == []
    (told,) = standby_incidents(Deaths(count=3), "a.log")
    (again,) = standby_incidents(Deaths(count=4), "b.log")
    assert told.cause == again.cause
    assert "a.log" in told.text


def test_a_standby_that_stays_ends_the_row() -> None:
    deaths = started(Deaths(generation=1, digest="new", count=5), "1")
    assert deaths.then(1, "new", [FIRST], STABLE_MS - 1).count == 5
    assert deaths.then(1, "new", [FIRST], STABLE_MS).count == 0


def test_a_take_over_is_no_death() -> None:
    deaths = started(Deaths(generation=1, digest="new"), "1").then(2, "new", [], 5)
    assert (deaths.count, deaths.left_ms(5)) == (0, 0)


def test_another_definition_gets_its_chance_at_once() -> None:
    deaths = Deaths(generation=1, digest="old", count=9, last_ms=5)
    assert deaths.then(1, "new", [], 5).left_ms(5) == 0
    assert deaths.then(2, "old", [], 5).left_ms(5) > 0  # The same one still dies.
