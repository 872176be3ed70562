"""Carry out what is decided about the standbys of a stream: end some, start one."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from laminar_core.records.actor import Actor, ActorKind
from laminar_core.records.manifest import Owner
from laminar_core.resources.drivers.standbys import LivingStandby, StandbyFolder, retire
from laminar_core.resources.names import GROUP, sensor_name
from laminar_core.resources.run_actor import child_environment
from laminar_core.resources.values import Values
from laminar_core.sensors.facts.last_start import last_workers
from laminar_core.sensors.standby.decision import Deaths, JobState, Plan, Waiting, decide_standbys
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.generation_summary import GenerationSummary, read_generation
from laminar_core.store.owner import is_running, is_visible


class JobFacts(Values):
    """The newest generation, as far as a standby depends on it."""

    state: JobState = "none"
    generation: int = 0
    owner_session: int | None = None
    """The session of the process that owns the job, if it runs on this machine. A standby leads its
    own, so this is the standby's process id if it has taken the job over."""
    workers: int | None = None
    """Number of workers with which it was started; None: unknown."""


@dataclass(frozen=True, slots=True)
class WantedStandby:
    """The standby that a stream wants."""

    command: Callable[[int | None], Sequence[str]]
    """The command for a number of workers; None: as many as in the stream's definition."""
    digest: Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Kept:
    """The outcome of a look: one line, what to remember, and the log of the newest standby."""

    line: str
    deaths: Deaths
    log: str = ""
    started: tuple[LivingStandby, ...] = field(default=())


def read_job(store: CheckpointStore, before: JobFacts | None = None) -> JobFacts:
    """Read what a standby depends on; the number of workers once for each generation.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    generation = store.claims.last()
    if generation is None:
        return JobFacts()
    found = read_generation(store.objects, store.paths, generation)
    state = _state(found)
    owner = None if found.claim is None else found.claim.owner
    workers = None if before is None or before.generation != generation else before.workers
    if workers is None and state == "runs":  # Before, the newest start may be an earlier one.
        workers = last_workers(store)
    return JobFacts(
        state=state, generation=generation, owner_session=_session_of(owner), workers=workers
    )


def not_the_driver(living: Sequence[LivingStandby], job: JobFacts) -> list[LivingStandby]:
    """Return those that still wait: a standby that has taken the job over owns it."""
    return [each for each in living if each.pid is None or each.pid != job.owner_session]


def keep_standby(
    folder: StandbyFolder,
    wanted: WantedStandby | None,
    job: JobFacts,
    deaths: Deaths,
    now_ms: int,
    *,
    group: str = GROUP,
) -> Kept:
    """Look at the standbys, and do what is decided.

    Raises:
        OSError: the standby cannot be started.
    """
    with folder.alone() as is_alone:
        if not is_alone:
            return Kept("standby: another process is looking after it", deaths)
        command = () if wanted is None else wanted.command(job.workers)
        digest = None if wanted is None else wanted.digest(command)
        living = {s.lock.stem: s for s in not_the_driver(folder.living(), job)}
        waiting = [Waiting(name, s.digest, s.started_at_ms) for name, s in living.items()]
        if digest is not None and job.state == "runs":
            deaths = deaths.then(job.generation, digest, waiting, now_ms)
        plan = decide_standbys(digest, job.state, waiting, deaths.left_ms(now_ms))
        for name in plan.retire:
            retire(living[name])
        if plan.start and digest is not None:
            started = folder.start(command, digest, _environment(group), now_ms)
            deaths = deaths.model_copy(update={"name": started.lock.stem})
            return Kept(line_of(started), deaths, str(started.log), (started,))
        newest = str(folder.newest_log() or "")
        return Kept(_described(plan, living), deaths, newest)


def _described(plan: Plan, living: Mapping[str, LivingStandby]) -> str:
    if plan.stays is None:
        return f"standby: none: {plan.why}"
    line = line_of(living[plan.stays])
    return f"{line}; {plan.why}" if plan.why else line


def line_of(standby: LivingStandby) -> str:
    """Return one line about a standby that waits."""
    since = datetime.fromtimestamp(standby.started_at_ms / 1000, UTC)
    process = "process unknown yet" if standby.pid is None else f"process {standby.pid}"
    return f"standby: waiting since {since:%Y-%m-%d %H:%M:%S} UTC, {process}"


def _environment(group: str) -> dict[str, str]:
    """."""
    return child_environment(Actor(f"sensor {sensor_name('standby', group)}", ActorKind.SENSOR))


def _session_of(owner: Owner | None) -> int | None:
    if owner is None or not is_visible(owner) or not is_running(owner):
        return None
    with suppress(ProcessLookupError):
        return os.getsid(owner.pid)
    return None


def _state(found: GenerationSummary) -> JobState:
    claim, end = found.claim, found.end
    if end is not None and (end.outcome != "failed" or end.gave_up):
        return "over"
    if claim is not None and is_visible(claim.owner) and not is_running(claim.owner):
        return "lost"
    return "starting" if found.heartbeat is None or end is not None else "runs"
