"""Read from the store whether a job lives. Watching takes several ticks without waiting.

``Watched`` is the state between ticks: the newest heartbeat, and since when it has been the newest
by this sensor's own clock. If the cursor is lost or set back, a death is detected later, never
twice.
"""

from typing import Literal

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.silence import Silence
from laminar_core.protocol.types import Generation
from laminar_core.records.actor import ActorKind
from laminar_core.records.audit import parse_audit_record
from laminar_core.records.manifest import GenerationClaim, Heartbeat
from laminar_core.resources.values import Values
from laminar_core.sensors.cursor import Beat, ClockMs, Number, Tally
from laminar_core.sensors.facts.followed import Followed, follow
from laminar_core.sensors.judgements import ended_on_purpose
from laminar_core.sensors.recovery.decision import RecoveryFacts
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import is_running, is_visible
from laminar_core.store.records import read_record

_NO_SIGN = -1
_PAUSE_MS = 60_000
"""Between two beats that were seen, by the driver's clock, with a look in between that got no
answer: more is an outage of the store. (A driver counts the beats that it cannot write, too.)"""
_GAP_MS = 300_000
"""Longest time between two answered looks; a longer one is an outage of the observer."""
_ATTEMPTS_BACK = 200
"""Number of attempts read first; if none of them completed, progress is long ago."""


class Watched(Values):
    """The newest sign of life of a generation, first seen at ``since_ms`` and so often since.

    ``completed_id`` is the newest checkpoint that it completed. By the driver's clock: when it was
    claimed, when it last beat, and since when it has been seen to beat without a pause.
    """

    generation: Number = 0
    claimed_at_ms: ClockMs = 0
    claimed_by_run: str | None = None
    beat: Beat = _NO_SIGN
    beat_at_ms: ClockMs = 0
    beating_since_ms: ClockMs = 0
    since_ms: ClockMs = 0
    looks: Tally = 0
    unanswered: bool = False
    """Some look since the last beat was not."""
    base_id: Number | None = None
    base_known: bool = False
    """Whether its base is recorded; otherwise ``base_id`` is its predecessor's."""
    in_vain: Tally = 0
    """Generations before it, in a row, that started from the same and completed nothing."""
    in_vain_since_ms: ClockMs = 0
    """When the first of them was seen, by this sensor's clock."""
    followed: Followed = Followed()
    completed_id: Number | None = None
    completed_at_ms: ClockMs = 0

    def then(self, heartbeat: Heartbeat | None, now_ms: int) -> "Watched":
        """Return the state after another answered look."""
        if heartbeat is None or heartbeat.sequence == self.beat:
            if now_ms < self.since_ms:
                return self.model_copy(update={"since_ms": now_ms, "looks": 1})
            return self.model_copy(update={"looks": self.looks + 1})
        pause_ms = heartbeat.at_ms - self.beat_at_ms
        paused = pause_ms > (_PAUSE_MS if self.unanswered else _GAP_MS)
        since_ms = heartbeat.at_ms if paused else self.beating_since_ms
        return self.model_copy(
            update={
                "beat": heartbeat.sequence,
                "beat_at_ms": heartbeat.at_ms,
                "beating_since_ms": since_ms,
                "since_ms": now_ms,
                "looks": 1,
                "unanswered": False,
            }
        )


def read_recovery_facts(
    store: CheckpointStore, before: Watched, now_ms: int, age_max_ms: int
) -> tuple[RecoveryFacts, Watched]:
    """Return the facts without Dagster's runs, and the state to remember.

    Before a checkpoint counts as older than ``age_max_ms``, all attempts are listed.

    Raises:
        StorageUnavailable: the store did not answer.
        CorruptCheckpointError: the end of the generation cannot be read.
    """
    generation = store.claims.last()
    if generation is None:
        return RecoveryFacts(), Watched()
    claim, end = _claim(store, generation), store.generations.read_end(generation)
    heartbeat = store.generations.read_heartbeat(generation)
    claimed_at_ms = 0 if claim is None else claim.claimed_at_ms
    if (before.generation, before.claimed_at_ms) != (generation, claimed_at_ms):
        before = _next_generation(store, before, generation, now_ms).model_copy(
            update={"claimed_at_ms": claimed_at_ms, "claimed_by_run": _run_of(store, claim)}
        )
    after = _with_base(store, before).then(heartbeat, now_ms)
    beat_at_ms = heartbeat.at_ms if heartbeat else 0
    after = _with_newest_completed(store, generation, after, beat_at_ms)
    if (_progress_age_ms(heartbeat, claim, after) or 0) > age_max_ms:
        listed = after.followed.model_copy(update={"new_at_ms": 0})
        after = after.model_copy(update={"followed": listed})
        after = _with_newest_completed(store, generation, after, beat_at_ms)
    facts = RecoveryFacts(
        generation=generation,
        claimed_at_ms=after.claimed_at_ms,
        claimed_by_run=after.claimed_by_run,
        outcome=None if end is None else end.outcome,
        on_purpose=ended_on_purpose(end),
        outcome_reason="" if end is None else end.reason,
        started_by="" if claim is None else claim.actor,
        started_by_kind=ActorKind.PERSON if claim is None else claim.actor_kind,
        owner=_owner(claim),
        silence=Silence(now_ms - after.since_ms, after.looks),
        progress_age_ms=_progress_age_ms(heartbeat, claim, after),
        beating_ms=after.beat_at_ms - after.beating_since_ms,
        newest_checkpoint=after.completed_id,
        in_vain=0 if after.completed_id is not None else after.in_vain,
        in_vain_ms=now_ms - after.in_vain_since_ms,
    )
    return facts, after


def _next_generation(
    store: CheckpointStore, before: Watched, generation: Generation, now_ms: int
) -> Watched:
    """The first look at it; what it has in common with the one before is not forgotten."""
    fresh = Watched(generation=generation, since_ms=now_ms, in_vain_since_ms=now_ms)
    ended = store.generations.read_end(Generation(before.generation)) if before.generation else None
    is_another = generation <= before.generation or ended_on_purpose(ended)
    if not before.generation or is_another or before.completed_id is not None:
        return fresh
    return fresh.model_copy(
        update={
            "base_id": before.base_id,
            "in_vain": before.in_vain + generation - before.generation,
            "in_vain_since_ms": min(before.in_vain_since_ms, now_ms),
        }
    )


def _with_base(store: CheckpointStore, watched: Watched) -> Watched:
    """Return the state with the base; a base other than the predecessor's proves progress."""
    base = (
        None if watched.base_known else store.generations.read_base(Generation(watched.generation))
    )
    if base is None:
        return watched
    known = {"base_id": base.base_checkpoint_id, "base_known": True}
    if base.base_checkpoint_id != watched.base_id:
        known |= {"in_vain": 0, "in_vain_since_ms": watched.since_ms}
    return watched.model_copy(update=known)


def _claim(store: CheckpointStore, generation: Generation) -> GenerationClaim | None:
    """The claim; None if it is lost or damaged: then nothing is known of the owner."""
    try:
        return read_record(store.objects, store.paths.claim(generation), GenerationClaim)
    except CorruptCheckpointError:
        return None


def _run_of(store: CheckpointStore, claim: GenerationClaim | None) -> str | None:
    """The Dagster run for which the job was claimed, if it was for one and that is known."""
    if claim is None or claim.announced is None:
        return None
    key = store.paths.audit_record(claim.announced.number)
    try:
        data = store.objects.get(key)
        return None if data is None else parse_audit_record(data).run_id
    except CorruptCheckpointError:
        return None


def _owner(claim: GenerationClaim | None) -> Literal["running", "gone", "unseen"]:
    if claim is None or not is_visible(claim.owner):
        return "unseen"
    return "running" if is_running(claim.owner) else "gone"


def _with_newest_completed(
    store: CheckpointStore, generation: Generation, watched: Watched, beat_at_ms: int
) -> Watched:
    ended, followed = follow(store, generation, watched.followed, _ATTEMPTS_BACK, beat_at_ms)
    watched = watched.model_copy(update={"followed": followed})
    for record in ended:
        if record.outcome == "completed":
            known = {"completed_id": record.checkpoint_id, "completed_at_ms": record.ended_at_ms}
            watched = watched.model_copy(update=known)
    return watched


def _progress_age_ms(
    heartbeat: Heartbeat | None, claim: GenerationClaim | None, watched: Watched
) -> float | None:
    """All times are the driver's own; None as long as there is no heartbeat."""
    if heartbeat is None:
        return None
    if watched.completed_id is not None:
        return max(heartbeat.at_ms - watched.completed_at_ms, 0)
    return 0 if claim is None else max(heartbeat.at_ms - claim.claimed_at_ms, 0)
