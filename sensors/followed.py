"""Follows the attempts at checkpoints of one generation from tick to tick, without listings.

A job that checkpoints every second has tens of thousands of attempts a day, and a listing names
them all. Numbers rise by one, and what reserves a number is never deleted, so after a first listing
the next number tells whether there is anything new. (The one after it is asked for, too: an object
may be lost.)
"""

from collections.abc import Iterator

from laminar_core.checkpoint.types import CheckpointId, CheckpointKind, Generation
from laminar_core.errors import CorruptCheckpointError
from laminar_core.state.manifest import HistoryRecord, TriggerRecord
from laminar_core.storage.checkpoint_store import CheckpointStore
from resources.values import Values

_NEW_MAX = 200
"""So many in one tick; the next one goes on."""
_OPEN_MAX = 8
"""Attempts that are waited for; what has not ended with so many newer ones never will."""


class OpenAttempt(Values):
    """Neither completed nor failed, as far as it is written down; the time is the driver's."""

    checkpoint_id: int
    kind: CheckpointKind
    triggered_at_ms: int


class Followed(Values):
    """Everything up to ``checkpoint_id`` is known, but how ``open`` ones end; None: nothing is."""

    checkpoint_id: int | None = None
    open: tuple[OpenAttempt, ...] = ()


def follow(
    store: CheckpointStore, generation: Generation, before: Followed, back: int
) -> tuple[list[HistoryRecord], Followed]:
    """What ended since ``before``, by ascending number, and what to go on from.

    The first time it is the newest ``back`` attempts. Those of other generations are left out.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    if before.checkpoint_id is None:
        ids = store.attempted_ids()[-back:]
    else:
        ids = list(_new_ids(store, before.checkpoint_id))
    ended: list[HistoryRecord] = []
    unended: list[OpenAttempt] = []
    for attempt in before.open:
        _sort(store, generation, attempt, ended, unended)
    for checkpoint_id in ids:
        trigger = _trigger(store, checkpoint_id)
        if trigger is not None and trigger.generation == generation:
            attempt = OpenAttempt(
                checkpoint_id=checkpoint_id,
                kind=trigger.kind,
                triggered_at_ms=trigger.triggered_at_ms,
            )
            _sort(store, generation, attempt, ended, unended)
    newest = ids[-1] if ids else before.checkpoint_id or 0
    return ended, Followed(checkpoint_id=newest, open=tuple(unended[-_OPEN_MAX:]))


def _new_ids(store: CheckpointStore, known: int) -> Iterator[CheckpointId]:
    for _ in range(_NEW_MAX):
        candidates = (CheckpointId(known + 1), CheckpointId(known + 2))
        found = next((c for c in candidates if _is_reserved(store, c)), None)
        if found is None:
            return
        yield found
        known = found


def _is_reserved(store: CheckpointStore, checkpoint_id: CheckpointId) -> bool:
    return store.objects.size(store.paths.trigger(checkpoint_id)) is not None


def _trigger(store: CheckpointStore, checkpoint_id: CheckpointId) -> TriggerRecord | None:
    try:
        return store.read_trigger(checkpoint_id)
    except CorruptCheckpointError:
        return None


def _sort(
    store: CheckpointStore,
    generation: Generation,
    attempt: OpenAttempt,
    ended: list[HistoryRecord],
    unended: list[OpenAttempt],
) -> None:
    try:
        record = store.read_outcome(CheckpointId(attempt.checkpoint_id))
    except CorruptCheckpointError:
        return
    if record is None:
        unended.append(attempt)
    elif record.generation == generation:
        ended.append(record)
