"""Facts about a job for checks, read from its store when they run."""

from collections.abc import Iterator, Sequence

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.pre_committed import first_expiry_ms, key_of
from laminar_core.sensors.facts.stored_checkpoints import (
    StoredCheckpoint,
    read_stored,
    watermark_us,
)
from laminar_core.sensors.judgements import (
    JobLife,
    OutputExpiry,
    SourceNeeds,
    Uncommitted,
    ended_on_purpose,
    oldest_row_needed_ms,
)
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.generation_summary import read_generation

ATTEMPTS_MAX = 500
"""Number of newest attempts that are searched for a completed one."""

UNCOMMITTED_MAX = 50

RESTARTS_MAX = 100
"""Number of generations searched for the first one of a job that restarts again and again."""


def completed_newest_first(store: CheckpointStore) -> Iterator[StoredCheckpoint]:
    """Yield checkpoints on the timeline, newest first; their files are not verified.

    Raises:
        CorruptCheckpointError: a base cannot be read, so no timeline can be known.
        StorageUnavailable: the store did not answer.
    """
    bases = store.generations.bases()
    for checkpoint_id in store.attempts.ids()[: -ATTEMPTS_MAX - 1 : -1]:
        found = read_stored(store, checkpoint_id)
        if not isinstance(found, StoredCheckpoint) or store.manifests.is_being_deleted(
            checkpoint_id
        ):
            continue
        if on_timeline(checkpoint_id, Generation(found.manifest.generation), bases):
            yield found


def job_life(store: CheckpointStore) -> JobLife | None:
    """Return the newest generation, and the checkpoint it can continue from; None: it never ran.

    Raises:
        As ``completed_newest_first``.
    """
    generation = store.claims.last()
    if generation is None:
        return None
    found = read_generation(store.objects, store.paths, generation)
    newest = next(completed_newest_first(store), None)
    completed_at_ms = None if newest is None else newest.manifest.completed_at_ms
    return JobLife(
        generation=generation,
        meant_since_ms=_meant_since_ms(store, generation, completed_at_ms or 0),
        end=found.end,
        completed_id=None if newest is None else newest.manifest.checkpoint_id,
        completed_at_ms=completed_at_ms,
    )


def _meant_since_ms(store: CheckpointStore, newest: Generation, enough_ms: int) -> int:
    """Claim of the first generation since one ended on purpose; no further back than needed."""
    since_ms = 0
    for number in range(newest, max(newest - RESTARTS_MAX, 0), -1):
        found = read_generation(store.objects, store.paths, Generation(number))
        if number < newest and ended_on_purpose(found.end):
            break
        if found.claim is not None:
            since_ms = found.claim.claimed_at_ms
            if since_ms <= enough_ms:
                break
    return since_ms


def source_needs(store: CheckpointStore) -> SourceNeeds | None:
    """Return the rows that a restore of the newest checkpoint reads; None if it reads none.

    Raises:
        As ``completed_newest_first``.
    """
    newest = next(completed_newest_first(store), None)
    if newest is None or newest.manifest.kind is CheckpointKind.FINAL:
        return None
    manifest = newest.manifest
    oldest_ms = oldest_row_needed_ms(watermark_us(manifest), manifest.triggered_at_ms)
    return SourceNeeds(manifest.checkpoint_id, oldest_ms)


def uncommitted(store: CheckpointStore) -> tuple[Uncommitted | None, int | None]:
    """Return the uncommitted checkpoints, and the newest committed one.

    Raises:
        As ``completed_newest_first``.
    """
    waiting: list[StoredCheckpoint] = []
    committed: CheckpointManifest | None = None
    for found in completed_newest_first(store):
        if _is_committed(store, found.manifest.checkpoint_id):
            committed = found.manifest
            break
        waiting.append(found)
        if len(waiting) == UNCOMMITTED_MAX:
            break
    committed_id = None if committed is None else committed.checkpoint_id
    if not waiting:
        return None, committed_id
    manifests = [found.manifest for found in reversed(waiting)]
    ids = tuple(manifest.checkpoint_id for manifest in manifests)
    expiries = _expiries(manifests, committed)
    return Uncommitted(ids, manifests[0].completed_at_ms, expiries), committed_id


def _expiries(
    waiting: Sequence[CheckpointManifest], committed: CheckpointManifest | None
) -> tuple[OutputExpiry, ...]:
    """Return the first expiry of each sink. Checkpoints may carry output that is committed."""
    subtasks = () if committed is None else committed.subtasks
    settled = {key_of(each) for entry in subtasks for each in entry.committables}
    found: dict[str, OutputExpiry] = {}
    for manifest in waiting:
        for entry in manifest.subtasks:
            sink, first_ms = entry.operator_id, first_expiry_ms(entry.committables, settled)
            known = found.get(sink)
            if first_ms is not None and (known is None or first_ms < known.expires_at_ms):
                found[sink] = OutputExpiry(
                    sink, manifest.checkpoint_id, manifest.completed_at_ms, first_ms
                )
    return tuple(found.values())


def _is_committed(store: CheckpointStore, checkpoint_id: CheckpointId) -> bool:
    """Return whether it is committed; unreadable records do not count: a recovery commits again."""
    try:
        return store.attempts.read_commit(checkpoint_id) is not None
    except CorruptCheckpointError:
        return False
