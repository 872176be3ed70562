"""Work on given-up checkpoints holds up the next one, and not for ever."""

from laminar_core.protocol.given_up import GivenUpWork


def test_the_place_that_has_most_counts() -> None:
    work = GivenUpWork(patience_ms=100)
    assert work.holding_up(0) == 0
    work.report("driver", 1, 0)
    work.report(0, 3, 0)
    work.report(1, 2, 0)
    assert work.holding_up(1) == 3
    work.report(0, 0, 2)
    assert work.holding_up(3) == 2


def test_work_that_goes_on_is_waited_for_however_long_it_takes() -> None:
    work = GivenUpWork(patience_ms=100)
    for done, now_ms in enumerate(range(0, 5_000, 99)):
        work.report(0, 60 - done, now_ms)
        assert work.holding_up(now_ms + 98) == 60 - done


def test_work_that_stands_still_is_left_out_until_some_of_it_is_done() -> None:
    work = GivenUpWork(patience_ms=100)
    work.report(0, 2, 0)
    assert (work.holding_up(99), work.holding_up(100)) == (2, 0)
    work.report(0, 3, 150)  # The attempt that was let through was given up as well.
    assert work.holding_up(150) == 0
    work.report(0, 2, 200)
    assert work.holding_up(200) == 2


def test_work_that_comes_anew_has_all_the_time() -> None:
    work = GivenUpWork(patience_ms=100)
    work.report(0, 0, 0)
    work.report(0, 2, 1_000)
    assert work.holding_up(1_099) == 2
