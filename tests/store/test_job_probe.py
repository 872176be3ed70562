"""A probe kills nothing that starts, waits or was replaced, and is ready only with workers."""

from dataclasses import replace

import pytest

from laminar_core.protocol.types import Generation
from laminar_core.store.job_probe import Probe, ProbeProblem, answer_probe
from laminar_core.store.job_status import DriverState, DriverStatus, JobStatus

RUNNING = DriverStatus(
    generation=Generation(3),
    state="running",
    owner=None,
    actor="ann",
    reason="started",
    code_version="1",
    claimed_at_ms=1,
    has_started=True,
    restored_checkpoint_id=None,
    outcome=None,
    outcome_reason=None,
    heartbeat_age_ms=1_000,
    progress={"rows_in": 0},
)


def problem(driver: DriverStatus | None, probe: Probe) -> ProbeProblem | None:
    answer = answer_probe(JobStatus("payments", 0, driver), probe, silence_ms_max=60_000)
    assert answer.exit_code == (0 if answer.problem is None else 1)
    assert "payments" in answer.message
    return answer.problem


@pytest.mark.parametrize("state", ["running", "unseen"])
def test_a_driver_whose_workers_run_is_ready_on_any_machine(state: DriverState) -> None:
    driver = replace(RUNNING, state=state)
    assert problem(driver, "ready") is None
    assert problem(replace(driver, heartbeat_age_ms=60_001), "ready") is ProbeProblem.SILENT


@pytest.mark.parametrize(
    ("driver", "why"),
    [
        (None, ProbeProblem.NEVER_RAN),
        (replace(RUNNING, state="ended", outcome="stopped"), ProbeProblem.ENDED),
        (replace(RUNNING, state="gone"), ProbeProblem.GONE),
        (replace(RUNNING, heartbeat_age_ms=None, progress={}), ProbeProblem.STARTING),
        (replace(RUNNING, progress={}), ProbeProblem.STARTING),
    ],
)
def test_without_workers_it_is_not_ready_and_not_killed(driver, why) -> None:
    assert problem(driver, "ready") is why
    assert problem(driver, "live") is None


def test_only_a_silent_driver_of_this_machine_is_killed() -> None:
    silent = replace(RUNNING, heartbeat_age_ms=60_001)
    assert problem(silent, "live") is ProbeProblem.SILENT
    assert problem(replace(silent, state="unseen"), "live") is None
    assert problem(replace(silent, heartbeat_age_ms=60_000), "live") is None
