"""Follow the attempts at checkpoints of one generation from tick to tick, without listings.

A job with a checkpoint every second makes tens of thousands of attempts a day, and a listing names
them all. Numbers rise by one, so after a first listing the next number shows whether there is a new
attempt; the one after it covers a lost number. Retention may delete whole ranges of numbers between
two looks, so after a long silence the attempts are listed again.
"""

from collections.abc import Iterator

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.manifest import HistoryRecord, TriggerRecord
from laminar_core.records.record import CheckpointNumber
from laminar_core.resources.values import Values
from laminar_core.sensors.cursor import ClockMs, Number
from laminar_core.store.checkpoint_store import CheckpointStore

_NEW_MAX = 200
"""Largest number of attempts per tick; the next tick continues."""
_SILENCE_MS = 30_000
"""If there is nothing new for so long, by the driver's clock, it is listed once more."""
_OPEN_MAX = 8
"""Attempts that are waited for; what has not ended with so many newer ones never will."""


class OpenAttempt(Values):
    """Neither completed nor failed, as far as it is written down; the time is the driver's."""

    checkpoint_id: CheckpointNumber
    kind: CheckpointKind
    triggered_at_ms: ClockMs


class Followed(Values):
    """Everything up to ``checkpoint_id`` is known, but how ``open`` ones end; None: nothing is."""

    checkpoint_id: Number | None = None
    open: tuple[OpenAttempt, ...] = ()
    new_at_ms: ClockMs = 0
    """Time of the last new attempt or listing; 0: list now if there is no new one."""


def follow(
    store: CheckpointStore, generation: Generation, before: Followed, back: int, now_ms: int
) -> tuple[list[HistoryRecord], Followed]:
    """Return the attempts that ended since ``before``, ascending, and the next cursor.

    The first call returns the newest ``back`` attempts, and later ones never more. Attempts of
    other generations are left out. ``now_ms`` is by the driver's clock.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    known = before.checkpoint_id or 0
    ids = [] if before.checkpoint_id is None else list(_new_ids(store, known))
    lists = not ids and now_ms - before.new_at_ms >= _SILENCE_MS
    if lists or before.checkpoint_id is None:
        ids = [c for c in store.attempts.ids() if c > known][-back:]
    new_at_ms = now_ms if ids or lists else before.new_at_ms
    ended: list[HistoryRecord] = []
    unended: list[OpenAttempt] = []
    for attempt in before.open:
        _sort(store, attempt, ended, unended)
    for checkpoint_id in ids:
        trigger = _trigger(store, checkpoint_id)
        if trigger is not None and trigger.generation == generation:
            attempt = OpenAttempt(
                checkpoint_id=checkpoint_id,
                kind=trigger.kind,
                triggered_at_ms=trigger.triggered_at_ms,
            )
            _sort(store, attempt, ended, unended)
    newest = ids[-1] if ids else known
    still_open = tuple(unended[-_OPEN_MAX:])
    return ended, Followed(checkpoint_id=newest, open=still_open, new_at_ms=new_at_ms)


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
        return store.attempts.read_trigger(checkpoint_id)
    except CorruptCheckpointError:
        return None


def _sort(
    store: CheckpointStore,
    attempt: OpenAttempt,
    ended: list[HistoryRecord],
    unended: list[OpenAttempt],
) -> None:
    try:
        record = store.attempts.read_outcome(attempt.checkpoint_id)
    except CorruptCheckpointError:
        return
    if record is None:
        unended.append(attempt)
    else:
        ended.append(record)
