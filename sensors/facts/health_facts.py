"""Facts about a stream's driver and its last attempts at checkpoints, read from its store."""

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.commands import CancelJob, StopJob
from laminar_core.records.manifest import GenerationEnd
from laminar_core.sensors.health import DriverLife, DriverState, FailingAttempts
from laminar_core.sensors.judgements import JobLife
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.generation_summary import GenerationSummary, read_generation
from laminar_core.store.owner import is_running, is_visible
from laminar_core.units import duration_ms

ATTEMPTS_BACK = 50
"""Number of newest attempts that are searched for a completed one."""

_COMMANDS_BACK = 20
"""Number of newest commands that are searched for the one that ended a generation."""

_FAILED = {"declined", "expired"}


def driver_life(
    store: CheckpointStore,
    life: JobLife | None,
    now_ms: int,
    policy: AlertPolicy,
    silence_ms: float | None = None,
    *,
    has_beaten: bool = False,
) -> DriverLife | None:
    """Return the signs of life of the newest generation; None: the stream never ran.

    ``silence_ms`` is how long it has given none, by one clock that watched it, and ``has_beaten``
    whether it was seen to give one. None: by the clocks of its machine and this one.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    if life is None:
        return None
    generation = Generation(life.generation)
    found = read_generation(store.objects, store.paths, generation)
    claim, end = found.claim, found.end
    return DriverLife(
        generation=generation,
        state=_state(found, policy, _silence_ms(found, now_ms, silence_ms), has_beaten=has_beaten),
        started_by="somebody" if claim is None else claim.actor,
        start_reason="its claim cannot be read" if claim is None else claim.reason,
        seen_at_ms=_seen_at_ms(store, found),
        end=end,
        ended_by=None if end is None else _ended_by(store, generation),
        completed_id=life.completed_id,
    )


def is_silent(silence_ms: float, policy: AlertPolicy, *, has_beaten: bool) -> bool:
    """Return whether a driver that is silent for so long is taken for dead.

    Before its first sign of life it may be reading its checkpoint.
    """
    limit = policy.heartbeat_max if has_beaten else policy.checkpoint_age_max
    return silence_ms > duration_ms(limit)


def failing_attempts(store: CheckpointStore, newest_id: int | None) -> FailingAttempts | None:
    """Return the attempts up to ``newest_id`` that failed since one completed; None: none did.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    newest: tuple[int, str, str] | None = None
    count, completed_id = 0, None
    oldest = max((newest_id or 0) - ATTEMPTS_BACK, 0)
    for number in range(newest_id or 0, oldest, -1):
        try:
            ended = store.attempts.read_outcome(CheckpointId(number))
        except CorruptCheckpointError:
            continue
        if ended is None:
            continue
        if ended.outcome == "completed":
            completed_id = number
            break
        if ended.outcome in _FAILED:
            count += 1
            newest = newest or (number, ended.outcome, ended.reason)
    if newest is None:
        return None
    is_all = completed_id is not None or oldest == 0
    return FailingAttempts(count, *newest, completed_id, is_all=is_all)


def _silence_ms(found: GenerationSummary, now_ms: int, watched_ms: float | None) -> float:
    if watched_ms is not None:
        return watched_ms
    if found.heartbeat is not None:
        return now_ms - found.heartbeat.at_ms
    return 0 if found.claim is None else now_ms - found.claim.claimed_at_ms


def _state(
    found: GenerationSummary, policy: AlertPolicy, silence_ms: float, *, has_beaten: bool
) -> DriverState:
    claim = found.claim
    if found.end is not None:
        return "ended"
    if claim is not None and is_visible(claim.owner) and not is_running(claim.owner):
        return "gone"
    has_beaten = has_beaten or found.heartbeat is not None
    if is_silent(silence_ms, policy, has_beaten=has_beaten):
        return "silent"
    return "beating" if has_beaten else "starting"


def _seen_at_ms(store: CheckpointStore, found: GenerationSummary) -> int | None:
    if found.end is not None and (at_ms := _ended_at_ms(store, found.end)) is not None:
        return at_ms
    return None if found.heartbeat is None else found.heartbeat.at_ms


def _ended_at_ms(store: CheckpointStore, end: GenerationEnd) -> int | None:
    if end.audited is None:
        return None
    try:
        record = AuditLog(store.objects, store.paths, lambda: 0).read(end.audited.number)
    except CorruptCheckpointError:
        return None
    return None if record is None else record.at_ms


def _ended_by(store: CheckpointStore, generation: Generation) -> str | None:
    """The actor of the command that ended the generation; None if no command did."""
    log = ControlLog(store.objects, store.paths)
    for number in reversed(log.numbers()[-_COMMANDS_BACK:]):
        entry = log.entry(number)
        command, result = entry.command, entry.result
        if command is None or command.generation != generation:
            continue
        is_end = isinstance(command.action, StopJob | CancelJob)
        if is_end and result is not None and result.outcome == "completed":
            return command.actor
    return None
