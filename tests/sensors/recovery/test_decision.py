"""Dead or not, and whose turn it is: a table of situations."""

from dataclasses import replace

import pytest

from laminar_core.protocol.silence import Silence
from laminar_core.records.actor import ActorKind
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.recovery.decision import (
    Alarm,
    Leave,
    Recover,
    RecoveryFacts,
    decide_recovery,
    incidents_of,
)
from laminar_core.sensors.run_records import KnownRun, RunStatus

POLICY = AlertPolicy(heartbeat_max="30 seconds", checkpoint_age_max="10 minutes", recoveries_max=3)
ALIVE = RecoveryFacts(
    generation=4,
    owner="unseen",
    silence=Silence(900, 1),
    progress_age_ms=2_000,
    beating_ms=86_400_000,
    newest_checkpoint=9,
)
GONE = replace(ALIVE, owner="gone")
SILENT = replace(ALIVE, silence=Silence(30_001, 6))
STUCK = replace(ALIVE, progress_age_ms=600_001)


def run(status: RunStatus, ended_ms_ago: float | None = None) -> KnownRun:
    return KnownRun(f"run-{status}", "payments_recovery", status, 60_000, ended_ms_ago)


def decide(facts: RecoveryFacts, policy: AlertPolicy = POLICY) -> str:
    """In short: the mode of a recovery, the anchor of an alarm, or the reason to leave it."""
    match decide_recovery(facts, policy):
        case Recover(attempt, running_driver):
            return f"{running_driver} {attempt}"
        case Alarm(incident):
            return f"#{incident.anchor}"
        case Leave(reason):
            return reason


@pytest.mark.parametrize(
    ("facts", "decision"),
    [
        (RecoveryFacts(), "the job has never run"),
        (ALIVE, "generation 4 is alive: checkpoint 9 completed 2 s ago, last sign of life seen"),
        (GONE, "refuse 1"),
        (SILENT, "take_over 1"),
        (replace(SILENT, owner="running"), "take_over 1"),  # Asleep, or it hangs.
        (replace(ALIVE, silence=Silence(30_000, 6)), "generation 4 is alive"),
        (replace(ALIVE, silence=Silence(1e9, 2)), "generation 4 is alive"),  # A clock jumped.
        (STUCK, "take_over 1"),
        (replace(ALIVE, progress_age_ms=600_000), "generation 4 is alive"),
        (replace(STUCK, beating_ms=600_000), "generation 4 is alive"),  # Back from an outage.
        (replace(ALIVE, progress_age_ms=None, silence=Silence(600_000, 99)), "4 is starting"),
        (replace(ALIVE, progress_age_ms=None, silence=Silence(600_001, 99)), "take_over 1"),
        (replace(GONE, progress_age_ms=None), "refuse 1"),
    ],
)
def test_what_counts_as_dead(facts: RecoveryFacts, decision: str) -> None:
    assert decision in decide(facts)


@pytest.mark.parametrize("outcome", ["finished", "stopped", "cancelled"])
def test_what_ended_on_purpose_is_not_dead(outcome: str) -> None:
    ended = replace(GONE, outcome=outcome, on_purpose=True, silence=Silence(1e9, 99))
    assert decide(ended) == f"generation 4 {outcome}: it is not meant to run"


@pytest.mark.parametrize(
    ("changes", "decision"),
    [
        ({"owner": "running"}, "its driver may start it again by itself"),
        ({"owner": "running", "silence": Silence(60_001, 9)}, "refuse 1"),  # It never did.
        ({"owner": "unseen", "silence": Silence(59_000, 9)}, "may start it again by itself"),
        ({"owner": "unseen", "silence": Silence(60_001, 9)}, "refuse 1"),
        ({"owner": "gone"}, "refuse 1"),
        ({"owner": "gone", "outcome": "refused", "started_by": "ada"}, "#start-refused"),
        ({"owner": "gone", "outcome": "refused", "started_by": "sensor ada"}, "#start-refused"),
        ({"owner": "gone", "outcome": "refused", "started_by_kind": ActorKind.SENSOR}, "refuse 1"),
    ],
)
def test_a_failure_is_its_own_drivers_first(changes: dict[str, object], decision: str) -> None:
    failed = replace(ALIVE, outcome="failed", outcome_reason="worker 1: lost")
    assert decision in decide(replace(failed, **changes))


@pytest.mark.parametrize(
    ("changes", "decision"),
    [
        ({"supervising_run": "r1"}, "run r1 owns the driver and starts it again by itself"),
        ({"terminated_run": "r1"}, "#recovery-cancelled"),
        ({"acting_run": run("in progress")}, "(payments_recovery) is under way"),
        (
            {"attempts": (run("in progress"),)},
            "run run-in progress (payments_recovery) is under way",
        ),
        ({"attempts": (run("cancelled", 1e9),)}, "#recovery-cancelled"),
        ({"attempts": (run("created"),)}, "refuse 1"),  # Its tick died: the same once more.
        ({"attempts": (run("failed", 14_000),)}, "the next one starts in 1 s"),
        ({"attempts": (run("failed", 15_000),)}, "refuse 2"),
        ({"attempts": (run("failed", 9e9), run("failed", 29_000))}, "the next one starts in 1 s"),
        ({"attempts": (run("failed", 9e9), run("failed", 30_000))}, "refuse 3"),
        ({"attempts": (run("succeeded", 15_000),)}, "refuse 2"),  # And yet it is dead.
        ({"attempts": (run("failed", 9e9),) * 3}, "#too-many-recoveries"),
        ({"recent": (run("succeeded", 1_000),) * 2}, "refuse 1"),  # It had completed something.
        ({"recent": (run("succeeded", 1_000),) * 3}, "#too-many-recoveries"),
    ],
)
def test_one_death_is_one_run_and_the_next_only_after_a_failed_one(
    changes: dict[str, object], decision: str
) -> None:
    assert decision in decide(replace(GONE, **changes))


@pytest.mark.parametrize(
    ("ended_ms_ago", "decision"),
    [
        ((14_000,), "recovered 1x in vain, the next one starts in 1 s"),
        ((15_000,), "refuse 1"),
        ((29_000, 900_000), "recovered 2x in vain, the next one starts in 1 s"),
        ((30_000, 900_000), "refuse 1"),
    ],
)
def test_recoveries_whose_generations_completed_nothing_are_pauses_apart(
    ended_ms_ago: tuple[int, ...], decision: str
) -> None:
    """Goal: a source that is away for minutes does not use up all recoveries at once."""
    recent = tuple(run("failed", ms) for ms in ended_ms_ago)
    assert decision in decide(replace(GONE, newest_checkpoint=None, recent=recent))


HANGING = KnownRun("run-7", "payments_rescale", "in progress", 900_001)


@pytest.mark.parametrize(
    ("changes", "decision"),
    [
        ({"supervising_run": "r1", "silence": Silence(60_000, 9)}, "starts it again by itself"),
        ({"supervising_run": "r1", "silence": Silence(60_001, 9)}, "refuse 1"),
        ({"supervising_run": "r1", "silence": Silence(1e9, 2)}, "starts it again by itself"),
        ({"acting_run": HANGING}, "#job-dead"),
        ({"attempts": (HANGING,)}, "#job-dead"),
    ],
)
def test_a_run_whose_process_is_gone_is_not_waited_for_for_ever(
    changes: dict[str, object], decision: str
) -> None:
    """Goal: a code server that was killed leaves runs that Dagster shows as started for ever."""
    assert decision in decide(replace(GONE, **changes))


def test_a_driver_that_sleeps_in_a_supervised_run_is_taken_over() -> None:
    asleep = replace(ALIVE, owner="running", supervising_run="r1", silence=Silence(61_000, 9))
    assert decide(asleep) == "take_over 1"


def test_a_stuck_job_in_a_supervised_run_is_for_a_person() -> None:
    assert decide(replace(STUCK, supervising_run="r1")) == "#job-stuck"


@pytest.mark.parametrize(
    ("facts", "anchor"), [(GONE, "#job-dead"), (SILENT, "#job-dead"), (STUCK, "#job-stuck")]
)
def test_with_recovery_off_an_alert_is_raised(facts: RecoveryFacts, anchor: str) -> None:
    assert decide(facts, POLICY.model_copy(update={"recover": False})) == anchor


def test_a_policy_of_no_recoveries_is_one_of_alarms() -> None:
    assert decide(GONE, AlertPolicy(recoveries_max=0)) == "#too-many-recoveries"


def test_a_stuck_job_raises_an_alert_though_it_is_taken_over() -> None:
    (found,) = incidents_of(STUCK, decide_recovery(STUCK, POLICY))
    assert found.cause == "job-stuck:4:0"
    assert incidents_of(GONE, decide_recovery(GONE, POLICY)) == []
    assert incidents_of(ALIVE, decide_recovery(ALIVE, POLICY)) == []
