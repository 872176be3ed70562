"""Decide when to warn that output that waits for its commit expires. Pure.

A transaction of Kafka lives for minutes. If the job is down for longer, or a sink does not answer,
rows of the last checkpoint are lost. The checkpoint itself says when that is, so no driver and no
broker is needed for the warning.
"""

from collections.abc import Sequence

from laminar_core.sensors.alerting.alerts import Incident
from laminar_core.sensors.judgements import OutputExpiry, Uncommitted, expiry_line
from laminar_core.sensors.policy import AlertPolicy


def transaction_incidents(
    waiting: Uncommitted | None, now_ms: int, policy: AlertPolicy
) -> list[Incident]:
    """Return a warning for each sink whose waiting output expires soon; an error if it has."""
    expiries: Sequence[OutputExpiry] = () if waiting is None else waiting.expiries
    return [_incident(each, now_ms) for each in expiries if each.is_near(now_ms, policy)]


def transaction_line(waiting: Uncommitted | None, now_ms: int) -> str:
    """Return one line about all sinks, for the result of a tick."""
    if waiting is None:
        return "no output waits for its commit"
    count = len(waiting.checkpoint_ids)
    said = "; ".join(expiry_line(each, now_ms) for each in waiting.expiries)
    return f"output of {count} checkpoints waits: {said or 'nothing says that it expires'}"


def _incident(found: OutputExpiry, now_ms: int) -> Incident:
    has_expired = found.has_expired(now_ms)
    state = "expired" if has_expired else "expiring"
    remedy = (
        "`laminar recover --dry-run` shows whether they are lost"
        if has_expired
        else "start the job before then, or repair what keeps its sink from committing"
    )
    return Incident(
        cause=f"sink-transactions:{found.sink}:{found.checkpoint_id}:{state}",
        anchor="sink-transactions",
        severity="error" if has_expired else "warning",
        title=f"output of sink {found.sink} {'has expired' if has_expired else 'expires soon'}",
        text=f"{expiry_line(found, now_ms)}: {remedy}",
        facts={
            "checkpoint_id": found.checkpoint_id,
            "seconds_left": round(found.left_ms(now_ms) / 1000),
        },
    )
