"""Read how a running job's checkpoints align.

All ages are differences of times written by the job's own driver, so clocks are never compared.
Ended attempts do not change, so ``Remembered`` saves reading them again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import ActorKind, kind_by_name
from laminar_core.records.commands import SetMode
from laminar_core.records.limits import NUMBER_MAX
from laminar_core.records.manifest import (
    CheckpointManifest,
    GenerationClaim,
    Heartbeat,
    HistoryRecord,
    Owner,
)
from laminar_core.resources.values import Values
from laminar_core.sensors.alignment.decision import AlignmentFacts, ModeInForce, Sample, UnderWay
from laminar_core.sensors.cursor import ClockMs, Number, Tally
from laminar_core.sensors.facts.followed import Followed, follow
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlEntry, ControlLog
from laminar_core.store.owner import is_running, is_visible
from laminar_core.store.records import read_record

_PERIODIC = {CheckpointKind.PERIODIC, CheckpointKind.MANUAL}
"""Kinds of checkpoints that follow the mode; all others are always aligned."""
_OTHERS = 20
"""Savepoints among the first attempts that are looked at."""

_RATE_MS_MIN = 2_000
"""Shortest time over which a rate is meaningful."""


class SeenSample(Values):
    """A ``Sample`` as a cursor keeps it."""

    checkpoint_id: Annotated[CheckpointId, Field(ge=0, le=NUMBER_MAX)]
    triggered_at_ms: ClockMs
    alignment_ms: float | None
    inflight_rows: int | None
    completed: bool


class SeenMode(Values):
    """A ``ModeInForce`` as a cursor keeps it, and when the driver set it.

    ``settled``: no command up to this number will change it any more; None: none was looked at.
    """

    mode: str = "default"
    number: Number = 0
    actor: str = ""
    actor_kind: ActorKind = Field(default_factory=kind_by_name)
    refused: str | None = None
    set_at_ms: ClockMs | None = None
    settled: Number | None = None


class Remembered(Values):
    """The previous tick's observations of the driver that claimed the job at ``claimed_at_ms``."""

    generation: Number = 0
    claimed_at_ms: ClockMs = 0
    mode: SeenMode = SeenMode()
    followed: Followed = Followed()
    samples: tuple[SeenSample, ...] = ()
    may_overtake: bool | None = None
    beat: Tally = 0
    rows_in: int | None = None
    rate_at_ms: ClockMs = 0
    rows_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Driver:
    """The newest generation, whose driver has sent a heartbeat."""

    generation: Generation
    claim: GenerationClaim
    heartbeat: Heartbeat


def read_alignment_facts(
    store: CheckpointStore, before: Remembered, window: int
) -> tuple[AlignmentFacts, Remembered]:
    """Return the facts without Dagster's runs, and the cursor.

    ``window``: number of checkpoints to read.

    Raises:
        StorageUnavailable: the store did not answer.
        CorruptCheckpointError: a required record cannot be read.
    """
    driver = _find_driver(store)
    if isinstance(driver, AlignmentFacts):
        return driver, Remembered()
    generation, claim = driver.generation, driver.claim
    if (before.generation, before.claimed_at_ms) != (generation, claim.claimed_at_ms):
        before = Remembered(generation=generation, claimed_at_ms=claim.claimed_at_ms)
    mode = _read_mode(store, driver, before.mode)
    now_ms, back = driver.heartbeat.at_ms, window + _OTHERS
    ended, followed = follow(store, generation, before.followed, back, now_ms)
    new = [_sample(store, record) for record in ended if record.kind in _PERIODIC]
    since_ms = mode.set_at_ms or 0
    in_mode = [s for s in (*before.samples, *new) if s.triggered_at_ms >= since_ms]
    samples = tuple(in_mode[-window:])
    after = before.model_copy(
        update={
            "mode": mode,
            "followed": followed,
            "samples": samples,
            "may_overtake": _may_overtake(store, samples)
            if before.may_overtake is None
            else before.may_overtake,
            "beat": driver.heartbeat.sequence,
        }
    )
    after = _with_rate(after, driver.heartbeat, before)
    return _facts(driver, before, after), after


def _facts(driver: _Driver, before: Remembered, after: Remembered) -> AlignmentFacts:
    mode, now_ms = after.mode, driver.heartbeat.at_ms
    age_ms = None if mode.set_at_ms is None else now_ms - mode.set_at_ms
    return AlignmentFacts(
        generation=driver.generation,
        claimed_at_ms=after.claimed_at_ms,
        not_running=_silence(driver.heartbeat, before),
        mode=ModeInForce(mode.mode, mode.number, mode.actor, age_ms, mode.refused, mode.actor_kind),
        samples=tuple(map(_as_sample, after.samples)),
        under_way=_under_way(after, now_ms),
        rows_per_s=after.rows_per_s,
        may_overtake=after.may_overtake is not False,
    )


def _find_driver(store: CheckpointStore) -> _Driver | AlignmentFacts:
    generation = store.claims.newest()
    if generation is None:
        return AlignmentFacts(not_running="it has never run")
    if (end := store.generations.read_end(generation)) is not None:
        return _nobody(generation, f"generation {generation} {end.outcome}")
    claim = read_record(store.objects, store.paths.claim(generation), GenerationClaim)
    heartbeat = store.generations.read_heartbeat(generation)
    if claim is None or heartbeat is None:
        return _nobody(generation, f"generation {generation} is starting")
    if is_visible(claim.owner) and not is_running(claim.owner):
        return _nobody(generation, f"the driver of generation {generation} is gone")
    return _Driver(generation, claim, heartbeat)


def _nobody(generation: Generation, why: str) -> AlignmentFacts:
    return AlignmentFacts(generation=generation, not_running=why)


def _silence(heartbeat: Heartbeat, before: Remembered) -> str | None:
    if before.beat and heartbeat.sequence == before.beat:
        return f"generation {before.generation} has given no sign of life since the last look"
    return None


def _with_rate(after: Remembered, heartbeat: Heartbeat, before: Remembered) -> Remembered:
    """Rows per second since an earlier tick; the driver's own figure is of one second only."""
    rows_in, elapsed_ms = heartbeat.progress.get("rows_in"), heartbeat.at_ms - before.rate_at_ms
    if not isinstance(rows_in, int):
        return after
    if before.rows_in is not None and elapsed_ms < _RATE_MS_MIN:
        return after
    told = heartbeat.progress.get("rows_per_s")
    rate = float(told) if isinstance(told, int | float) else None
    if before.rows_in is not None:
        rate = 1000 * max(rows_in - before.rows_in, 0) / elapsed_ms
    known = {"rows_in": rows_in, "rate_at_ms": heartbeat.at_ms, "rows_per_s": rate}
    return after.model_copy(update=known)


def _read_mode(store: CheckpointStore, driver: _Driver, before: SeenMode) -> SeenMode:
    """Return the mode set by the newest command that this driver carried out.

    A driver keeps the mode when it restarts the job itself, so commands to its earlier generations
    count.
    """
    log = ControlLog(store.objects, store.paths)
    if before.settled is None:
        numbers = log.numbers()
        newest, entries = max(numbers, default=0), map(log.entry, reversed(numbers))
    else:
        new = list(log.read_after(before.settled))
        newest, entries = before.settled + len(new), reversed(new)
    ours = list(_commands(store, driver, entries))
    unanswered = [entry.number for entry in ours if entry.result is None]
    settled = min(unanswered, default=newest + 1) - 1
    refused = None
    for entry in ours:
        result, command = entry.result, entry.command
        if command is None or result is None or not isinstance(command.action, SetMode):
            continue
        if result.outcome == "refused":
            if result.generation == command.generation:  # Else it came too late for that one.
                refused = refused or result.reason
        elif result.outcome == "completed":
            return SeenMode(
                mode=str(command.action.mode),
                number=entry.number,
                actor=command.actor,
                actor_kind=command.actor_kind,
                refused=refused,
                set_at_ms=result.answered_at_ms,
                settled=settled,
            )
    return before.model_copy(update={"refused": refused or before.refused, "settled": settled})


def _commands(
    store: CheckpointStore, driver: _Driver, entries: Iterable[ControlEntry]
) -> Iterator[ControlEntry]:
    """Yield the commands that were for this driver, newest first."""
    owners: dict[int, bool] = {driver.generation: True}
    for entry in entries:
        if entry.command is None:
            continue
        addressed_to = entry.command.generation
        if addressed_to not in owners:
            owners[addressed_to] = _is_of(store, Generation(addressed_to), driver.claim.owner)
        if not owners[addressed_to]:
            return
        yield entry


def _is_of(store: CheckpointStore, generation: Generation, owner: Owner) -> bool:
    try:
        claim = read_record(store.objects, store.paths.claim(generation), GenerationClaim)
    except CorruptCheckpointError:
        return False
    return claim is not None and claim.owner.model_copy(update={"claim_number": 1}) == (
        owner.model_copy(update={"claim_number": 1})
    )


def _sample(store: CheckpointStore, record: HistoryRecord) -> SeenSample:
    expired = record.outcome == "expired"
    return SeenSample(
        checkpoint_id=record.checkpoint_id,
        triggered_at_ms=record.triggered_at_ms,
        alignment_ms=record.duration_ms if expired else record.alignment_ms_max,
        inflight_rows=_inflight_rows(store, record.checkpoint_id),
        completed=record.outcome == "completed",
    )


def _as_sample(seen: SeenSample) -> Sample:
    return Sample(seen.checkpoint_id, seen.alignment_ms, seen.inflight_rows, seen.completed)


def _inflight_rows(store: CheckpointStore, checkpoint_id: CheckpointId) -> int | None:
    manifest = _readable(store, checkpoint_id)
    if manifest is None:
        return None
    # What goes round in a loop is logged at every cut, and nobody waits for it.
    return sum(e.row_count for e in manifest.inflight_data if not e.edge.feedback)


def _readable(store: CheckpointStore, checkpoint_id: CheckpointId) -> CheckpointManifest | None:
    try:
        return store.manifests.find(checkpoint_id)
    except CorruptCheckpointError:
        return None


def _under_way(after: Remembered, now_ms: int) -> UnderWay | None:
    """The oldest periodic checkpoint that has not ended, triggered in the present mode."""
    for attempt in after.followed.open:
        if attempt.kind in _PERIODIC and attempt.triggered_at_ms >= (after.mode.set_at_ms or 0):
            return UnderWay(attempt.checkpoint_id, max(now_ms - attempt.triggered_at_ms, 0))
    return None


def _may_overtake(store: CheckpointStore, samples: tuple[SeenSample, ...]) -> bool | None:
    """Return whether barriers can overtake on any edge; None until a manifest is readable."""
    manifests = (_readable(store, s.checkpoint_id) for s in reversed(samples))
    newest = next((m for m in manifests if m is not None), None)
    if newest is None:
        return None
    return not newest.edges or any(edge.may_overtake for edge in newest.edges)
