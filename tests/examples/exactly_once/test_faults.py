"""The demo kills whom it should, when there is something to recover from, and measures it."""

from typing import Any

import pytest

from examples.exactly_once.faults import FaultPlan, Kill

TOTAL = 1000


def event(word: str) -> dict[str, Any]:
    """``d7`` driver with pid 7, ``w5,6`` workers, ``f90`` data flows at 90 ms, ``c`` a checkpoint,
    ``p300`` three hundred rows read; anything else is an event that the plan does not know.
    """
    kind, rest = word[0], word[1:]
    match kind:
        case "d":
            return {"event": "driver-started", "pid": int(rest)}
        case "w":
            return {"event": "workers-running", "pids": [int(pid) for pid in rest.split(",")]}
        case "f":
            return {"event": "data-flowing", "time_ms": int(rest)}
        case "c":
            return {"event": "checkpoint-completed"}
        case "p":
            rows = int(rest)
            return {"event": "progress", "time_ms": rows, "rows_in": rows, "rows_total": TOTAL}
        case _:
            return {"event": word}


def play(script: str) -> tuple[FaultPlan, list[Kill]]:
    plan = FaultPlan()
    due = [plan.hear(event(word)) for word in script.split()]
    return plan, [kill for kill in due if kill]


START = "d1 generation-started w5,6 f10"


@pytest.mark.parametrize(
    ("script", "killed"),
    [
        ("c c c p199", ""),  # Too early.
        ("c c p500", ""),  # Too few checkpoints.
        ("c c c p200", "worker 5"),
        ("c c c p200 p700 p900", "worker 5"),  # Data does not flow yet: nothing to kill.
        ("c c c p200 f300 c c p900", "worker 5"),
        ("c c c p200 f300 c c c p450", "worker 5, driver 1"),
        ("c c c p200 f300 c c c p450 d2 w7,8 f460 c c c p700", "worker 5, driver 1, worker 7"),
        ("c c c p200 f300 c c c p450 d2 w7,8 f460 c c c p700 f701 c c c p999", "three"),
    ],
)
def test_who_is_killed_and_when(script: str, killed: str) -> None:
    _, kills = play(f"{START} {script}")
    names = ", ".join(f"{kill.victim} {kill.pid}" for kill in kills)
    assert (names if len(kills) < 3 or killed != "three" else "three") == killed


def test_recovery_is_the_time_until_data_flows_again() -> None:
    plan, (kill,) = play(f"{START} c c c p200 f310")
    assert kill.recovery_ms == 110
    assert not plan.complete


def test_a_kill_that_nothing_recovers_from_has_no_recovery_time() -> None:
    _, (kill,) = play(f"{START} c c c p200 c c c")
    assert kill.recovery_ms is None


def test_the_plan_is_complete_when_every_kill_was_survived() -> None:
    script = f"{START} c c c p200 f300 c c c p450 d2 w7,8 f460 c c c p700"
    assert not play(script)[0].complete
    assert play(f"{script} f800")[0].complete


def test_an_unbounded_job_is_left_alone() -> None:
    plan, _ = play(f"{START} c c c")
    unbounded = {"event": "progress", "time_ms": 1, "rows_in": 9, "rows_total": None}
    assert plan.hear(unbounded) is None
