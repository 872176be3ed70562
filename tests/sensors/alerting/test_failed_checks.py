"""A failure of a check lasts until the check passes, and raises one alert."""

from dataclasses import replace

import dagster as dg
import pytest

from laminar_core.resources.names import check_key
from laminar_core.sensors.alerting.failed_checks import (
    Evaluation,
    Lasting,
    lasting_failure,
    new_failures,
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


def test_an_alerted_failure_is_remembered_while_it_lasts() -> None:
    news, alerted = new_failures([lasting()], ())
    assert [found.title for found in news] == ["check freshness failed"]
    assert new_failures([lasting(replace(FAILED, number=7))], alerted) == ([], alerted)
    assert new_failures([], alerted) == ([], ())
    assert len(new_failures([lasting(passed=6)], alerted)[0]) == 1


def test_a_failure_that_gets_mild_for_a_while_is_the_same() -> None:
    """As of a store that does not answer while the job is late."""
    mild = lasting(replace(FAILED, is_severe=False))
    assert new_failures([mild], ()) == ([], ())
    _, alerted = new_failures([lasting()], ())
    _, alerted = new_failures([mild], alerted)
    assert new_failures([lasting()], alerted)[0] == []


# --- lost files: a warning raises an alert as well ------------------------------------------------

LOST_FILES = check_key("payments", "files_present")
WARNED = Evaluation(
    number=5, at=50.0, partition=None, description="3 cannot be restored. Healed", newest_mark=3
)
SEVERE = replace(WARNED, is_severe=True, description="3 cannot be restored. Not repaired")


def alert(failed: Evaluation, alerted: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    news, alerted = new_failures([Lasting(LOST_FILES, failed, 4)], alerted)
    return [incident.severity for incident in news], alerted


def test_a_warning_of_lost_files_raises_one_alert() -> None:
    severities, alerted = alert(WARNED, ())
    assert severities == ["warning"]
    assert alert(replace(WARNED, number=6, at=60.0), alerted) == ([], alerted)


def test_another_alert_is_raised_if_it_gets_severe_and_none_when_it_gets_mild() -> None:
    _, alerted = alert(WARNED, ())
    severities, alerted = alert(SEVERE, alerted)
    assert severities == ["error"]
    for failed in (WARNED, SEVERE, WARNED):
        severities, alerted = alert(failed, alerted)
        assert severities == []


@pytest.mark.parametrize("failed", [WARNED, SEVERE])
def test_further_losses_raise_alerts_although_the_check_has_not_passed_since(failed) -> None:
    """Goal: the first loss stays on record until retention deletes it, which may be weeks."""
    _, alerted = alert(SEVERE, ())
    severities, alerted = alert(replace(failed, newest_mark=9), alerted)
    assert severities == ["error" if failed.is_severe else "warning"]
    assert alert(replace(failed, newest_mark=9), alerted)[0] == []


def test_warnings_of_other_checks_raise_no_alert() -> None:
    mild = Lasting(check_key("payments", "chain_length"), replace(WARNED, newest_mark=0), 4)
    assert new_failures([mild], ()) == ([], ())


def test_failures_before_the_first_tick_raise_no_alert() -> None:
    news, alerted = new_failures([lasting()], None)
    assert (news, alerted) == ([], (lasting().cause,))
    mild = lasting(replace(FAILED, is_severe=False))
    _, alerted = new_failures([mild], None)
    assert len(new_failures([lasting()], alerted)[0]) == 1


def test_an_incident_names_check_checkpoint_and_run() -> None:
    key = dg.AssetCheckKey(dg.AssetKey(["payments", "checkpoint"]), "manifest_integrity")
    failed = replace(FAILED, partition="0000000042", run_id="r1")
    found = Lasting(key, failed, 0).incident()
    assert found.title == "check manifest_integrity of 42 failed"
    assert found.text == "manifest_integrity of payments/checkpoint of 42: it is late"
    assert found.run_id == "r1"
