"""Decide about a driver's Job by the facts that the API server and the store have. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from laminar_core.resources.drivers.events import DriverEvent
from laminar_core.store.generation_summary import GenerationSummary

_GOES_ON = ("failed", "refused")
"""Ends of a generation after which its driver may start the next one, or exits with an error."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A Job as the API server has it."""

    name: str
    uid: str
    managed: bool
    """Whether its labels say that a launcher made it."""
    follows: int | None
    digest: str
    state: Literal["active", "complete", "failed"] = "active"
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The pod of a Job; None and empty where nothing is known yet."""

    name: str
    phase: str
    reason: str = ""
    """Why it does not run: of its container, such as ``ImagePullBackOff``, or of the scheduler."""
    message: str = ""
    exit_code: int | None = None


Existing = Literal["adopt", "replace", "wait", "refuse", "foreign"]


def decide_existing(found: JobFacts, pods: Sequence[PodFacts], digest: str) -> Existing:
    """Decide about a Job that is there under the name of one that should be created.

    ``adopt``: it is the same start, done again. ``replace``: it is over, or its container never
    ran, so it did nothing. ``wait``: it is being deleted. ``refuse``: another start was faster.
    ``foreign``: no launcher made it.
    """
    if not found.managed:
        return "foreign"
    if found.deleting:
        return "wait"
    if found.state != "active":
        return "replace"
    if found.digest == digest:
        return "adopt"
    return "replace" if all(pod.phase == "Pending" for pod in pods) else "refuse"


def earlier_jobs(found: Sequence[JobFacts], follows: int) -> list[JobFacts]:
    """Return the Jobs of earlier generations whose pods may still run."""
    return [
        job
        for job in found
        if job.managed and job.state == "active" and not job.deleting
        if job.follows is not None and job.follows < follows
    ]


@dataclass(frozen=True, slots=True)
class StartFacts:
    """One look at a driver on its way up; None: not there."""

    job_name: str
    generation: GenerationSummary | None
    """The newest generation, if it is newer than the one to follow."""
    job: JobFacts | None
    pods: Sequence[PodFacts] = ()
    is_seen: bool = True
    """Whether the API server answered; if not, nothing follows from a missing Job."""


@dataclass(frozen=True, slots=True)
class Starting:
    """Wait on."""

    pod: PodFacts | None
    events: dict[str, DriverEvent] = field(default_factory=dict[str, DriverEvent])


@dataclass(frozen=True, slots=True)
class Up:
    """The workers run, or the job is already over."""

    events: dict[str, DriverEvent]


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The driver has ended, and the job has not. ``exit_code`` is None if it is unknown."""

    exit_code: int | None
    reason: str
    message: str


def look(facts: StartFacts) -> Starting | Up | GaveUp:
    """Decide whether a driver has come up. The store says it does, the Job says it does not.

    A generation counts only if it was claimed from the Job's pod: another starter may have been
    faster.
    """
    events = _events(facts)
    if "workers-running" in events or "finished" in events:
        return Up(events)
    if not facts.is_seen:
        return Starting(None, events)
    pod = facts.pods[-1] if facts.pods else None
    if facts.job is None:
        return GaveUp(None, "Deleted", "somebody deleted its Job")
    if pod is not None and pod.exit_code is not None:
        return GaveUp(pod.exit_code, pod.reason, pod.message)
    if facts.job.state != "active":  # Without a pod, as after an eviction.
        return GaveUp(None, pod.reason if pod else facts.job.state, pod.message if pod else "")
    return Starting(pod, events)


def _events(facts: StartFacts) -> dict[str, DriverEvent]:
    """Return what the store knows, in the form in which a driver prints it."""
    found = facts.generation
    if found is None or found.claim is None:
        return {}
    if found.claim.owner.host_id.partition("/")[0] != facts.job_name:
        return {}
    events: dict[str, DriverEvent] = {}

    def add(event: str, time_ms: int, **more: object) -> None:
        known = {"event": event, "time_ms": time_ms, "generation": int(found.generation)}
        events[event] = known | more

    base = None if found.base is None else found.base.base_checkpoint_id
    add("generation-started", found.claim.claimed_at_ms, restored_checkpoint_id=base)
    if (beat := found.heartbeat) is not None and beat.progress:
        add("workers-running", beat.at_ms)
        if beat.progress.get("rows_in"):
            add("data-flowing", beat.at_ms)
    if found.end is not None and found.end.outcome not in _GOES_ON:
        add("finished", found.claim.claimed_at_ms, outcome=found.end.outcome)
    return events
