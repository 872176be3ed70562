"""Decide which standbys of a stream are ended, and whether one is started. Pure.

The rules:

K1  A stream that wants no standby has none: those that wait are ended.
K2  A standby is started only while a driver runs the job and has given a sign of life. A job that
    is over has none: its standby ends by itself (S1 in ``driver.standby``). A driver on its way up
    needs the machine for itself. A driver that is lost is taken over, or started by a run.
K3  A standby that would run something else than the driver's next start is ended; the next one is
    started when it is gone. Of several, the oldest stays: it is warm.
K4  After a standby that died while the driver lived, the next one waits, each time twice as long,
    up to ten minutes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from laminar_core.resources.values import Values
from laminar_core.sensors.alerting.alerts import Incident

JobState = Literal["none", "over", "starting", "lost", "runs"]

STABLE_MS = 60_000
"""A standby that has lived for so long is not one that dies at once."""
_PAUSE_MS = 10_000
_PAUSE_MS_MAX = 600_000
_DEATHS_TOLD = 3
_NOT_NOW = {
    "none": "the job has never run",
    "over": "the job is over",
    "starting": "the driver is on its way up",
    "lost": "the driver is lost",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A standby that lives, and has not become the driver."""

    name: str
    """Name of its log; the names are in the order of starts."""
    digest: str
    started_at_ms: int


class Deaths(Values):
    """Deaths of standbys in a row, as the keeper has seen them, by its own clock."""

    generation: int = 0
    name: str = ""
    """The standby that waited at the last look; empty: none."""
    digest: str = ""
    count: int = 0
    last_ms: int = 0

    def then(
        self, generation: int, wanted: str, waiting: Sequence[Waiting], now_ms: int
    ) -> "Deaths":
        """Return what is known after another look."""
        waiting = [each for each in waiting if each.digest == wanted]  # The others are to end.
        if (generation, wanted) != (self.generation, self.digest):
            # It was not a death, but a take-over, or it was to end.
            known = self.count if wanted == self.digest and not self.name else 0
            name = waiting[0].name if waiting else ""
            kept = self.last_ms if known else 0
            return Deaths(
                generation=generation, name=name, digest=wanted, count=known, last_ms=kept
            )
        if waiting:
            first = waiting[0]
            is_stable = now_ms - first.started_at_ms >= STABLE_MS
            changes = {"name": first.name, "count": 0 if is_stable else self.count}
            return self.model_copy(update=changes)
        if not self.name:
            return self
        return self.model_copy(update={"name": "", "count": self.count + 1, "last_ms": now_ms})

    def left_ms(self, now_ms: int) -> int:
        """Return how long the next start has to wait; a clock that was set back ends the wait."""
        if not self.count:
            return 0
        pause_ms = min(_PAUSE_MS * 2 ** min(self.count - 1, 10), _PAUSE_MS_MAX)
        passed_ms = now_ms - self.last_ms
        return max(pause_ms - passed_ms, 0) if passed_ms >= 0 else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The acts of one look; ``why`` is for the line about the stream if no standby stays."""

    why: str
    retire: tuple[str, ...] = ()
    start: bool = False
    stays: str | None = None


def decide_standbys(
    wanted: str | None, job: JobState, waiting: Sequence[Waiting], left_ms: int
) -> Plan:
    """Return what to do; ``wanted`` is the digest of the standby, ``waiting`` is oldest first."""
    if wanted is None:
        return Plan("the stream wants none", retire=tuple(w.name for w in waiting))
    fitting = [w.name for w in waiting if w.digest == wanted]
    if job in _NOT_NOW:
        return Plan(_NOT_NOW[job], stays=fitting[0] if fitting else None)
    others = tuple(w.name for w in waiting if w.name not in fitting[:1])
    if fitting:
        return Plan("", retire=others, stays=fitting[0])
    if others:
        return Plan("it is replaced, because the stream's definition is another", retire=others)
    if left_ms:
        return Plan(f"it died; the next one starts in {left_ms / 1000:.0f} s")
    return Plan("", start=True)


def standby_incidents(deaths: Deaths, log: str) -> list[Incident]:
    """Return a warning if standbys die again and again."""
    if deaths.count < _DEATHS_TOLD:
        return []
    text = (
        f"{deaths.count} standbys in a row died while the driver lived; the stream runs, and a "
        f"take-over would be slow: read the log of the last one, {log}"
    )
    return [
        Incident(
            cause="standby:dies",
            anchor="standby",
            severity="warning",
            title="the standby dies again and again",
            text=text,
            facts={"deaths": deaths.count, "log": log},
        )
    ]
