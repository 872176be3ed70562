"""A failure of a check lasts until the check passes, and is told once."""

from dataclasses import replace

import dagster as dg
import pytest

from laminar_core.resources.names import check_key
from laminar_core.sensors.alerting.failed_checks import (
    Evaluation,
    Lasting,
    lasting_failure,
    untold_failures,
)

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


# --- lost files: also a warning is told -----------------------------------------------------------

LOST_FILES = check_key("payments", "files_present")
WARNED = Evaluation(
    number=5, at=50.0, partition=None, description="3 cannot be restored. Healed", trouble=3
)
SEVERE = replace(WARNED, is_severe=True, description="3 cannot be restored. Not repaired")


def tell(failed: Evaluation, told: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    news, told = untold_failures([Lasting(LOST_FILES, failed, 4)], told)
    return [concern.severity for concern in news], told


def test_a_warning_of_lost_files_is_told_once() -> None:
    severities, told = tell(WARNED, ())
    assert severities == ["warning"]
    assert tell(replace(WARNED, number=6, at=60.0), told) == ([], told)


def test_it_is_told_again_if_it_gets_severe_and_not_when_it_gets_mild() -> None:
    _, told = tell(WARNED, ())
    severities, told = tell(SEVERE, told)
    assert severities == ["error"]
    for failed in (WARNED, SEVERE, WARNED):
        severities, told = tell(failed, told)
        assert severities == []


@pytest.mark.parametrize("failed", [WARNED, SEVERE])
def test_further_losses_are_told_although_the_check_has_not_passed_since(failed) -> None:
    """Goal: the first loss stays on record until retention deletes it, which may be weeks."""
    _, told = tell(SEVERE, ())
    severities, told = tell(replace(failed, trouble=9), told)
    assert severities == ["error" if failed.is_severe else "warning"]
    assert tell(replace(failed, trouble=9), told)[0] == []


def test_warnings_of_other_checks_are_not_told() -> None:
    mild = Lasting(check_key("payments", "chain_length"), replace(WARNED, trouble=0), 4)
    assert untold_failures([mild], ()) == ([], ())


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
