"""Verdicts at their thresholds: one value that passes, and the next one that does not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.records.audit import START, AuditReport, Finding
from laminar_core.records.drill import DrillRecord
from laminar_core.records.manifest import GenerationEnd
from laminar_core.sensors.judgements import (
    NEWEST_MARK,
    Headroom,
    JobLife,
    LostFiles,
    OutputExpiry,
    SourceNeeds,
    Uncommitted,
    Verdict,
    alignment_p99,
    both,
    ended_on_purpose,
    judge_alignment,
    judge_audit_chain,
    judge_chain_length,
    judge_freshness,
    judge_headroom,
    judge_inflight_share,
    judge_lost_files,
    judge_restorable,
    judge_source_retention,
    judge_transactions,
    oldest_row_needed_ms,
    percentile,
)
from laminar_core.sensors.policy import AlertPolicy

POLICY = AlertPolicy(source_keeps="2 days", source_margin="6 hours", drill_age_max="2 days")
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
SECOND_US = 1_000_000


# --- percentiles ----------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_smallest_that_so_many_are_no_greater_than(values, share) -> None:
    found = percentile(values, share)
    assert sum(v <= found for v in values) >= share * len(values) - 1e-9
    smaller = [v for v in values if v < found]
    assert not smaller or sum(v <= max(smaller) for v in values) < share * len(values)


def test_the_p99_is_of_the_window_and_of_enough_samples() -> None:
    policy = AlertPolicy(alignment_window=4, alignment_samples_min=2)
    assert alignment_p99([9_999.0, 1.0, 2.0, 3.0, 4.0], policy) == 4.0
    assert alignment_p99([9_999.0], policy) is None
    assert alignment_p99([], policy) is None


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aligned_ms", "passed", "said"),
    [
        pytest.param([10, 10], True, "2 checkpoints are too few", id="too few"),
        pytest.param([10, 10, 1_000], True, "is 1000 ms", id="at the threshold"),
        pytest.param([10, 1_001, 10], False, "more than 1 second", id="above"),
        pytest.param([40_000], False, "an emergency", id="one alone is enough if it is that long"),
        pytest.param([40_000, 10, 10], False, "more than 1 second", id="only the newest is one"),
    ],
)
def test_alignment(aligned_ms: list[float], passed: bool, said: str) -> None:  # noqa: FBT001
    verdict = judge_alignment(aligned_ms, POLICY)
    assert verdict.passed == passed
    assert said in verdict.description
    assert not verdict.is_severe
    assert verdict.figures["alignment_ms"] == aligned_ms[-1]


def test_the_share_in_flight() -> None:
    assert judge_inflight_share(50, 100, POLICY).passed
    assert not judge_inflight_share(51, 100, POLICY).passed
    assert judge_inflight_share(0, 0, POLICY).figures == {"inflight_share": 0.0}


def test_the_longest_chain_is_named() -> None:
    assert judge_chain_length({"window[0]": 16, "window[1]": 2}, POLICY).passed
    verdict = judge_chain_length({"window[0]": 2, "window[1]": 17}, POLICY)
    assert not verdict.passed
    assert "window[1]" in verdict.description
    assert judge_chain_length({}, POLICY).figures == {"chain_length": 0}


# --- files that are lost --------------------------------------------------------------------------

LOST = LostFiles((3, 4), 4, 2, 4, "shared/a.arrow (missing)", NOW_MS - 1_000, is_in_memory=True)
OVERDUE = NOW_MS - 600_001


@pytest.mark.parametrize(
    ("changes", "is_severe", "said"),
    [
        pytest.param({"newest_id": 5, "whole_id": 5}, False, "Repaired: checkpoint 5", id="healed"),
        pytest.param({}, False, "Being repaired: the next checkpoint writes it", id="in memory"),
        pytest.param({"found_at_ms": OVERDUE + 1}, False, "Being repaired", id="not yet overdue"),
        pytest.param({"found_at_ms": OVERDUE}, True, "Not repaired", id="overdue"),
        pytest.param({"is_in_memory": False}, True, "goes back to checkpoint 2", id="it is gone"),
        pytest.param(
            {"is_in_memory": False, "whole_id": None}, True, "finds none that is intact", id="all"
        ),
    ],
)
def test_lost_files_are_a_warning_if_they_are_healed(changes, is_severe: bool, said: str) -> None:  # noqa: FBT001
    verdict = judge_lost_files(replace(LOST, **changes), NOW_MS, POLICY)
    assert (verdict.passed, verdict.is_severe) == (False, is_severe)
    assert verdict.description.startswith("checkpoints 3, 4 cannot be restored: the job found")
    assert "shared/a.arrow (missing)" in verdict.description
    assert said in verdict.description
    assert verdict.figures == {"damaged_checkpoints": 2, NEWEST_MARK: 4}


def test_many_damaged_checkpoints_are_not_all_named() -> None:
    many = replace(LOST, checkpoint_ids=tuple(range(1, 9)))
    said = judge_lost_files(many, NOW_MS, POLICY).description
    assert said.startswith("checkpoints 4, 5, 6, 7, 8 and 3 older ones cannot be restored: ")
    one = judge_lost_files(replace(LOST, checkpoint_ids=(4,)), NOW_MS, POLICY).description
    assert one.startswith("checkpoint 4 cannot be restored: ")


def test_a_job_that_lost_no_file_passes() -> None:
    verdict = judge_lost_files(None, NOW_MS, POLICY)
    assert verdict.passed
    assert verdict.figures == {"damaged_checkpoints": 0}


# --- the source -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reached_ms", "oldest_ms"),
    [
        pytest.param(None, NOW_MS, id="unknown"),
        pytest.param(NOW_MS - 5_000, NOW_MS - 5_000, id="behind"),
        pytest.param(NOW_MS + 5_000, NOW_MS, id="ahead says nothing"),
    ],
)
def test_rows_behind_the_cut_are_as_old_as_its_event_time(reached_ms, oldest_ms) -> None:
    reached_us = None if reached_ms is None else reached_ms * 1_000
    assert oldest_row_needed_ms(reached_us, NOW_MS) == oldest_ms


@pytest.mark.parametrize(
    ("age_h", "passed", "is_severe"),
    [(41.9, True, False), (42.1, False, False), (47.9, False, False), (48.1, False, True)],
)
def test_rows_that_expire(age_h: float, passed: bool, is_severe: bool) -> None:  # noqa: FBT001
    needs = SourceNeeds(7, NOW_MS - round(age_h * HOUR_MS))
    verdict = judge_source_retention(needs, NOW_MS, POLICY)
    assert (verdict.passed, verdict.is_severe) == (passed, is_severe)
    assert verdict.figures["hours_left"] == pytest.approx(48 - age_h, abs=0.01)
    assert "checkpoint 7" in verdict.description


def test_a_source_that_keeps_everything_or_is_not_needed_is_no_trouble() -> None:
    old = SourceNeeds(7, 0)
    assert judge_source_retention(old, NOW_MS, AlertPolicy()).passed
    assert judge_source_retention(None, NOW_MS, POLICY).passed


@pytest.mark.parametrize(
    ("rows", "seconds_left", "passed"),
    [(5, 7 * 3_600, True), (5, 5 * 3_600, False), (-1, None, False), (0, None, True)],
)
def test_headroom(rows: int, seconds_left: float | None, passed: bool) -> None:  # noqa: FBT001
    policy = AlertPolicy(source_margin="6 hours")
    safe = Headroom("files", 3, None, None)
    verdict = judge_headroom([safe, Headroom("in", 3, rows, seconds_left)], policy)
    assert (verdict.passed, verdict.is_severe) == (passed, False)
    assert verdict.figures["headroom_rows/in"] == rows
    assert ("headroom_hours/in" in verdict.figures) == (seconds_left is not None)
    assert ("files" in verdict.description) == passed


def test_two_verdicts_are_as_bad_as_the_worse_one() -> None:
    good, bad = Verdict(True, "fine", is_severe=True), Verdict(False, "not so", figures={"n": 1})  # noqa: FBT003
    verdict = both(good, bad)
    assert (verdict.passed, verdict.is_severe) == (False, False)
    assert (verdict.description, verdict.figures) == ("fine; not so", {"n": 1})
    assert both(good, replace(bad, is_severe=True)).is_severe
    assert both(good, good).passed


# --- the job --------------------------------------------------------------------------------------


def end(outcome: str, reason: str = "") -> GenerationEnd:
    return GenerationEnd(generation=3, outcome=outcome, reason=reason)


@pytest.mark.parametrize(
    ("how", "on_purpose"),
    [
        (None, False),
        (end("finished"), True),
        (end("stopped"), True),
        (end("cancelled"), True),
        (end("failed", "a worker died"), False),
        (end("refused"), False),
    ],
)
def test_what_ended_by_itself_is_not_dead(how, on_purpose: bool) -> None:  # noqa: FBT001
    assert ended_on_purpose(how) == on_purpose


def life(how: GenerationEnd | None, completed_ms: int | None, claimed_ms: int = 0) -> JobLife:
    completed_id = None if completed_ms is None else 7
    return JobLife(3, claimed_ms, how, completed_id, completed_ms)


@pytest.mark.parametrize(
    ("job", "passed", "said"),
    [
        (None, True, "never ran"),
        (life(end("stopped"), 0), True, "ended by itself: stopped"),
        (life(None, NOW_MS - 600_000), True, "checkpoint 7; 600 s"),
        (life(None, NOW_MS - 600_001), False, "stuck or dead"),
        (life(None, None, NOW_MS - 600_001), False, "newest is none"),
        (life(None, 0, NOW_MS - 1_000), True, "1 s since"),
        (life(end("failed"), NOW_MS - 700_000), False, "failed"),
    ],
)
def test_freshness(job: JobLife | None, passed: bool, said: str) -> None:  # noqa: FBT001
    verdict = judge_freshness(job, NOW_MS, POLICY)
    assert verdict.passed == passed
    assert said in verdict.description


def drilled(hours_ago: float, outcome: str = "passed") -> DrillRecord:
    return DrillRecord(
        job="payments",
        number=4,
        outcome=outcome,
        problems=() if outcome == "passed" else ("the digest of totals differs",),
        checkpoint_id=7,
        workers_before=2,
        workers=2,
        started_at_ms=NOW_MS - round(hours_ago * HOUR_MS),
        duration_ms=1.0,
        actor="ada",
        reason="every night",
    )


@pytest.mark.parametrize(
    ("drill", "passed", "is_severe", "said"),
    [
        (None, False, False, "run the drill job"),
        (drilled(1), True, False, "passed"),
        (drilled(49), False, False, "more than 2 days ago"),
        (drilled(1, "failed"), False, True, "the digest of totals differs"),
    ],
)
def test_restorable(drill, passed: bool, is_severe: bool, said: str) -> None:  # noqa: FBT001
    verdict = judge_restorable(drill, NOW_MS, POLICY)
    assert (verdict.passed, verdict.is_severe) == (passed, is_severe)
    assert said in verdict.description


def test_a_drill_that_passed_does_not_stand_for_a_newer_one_that_cannot_be_read() -> None:
    verdict = judge_restorable(drilled(1), NOW_MS, POLICY, ["drills/0000000002.json is damaged"])
    assert not verdict.passed
    assert verdict.description == "drills/0000000002.json is damaged: run the drill job"


@pytest.mark.parametrize(
    ("waiting", "passed"),
    [
        (None, True),
        (Uncommitted((8,), NOW_MS - 60_000), True),
        (Uncommitted((8, 9), NOW_MS - 60_001), False),
    ],
)
def test_transactions(waiting: Uncommitted | None, passed: bool) -> None:  # noqa: FBT001
    verdict = judge_transactions(waiting, 7, NOW_MS, POLICY)
    assert verdict.passed == passed
    assert "up to checkpoint 7" in verdict.description
    assert verdict.figures["uncommitted"] == (len(waiting.checkpoint_ids) if waiting else 0)


@pytest.mark.parametrize(
    ("left_ms", "passed", "is_severe", "said"),
    [
        (301_000, True, False, "1 from checkpoint 8 on wait"),
        (299_000, False, False, "in sink out expires in 5.0 minutes: start the job"),
        (0, False, True, "in sink out expired 0.0 minutes ago, and no commit of it is recorded"),
        (-7_200_000, False, True, "in sink out expired 120.0 minutes ago"),
    ],
)
def test_output_that_waits_may_expire(left_ms: int, passed: bool, is_severe: bool, said: str):  # noqa: FBT001
    expires_at_ms = NOW_MS + left_ms
    expiry = OutputExpiry("out", 8, expires_at_ms - 900_000, expires_at_ms)
    waiting = Uncommitted((8,), NOW_MS - 1_000, (expiry,))
    verdict = judge_transactions(waiting, 7, NOW_MS, POLICY)
    assert (verdict.passed, verdict.is_severe) == (passed, is_severe)
    assert said in verdict.description
    assert verdict.figures["expires_in_s/out"] == left_ms / 1000


def test_the_audit_chain() -> None:
    assert judge_audit_chain(AuditReport(4, START, ())).passed
    findings = (Finding("missing", 2, "record 2 is missing"), Finding("head", None, "no head"))
    verdict = judge_audit_chain(AuditReport(3, START, findings))
    assert not verdict.passed
    assert verdict.is_severe
    assert verdict.description == "record 2 is missing; and 1 more findings"
