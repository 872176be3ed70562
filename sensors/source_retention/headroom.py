"""Decide when to warn that the oldest retained checkpoint loses its rows. Pure."""

from collections.abc import Sequence

from laminar_core.sensors.alerting.alerts import Fact, Incident
from laminar_core.sensors.judgements import Headroom, headroom_line
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.units import duration_ms


def headroom_incidents(found: Sequence[Headroom], policy: AlertPolicy) -> list[Incident]:
    """Return a warning for each source that may soon delete rows, or has done so.

    The cause does not name the checkpoint: as retention deletes the oldest one, the next takes its
    place, and that is no new problem.
    """
    margin_ms = duration_ms(policy.source_margin)
    return [_incident(each) for each in found if each.expires_within(margin_ms)]


def _incident(found: Headroom) -> Incident:
    facts: dict[str, Fact] = {"checkpoint_id": found.checkpoint_id}
    if found.rows is not None:
        facts["headroom_rows"] = found.rows
    if found.seconds_left is not None:
        facts["seconds_left"] = round(found.seconds_left)
    state = "lost" if found.is_lost else "expiring"
    return Incident(
        cause=f"source-headroom:{found.source}:{state}",
        anchor="source-retention",
        severity="warning",
        title=f"source {found.source} drops rows of the oldest checkpoint",
        text=f"{headroom_line(found)}. Let the source keep more, or let retention delete the "
        "checkpoint",
        facts=facts,
    )
