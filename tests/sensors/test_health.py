"""Whether a stream runs, in one line; and whether its checkpoints complete."""

from dataclasses import replace
from typing import Any

import pytest

from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import GenerationEnd
from laminar_core.sensors.health import (
    DriverLife,
    FailingAttempts,
    judge_attempts,
    judge_running,
)
from laminar_core.sensors.policy import AlertPolicy

POLICY = AlertPolicy()
SEEN_MS = 1_700_000_000_000
BEATING = DriverLife(
    generation=3,
    state="beating",
    started_by="ana",
    start_reason="new version",
    seen_at_ms=SEEN_MS,
    completed_id=12,
)


def ended(outcome: str, reason: str = "", **changes: Any) -> DriverLife:
    end = GenerationEnd(generation=Generation(3), outcome=outcome, reason=reason)
    return replace(BEATING, state="ended", end=end, **changes)


@pytest.mark.parametrize(
    ("life", "said", "is_severe"),
    [
        (None, "never started: start it with laminar_start, start_from: fresh", False),
        (replace(BEATING, state="starting"), "starting: generation 3, started by ana", False),
        (
            ended("stopped", "maintenance", ended_by="bob"),
            (
                "stopped at checkpoint 12 by bob, 2023-11-14 22:13:20 UTC (maintenance): start it "
                "with laminar_start, start_from: newest"
            ),
            False,
        ),
        (ended("cancelled", completed_id=None), "start_from: fresh", False),
        (ended("finished"), "finished at checkpoint 12, 2023-11-14 22:13:20 UTC: its", False),
        (
            replace(BEATING, state="silent"),
            (
                "dead: generation 3, started by ana (new version), its last sign of life was "
                "2023-11-14 22:13:20 UTC. The sensor laminar_recovery starts it again; by hand: "
                "laminar_recover with the newest checkpoint"
            ),
            True,
        ),
        (replace(BEATING, state="gone"), "its process is gone, its last sign", True),
        (replace(BEATING, state="silent", seen_at_ms=None), "no sign of life within 10 m", True),
        (ended("failed", "no space"), "UTC (no space). Its driver may start it again", True),
        (ended("refused", "no column"), "(no column): mend that, and start it", True),
    ],
)
def test_whatever_does_not_run_is_not_green_and_says_what_to_click(life, said, is_severe) -> None:
    found = judge_running(life, POLICY)
    assert not found.passed
    assert said in found.description
    assert found.is_severe == is_severe
    assert "\n" not in found.description


def test_a_stream_that_runs_says_who_started_it() -> None:
    found = judge_running(BEATING, POLICY)
    assert found.passed
    assert found.description == (
        "running: generation 3, started by ana (new version). laminar_stop ends it with a "
        "checkpoint"
    )


def test_where_nothing_recovers_it_a_person_is_asked_to() -> None:
    off = AlertPolicy(recover=False)
    said = judge_running(replace(BEATING, state="gone"), off).description
    assert said.endswith("Start it again with laminar_recover with the newest checkpoint")


def test_attempts_are_red_with_their_number_and_the_last_reason() -> None:
    assert judge_attempts(None).passed
    one = FailingAttempts(1, 13, "declined", "a worker is full", 12, is_all=True)
    assert judge_attempts(one).description == (
        "1 attempt at a checkpoint failed, and none completed since checkpoint 12; the last, 13, "
        "declined: a worker is full"
    )
    many = FailingAttempts(50, 70, "expired", "", None, is_all=False)
    found = judge_attempts(many)
    assert (found.passed, found.is_severe) == (False, True)
    assert found.figures == {"failed_in_a_row": 50}
    assert found.description == (
        "50 or more attempts at a checkpoint failed, and none completed ever; the last, 70, "
        "expired: no reason is recorded"
    )
