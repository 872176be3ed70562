"""Alerts for people, and the user's hook that receives them.

An alert names its cause. A sensor raises one alert per cause for as long as the cause lasts. Ticks
happen at least once, so an alert may come twice; it never goes missing because of a hook that
fails.

    def notify(alert: Alert) -> None: ...      # AlertPolicy(hook="my_team.alerts:notify")
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, cast

from laminar_core.sensors.background import BackgroundReads, StillReadingError
from laminar_core.sensors.policy import AlertPolicy

RUNBOOK = "docs/operations.md"
HOOK_MS_MAX = 10_000
"""Time for all alerts of a tick; then the tick stops waiting. Dagster allows sixty seconds."""

Severity = Literal["warning", "error"]
"""``error``: the job does not run, or rows or state may be lost. ``warning``: it will get so."""

Anchor = Literal[
    "job-dead",
    "job-stuck",
    "store-down",
    "too-many-recoveries",
    "nothing-restorable",
    "start-refused",
    "recovery-cancelled",
    "alignment",
    "standby",
    "source-retention",
    "source-lag",
    "sink-transactions",
    "run-failed",
    "check-failed",
]
"""Headings of the runbook."""

Fact = str | int | float


@dataclass(frozen=True, slots=True)
class Incident:
    """A problem that a decision reports. ``cause`` is equal for repetitions of the same problem."""

    cause: str
    anchor: Anchor
    severity: Severity
    title: str
    text: str
    facts: Mapping[str, Fact] = field(default_factory=dict[str, Fact])
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """The argument of a hook. ``text`` is one line: what happened, and what to do."""

    stream: str
    severity: Severity
    title: str
    text: str
    runbook: str
    facts: Mapping[str, Fact]
    at_ms: int
    run_id: str | None = None

    def as_json(self) -> dict[str, object]:
        """Return the alert as JSON-compatible values."""
        return asdict(self)


Hook = Callable[[Alert], object]


def alert_of(stream: str, incident: Incident, at_ms: int) -> Alert:
    """Return the alert for a reported problem."""
    return Alert(
        stream=stream,
        severity=incident.severity,
        title=f"{stream}: {incident.title}",
        text=" ".join(incident.text.split()),
        runbook=f"{RUNBOOK}#{incident.anchor}",
        facts=dict(incident.facts),
        at_ms=at_ms,
        run_id=incident.run_id,
    )


def new_incidents(
    incidents: Sequence[Incident], alerted: Iterable[str]
) -> tuple[list[Incident], tuple[str, ...]]:
    """Return the problems without an alert so far, and the causes to remember.

    A cause that is not found any more is forgotten, so that it is alerted again if it comes back.

    >>> new_incidents([], ["stuck:7"])
    ([], ())
    """
    known = set(alerted)
    return [f for f in incidents if f.cause not in known], tuple(f.cause for f in incidents)


def hook_problem(policy: AlertPolicy, imports: BackgroundReads) -> str | None:
    """Return why the hook cannot be called, before the first alert; None if it can, or is not set.

    The import runs in the background; a slow one is reported by a later tick.
    """
    if policy.hook is None:
        return None
    try:
        loaded = imports.read("hook", policy.load_hook)
    except StillReadingError:
        return f"hook {policy.hook} is still being imported"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may do anything
        said = " ".join(str(error).split())
        return f"hook {policy.hook} cannot be imported: {type(error).__name__}: {said}"
    return None if callable(loaded) else f"hook {policy.hook} is no function"


def raise_alerts(
    stream: str,
    incidents: Iterable[Incident],
    policy: AlertPolicy,
    log: logging.Logger,
    now_ms: int,
) -> None:
    """Log each problem and pass it to the hook; a failure of the hook is only logged."""
    alerts = [alert_of(stream, incident, now_ms) for incident in incidents]
    for alert in alerts:
        level = logging.ERROR if alert.severity == "error" else logging.WARNING
        log.log(level, "%s: %s See %s.", alert.title, alert.text, alert.runbook)
    if alerts and policy.hook is not None:
        _call_hook(policy, alerts, log)


def raise_new_alerts(
    stream: str,
    incidents: Sequence[Incident],
    alerted: Iterable[str],
    policy: AlertPolicy,
    log: logging.Logger,
    now_ms: int,
) -> tuple[str, ...]:
    """Raise an alert for each new problem; return the causes to remember."""
    news, remembered = new_incidents(incidents, alerted)
    raise_alerts(stream, news, policy, log, now_ms)
    return remembered


def _call_hook(policy: AlertPolicy, alerts: Sequence[Alert], log: logging.Logger) -> None:
    """Call the hook for one alert after the other; a slow hook continues after the tick."""
    problems: list[BaseException] = []

    def call() -> None:
        for alert in alerts:
            try:
                cast("Hook", policy.load_hook())(alert)
            except BaseException as error:  # noqa: BLE001 - it is the user's, and may do anything
                problems.append(error)

    thread = threading.Thread(target=call, name=f"alerts to {policy.hook}", daemon=True)
    thread.start()
    thread.join(HOOK_MS_MAX / 1000)
    if thread.is_alive():
        log.error("the alert hook %s takes more than %s ms", policy.hook, HOOK_MS_MAX)
    for problem in problems:
        log.error("the alert hook %s failed: %r", policy.hook, problem)
