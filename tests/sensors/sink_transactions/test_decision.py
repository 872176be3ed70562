"""Output that expires is reported in time, also if nobody is there to commit it."""

import pytest

from laminar_core.sensors.judgements import OutputExpiry, Uncommitted
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.sink_transactions.decision import transaction_incidents, transaction_line

POLICY = AlertPolicy(transaction_margin="5 minutes")
NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def expiring(minutes_left: float, sink: str = "out", after: float = 14) -> OutputExpiry:
    """Output that had ``after`` minutes when its checkpoint completed."""
    expires_at_ms = NOW_MS + round(minutes_left * MINUTE_MS)
    return OutputExpiry(sink, 7, expires_at_ms - round(after * MINUTE_MS), expires_at_ms)


def waiting(*expiries: OutputExpiry) -> Uncommitted:
    return Uncommitted((7, 8), NOW_MS - 1_000, expiries)


@pytest.mark.parametrize(
    ("found", "severity", "state"),
    [
        (expiring(13), None, ""),
        (expiring(5), None, ""),
        (expiring(4.9), "warning", "expiring"),
        (expiring(0), "error", "expired"),
        (expiring(-90), "error", "expired"),
        (expiring(0.9, after=1), None, ""),  # A short life is no trouble as long as commits come.
        (expiring(0.4, after=1), "warning", "expiring"),
        (expiring(-1, after=-2), "error", "expired"),
    ],
)
def test_a_warning_comes_before_the_expiry_and_an_error_after_it(
    found: OutputExpiry, severity: str | None, state: str
) -> None:
    incidents = transaction_incidents(waiting(found), NOW_MS, POLICY)
    assert [each.severity for each in incidents] == ([severity] if severity else [])
    assert [each.cause for each in incidents] == (
        [f"sink-transactions:out:7:{state}"] if severity else []
    )


def test_each_sink_has_a_warning_of_its_own_with_the_facts() -> None:
    first, second = transaction_incidents(waiting(expiring(1), expiring(-2, "b")), NOW_MS, POLICY)
    assert (first.facts, second.facts) == (
        {"checkpoint_id": 7, "seconds_left": 60},
        {"checkpoint_id": 7, "seconds_left": -120},
    )
    assert first.text.startswith("output of checkpoint 7 in sink out expires in 1.0 minutes: start")
    assert "sink b expired 2.0 minutes ago, and no commit of it is recorded" in second.text
    assert "laminar recover --dry-run" in second.text


def test_output_that_never_expires_and_output_that_is_committed_are_no_trouble() -> None:
    assert transaction_incidents(waiting(), NOW_MS, POLICY) == []
    assert transaction_incidents(None, NOW_MS, POLICY) == []


def test_the_line_of_a_tick_says_what_waits() -> None:
    assert transaction_line(None, NOW_MS) == "no output waits for its commit"
    said = "output of 2 checkpoints waits: "
    assert transaction_line(waiting(), NOW_MS) == f"{said}nothing says that it expires"
    line = transaction_line(waiting(expiring(10)), NOW_MS)
    assert line == f"{said}output of checkpoint 7 in sink out expires in 10.0 minutes"
