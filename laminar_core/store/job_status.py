"""The status of a job, read from its store: neither Spark nor the driver is needed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation, ResolvedMode
from laminar_core.records.commands import SetMode
from laminar_core.records.drill import DrillRecord
from laminar_core.records.manifest import CheckpointManifest, GenerationClaim, Owner
from laminar_core.records.pre_committed import first_expiry_ms
from laminar_core.records.record import JsonObject
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.drills import newest_drill
from laminar_core.store.file_scrub import DamageLog
from laminar_core.store.generation_summary import GenerationSummary, read_generation
from laminar_core.store.owner import is_running, is_same_process, is_visible
from laminar_core.store.pins import Pins, StoredPin
from laminar_core.store.records import read_record

DriverState = Literal["ended", "running", "gone", "unseen"]
"""``running`` and ``gone``: its process, seen from this machine. ``unseen``: it is on another one,
or its claim cannot be read; only the age of its heartbeat is known."""


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The newest generation and its driver; None where nothing is recorded, or it is damaged."""

    generation: Generation
    state: DriverState
    owner: Owner | None
    actor: str | None
    reason: str | None
    code_version: str | None
    claimed_at_ms: int | None
    has_started: bool
    """Whether the base is recorded."""
    restored_checkpoint_id: CheckpointId | None
    outcome: str | None
    """The end that the driver recorded: finished, stopped, failed or refused."""
    outcome_reason: str | None
    heartbeat_age_ms: int | None
    """By the clocks of both machines: not exact, and never below 0."""
    progress: JsonObject


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """The newest completed checkpoint that the job could go on from, if its files are whole."""

    checkpoint_id: CheckpointId
    generation: Generation
    kind: CheckpointKind
    mode: ResolvedMode
    completed_at_ms: int
    age_ms: int
    duration_ms: float
    size_bytes: int
    written_bytes: int
    inflight_bytes: int
    inflight_rows: int
    output_expires_at_ms: int | None = None
    """When a sink's target gives up output of it; None: it is committed, or does not expire."""


@dataclass(frozen=True, slots=True)
class ModeStatus:
    """The alignment mode that a command set; ``mode`` is a name or a timeout in milliseconds."""

    command: int
    mode: str | int
    actor: str
    reason: str
    set_at_ms: int


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job by its store. ``problems`` lists unreadable records."""

    job: str
    read_at_ms: int
    driver: DriverStatus | None = None
    """The newest driver; None: the job never ran."""
    checkpoint: CheckpointStatus | None = None
    mode: ModeStatus | None = None
    """None: as the driver was started."""
    pins: tuple[StoredPin, ...] = ()
    drill: DrillRecord | None = None
    """The newest restore drill."""
    problems: tuple[str, ...] = field(default=())


def read_status(store: CheckpointStore, now_ms: int) -> JobStatus:
    """Read it; ``now_ms`` is the time of a wall clock. Costs a few listings and small objects.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    generation = store.claims.last()
    if generation is None:
        return JobStatus(store.job, now_ms)
    problems: list[str] = []
    found = read_generation(store.objects, store.paths, generation)
    problems.extend(found.problems)
    return JobStatus(
        job=store.job,
        read_at_ms=now_ms,
        driver=_driver(found, now_ms),
        checkpoint=_newest_checkpoint(store, now_ms, problems),
        mode=None if found.claim is None or found.end else _mode(store, found.claim, problems),
        pins=tuple(Pins(store).list()),
        drill=newest_drill(store, problems),
        problems=tuple(problems),
    )


def _driver(found: GenerationSummary, now_ms: int) -> DriverStatus:
    claim, base, heartbeat, end = found.claim, found.base, found.heartbeat, found.end
    return DriverStatus(
        generation=found.generation,
        state=_state(found),
        owner=None if claim is None else claim.owner,
        actor=None if claim is None else claim.actor,
        reason=None if claim is None else claim.reason,
        code_version=None if claim is None else claim.code_version,
        claimed_at_ms=None if claim is None else claim.claimed_at_ms,
        has_started=base is not None,
        restored_checkpoint_id=None if base is None else base.base_checkpoint_id,
        outcome=None if end is None else end.outcome,
        outcome_reason=None if end is None else end.reason,
        heartbeat_age_ms=None if heartbeat is None else max(now_ms - heartbeat.at_ms, 0),
        progress={} if heartbeat is None else heartbeat.progress,
    )


def _state(found: GenerationSummary) -> DriverState:
    if found.end is not None:
        return "ended"
    if found.claim is None or not is_visible(found.claim.owner):
        return "unseen"
    return "running" if is_running(found.claim.owner) else "gone"


def _newest_checkpoint(
    store: CheckpointStore, now_ms: int, problems: list[str]
) -> CheckpointStatus | None:
    try:
        bases = store.generations.bases()
    except CorruptCheckpointError as error:
        problems.append(str(error))
        return None
    damaged = DamageLog(store.objects, store.paths).in_words()
    for manifest in _completed(store, problems):
        checkpoint_id, generation = manifest.checkpoint_id, manifest.generation
        if (problem := damaged.get(checkpoint_id)) is not None:
            problems.append(f"checkpoint {checkpoint_id} cannot be restored: {problem}")
            continue
        if on_timeline(checkpoint_id, Generation(generation), bases):
            return CheckpointStatus(
                checkpoint_id=checkpoint_id,
                generation=Generation(generation),
                kind=manifest.kind,
                mode=manifest.mode,
                completed_at_ms=manifest.completed_at_ms,
                age_ms=max(now_ms - manifest.completed_at_ms, 0),
                duration_ms=manifest.duration_ms,
                size_bytes=manifest.size_bytes,
                written_bytes=manifest.written_bytes,
                inflight_bytes=manifest.inflight_bytes,
                inflight_rows=manifest.inflight_rows,
                output_expires_at_ms=_output_expires_at_ms(store, manifest, problems),
            )
    return None


def _output_expires_at_ms(
    store: CheckpointStore, manifest: CheckpointManifest, problems: list[str]
) -> int | None:
    first_ms = first_expiry_ms(c for entry in manifest.subtasks for c in entry.committables)
    if first_ms is None:
        return None
    try:
        commit = store.attempts.read_commit(manifest.checkpoint_id)
    except CorruptCheckpointError as error:
        problems.append(str(error))
        commit = None
    return first_ms if commit is None else None


def _completed(store: CheckpointStore, problems: list[str]) -> Iterator[CheckpointManifest]:
    """Yield manifests, newest first, without those being deleted; damage goes to ``problems``."""
    for checkpoint_id in reversed(store.attempts.ids()):
        try:
            manifest = store.manifests.find(checkpoint_id)
        except CorruptCheckpointError as error:
            problems.append(str(error))
            continue
        if manifest is not None and not store.manifests.is_being_deleted(checkpoint_id):
            yield manifest


def _mode(store: CheckpointStore, claim: GenerationClaim, problems: list[str]) -> ModeStatus | None:
    """The last command of this kind that the driver has carried out.

    It holds until the process ends, so commands for earlier generations of the same one count.
    """
    log = ControlLog(store.objects, store.paths)
    for number in reversed(log.numbers()):
        entry = log.entry(number)
        if entry.problem is not None:
            problems.append(f"command {number}: {entry.problem}")
        command, result = entry.command, entry.result
        if command is None:
            continue
        if not _is_for(store, Generation(command.generation), claim):
            return None
        if isinstance(command.action, SetMode) and result and result.outcome == "completed":
            return ModeStatus(
                command=number,
                mode=command.action.mode,
                actor=command.actor,
                reason=command.reason,
                set_at_ms=result.answered_at_ms,
            )
    return None


def _is_for(store: CheckpointStore, generation: Generation, claim: GenerationClaim) -> bool:
    """Whether that generation was one of the process that made the ``claim``."""
    if generation == claim.generation:
        return True
    try:
        other = read_record(store.objects, store.paths.claim(generation), GenerationClaim)
    except CorruptCheckpointError:
        return False
    return other is not None and is_same_process(other.owner, claim.owner)
