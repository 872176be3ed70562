"""A failure of a check lasts until the check passes, and is told once."""

from dataclasses import replace

import dagster as dg

from resources.names import check_key
from sensors.alerting.failed_checks import Evaluation, Lasting, lasting_failure, untold_failures

CHECK = check_key("payments", "freshness")
FAILED = Evaluation(number=5, at=50.0, partition=None, is_severe=True, description="it is late")
PASSED = Evaluation(number=4, at=40.0, partition=None)


def lasting(failed: Evaluation = FAILED, passed: int = 4) -> Lasting:
    return Lasting(CHECK, failed, passed)


def test_the_newest_failure_since_the_last_pass_stands_for_all() -> None:
    later = replace(FAILED, number=9, at=90.0)
    assert lasting_failure(CHECK, [later, FAILED], PASSED) == lasting(later)
    assert lasting_failure(CHECK, [FAILED], None) == lasting(passed=0)


def test_rows_are_ordered_by_when_they_were_filled_in() -> None:
    assert lasting_failure(CHECK, [replace(FAILED, number=9, at=39.0)], PASSED) is None
    assert lasting_failure(CHECK, [replace(FAILED, number=3)], PASSED) is not None


def test_what_is_told_is_remembered_while_it_lasts() -> None:
    news, told = untold_failures([lasting()], ())
    assert [found.title for found in news] == ["check freshness failed"]
    assert untold_failures([lasting(replace(FAILED, number=7))], told) == ([], told)
    assert untold_failures([], told) == ([], ())
    assert len(untold_failures([lasting(passed=6)], told)[0]) == 1


def test_a_failure_that_gets_mild_for_a_while_is_the_same() -> None:
    """As of a store that does not answer while the job is late."""
    mild = lasting(replace(FAILED, is_severe=False))
    assert untold_failures([mild], ()) == ([], ())
    _, told = untold_failures([lasting()], ())
    _, told = untold_failures([mild], told)
    assert untold_failures([lasting()], told)[0] == []


def test_the_first_look_tells_nothing_of_what_it_finds() -> None:
    news, told = untold_failures([lasting()], None)
    assert (news, told) == ([], (lasting().cause,))
    mild = lasting(replace(FAILED, is_severe=False))
    _, told = untold_failures([mild], None)
    assert len(untold_failures([lasting()], told)[0]) == 1


def test_a_concern_names_check_checkpoint_and_run() -> None:
    key = dg.AssetCheckKey(dg.AssetKey(["payments", "checkpoint"]), "manifest_integrity")
    failed = replace(FAILED, partition="0000000042", run_id="r1")
    found = Lasting(key, failed, 0).concern()
    assert found.title == "check manifest_integrity of 42 failed"
    assert found.text == "manifest_integrity of payments/checkpoint of 42: it is late"
    assert found.run_id == "r1"
