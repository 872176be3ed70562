"""Settle what happens to a running driver before another one starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import dagster as dg

from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock
from laminar_core.orchestration.launching.restore_choice import refused, timeline
from laminar_core.protocol.recovery import OwnerSigns
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import Actor
from laminar_core.resources.drivers.session import kill_session_of
from laminar_core.resources.job_control import JobControl
from laminar_core.resources.names import GROUP, job_name
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.generation_summary import GenerationSummary, read_generation

RunningDriver = Literal["refuse", "stop", "cancel", "take_over"]
"""Treatment of a running driver: refuse the start; stop it with a last checkpoint; cancel it; or
take over as if it were dead.
"""


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """Who restarts a job, why, and how."""

    actor: Actor
    running_driver: RunningDriver = "refuse"
    workers: int | None = None
    """Number of workers; None: as before."""


@dataclass(frozen=True, slots=True)
class LastDriver:
    """The newest generation, and what shows whether its driver lives."""

    generation: int
    signs: OwnerSigns | None
    """Signs of life; None: the job never ran."""
    who: str


@dataclass(frozen=True, slots=True)
class Free:
    """No driver runs the job."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """A driver runs the job and is to be left alone."""

    why: str


@dataclass(frozen=True, slots=True)
class Ask:
    """The driver of ``generation`` runs the job and must be asked to end.

    A driver of another generation is left alone.
    """

    how: Literal["stop", "cancel"]
    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A driver runs the job, or may run it, and must be fenced: this generation, and no other."""

    generation: int
    why: str


Settlement = Free | Refuse | Ask | TakeOver


def decide_settlement(last: LastDriver, wanted: RunningDriver) -> Settlement:
    """Decide what to do before a start.

    >>> decide_settlement(LastDriver(3, "gone", "generation 3, process 7 on far"), "refuse")
    Free(why='generation 3, process 7 on far, is gone')
    """
    match last.signs:
        case None:
            return Free("the job never ran")
        case "ended":
            return Free(f"{last.who}, has ended")
        case "gone":
            return Free(f"{last.who}, is gone")
        case "silent":
            return Free(f"{last.who}, gives no sign of life")
        case "running" | "beating":
            alive = f"{last.who}, is alive"
    match wanted:
        case "refuse":
            return Refuse(
                f"{alive}: stop it first, or choose with running_driver what happens to it"
            )
        case "stop" | "cancel":
            return Ask(wanted, last.generation, alive)
        case "take_over":
            return TakeOver(last.generation, alive)


@dataclass(frozen=True, slots=True)
class Settled:
    """A start may proceed, if necessary with the arguments ``words``."""

    what: str
    words: tuple[str, ...] = ()
    checkpoint_id: CheckpointId | None = None
    """The last checkpoint of a driver that was asked to stop."""


def last_driver(store: CheckpointStore, clock: Clock) -> LastDriver:
    """Return the newest generation and its signs of life.

    A driver on another machine is watched for some seconds.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    newest = store.claims.last()
    if newest is None:
        return LastDriver(0, None, "nobody")
    who = described(read_generation(store.objects, store.paths, newest))
    return LastDriver(newest, store.claims.owner_signs(newest, clock.wait_ms), who)


def settle(
    store: CheckpointStore, settlement: Settlement, control: JobControl, reason: str
) -> Settled:
    """Carry a settlement out, and wait until the driver has ended.

    Raises:
        dagster.Failure: the job has a driver that is to be left alone.
        LaminarError: the driver refuses, fails, or does not answer: it may go on.
    """
    match settlement:
        case Free(why):
            return Settled(why)
        case Refuse(why):
            raise refused(f"job {store.job} is not started: {why}")
        case Ask("cancel", generation, why):
            control.cancel(reason, generation=Generation(generation))
            return Settled(f"{why}: it was cancelled")
        case Ask(_, generation, why):
            done = control.stop(reason, generation=Generation(generation))
            last_id = _last_of(store, done.generation)
            told = "" if last_id is None else f", after checkpoint {last_id}"
            return Settled(f"{why}: it was stopped{told}", checkpoint_id=last_id)
        case TakeOver(generation, why):
            ended = _end_here(store, Generation(generation))
            return Settled(f"{why}, and is not asked{ended}", ("--take-over",))


@contextmanager
def nobody_left(settlement: Settlement, group: str = GROUP) -> Iterator[None]:
    """Extend the errors after a settlement: a user whose driver was ended must know that none runs.

    Raises:
        dagster.Failure: an error occurred inside.
    """
    try:
        yield
    except (dg.Failure, LaminarError) as error:
        if not isinstance(settlement, Ask | TakeOver):
            raise
        said = error.description if isinstance(error, dg.Failure) else str(error)
        ended = "the previous driver has ended, so the job is not running"
        if isinstance(settlement, TakeOver):
            ended = "the previous driver may be gone: see `laminar status` for who runs the job"
        recover, start = job_name("recover", group), job_name("start", group)
        raise refused(f"{said}; {ended}: start it with {recover} or {start}") from error


def described(generation: GenerationSummary) -> str:
    """Describe the generation's process and who started it."""
    claim = generation.claim
    if claim is None:
        return f"generation {generation.generation} (its claim cannot be read)"
    host = claim.owner.host_id.partition("/")[0]
    return (
        f"generation {generation.generation}, process {claim.owner.pid} on {host}, started by "
        f"{claim.actor} ({claim.reason})"
    )


def _last_of(store: CheckpointStore, generation: Generation) -> CheckpointId | None:
    """The checkpoint with which a generation was stopped; None if its input ended just then."""
    newest = next(timeline(store), None)
    if newest is None or newest.generation != generation or newest.kind is not CheckpointKind.STOP:
        return None
    return newest.checkpoint_id


def _end_here(store: CheckpointStore, generation: Generation) -> str:
    """Kill an unresponsive driver of this machine, which would otherwise keep its memory.

    The generation in the store prevents it from writing, here and anywhere else.
    """
    store.claims.check_expected(generation)
    claim = read_generation(store.objects, store.paths, generation).claim
    if claim is None or not kill_session_of(claim.owner):
        return ""
    return f"; its processes on this machine were killed (session {claim.owner.pid})"
