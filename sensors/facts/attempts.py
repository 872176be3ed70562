"""The outcome of each attempt at a checkpoint, as far as the store shows it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.recovery_facts import Base
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import HistoryRecord, TriggerRecord
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, read_stored
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import bytes_in

PENDING_MAX = 16
"""An attempt that so many newer ones have overtaken is not waited for any more."""

NEVER_COMPLETED = frozenset({"declined", "expired", "aborted", "abandoned"})
"""Outcomes of attempts that began and came to nothing; newer ones overtook subsumed attempts."""

_MISSES_MAX = 3
"""Consecutive unused numbers after which no higher one is expected."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt that is not, and will not become, a restorable checkpoint.

    ``outcome``: from its history (declined, expired, aborted, subsumed), or ``abandoned`` (its
    generation ended first), ``orphan`` (completed off the timeline), ``damaged`` (its manifest is
    unreadable, which may be repaired). ``sha256``: the digest of the record with the outcome.
    """

    checkpoint_id: int
    outcome: str
    reason: str
    sha256: str
    history: HistoryRecord | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """An attempt that may still end in any way."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Silent:
    """An attempt without anything to report: deleted by retention, or only a folder is left."""

    checkpoint_id: int


Attempt = StoredCheckpoint | Failed | Pending | Silent


class Attempts:
    """One look at the attempts of a job; bases and generations are read once."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._bases: Sequence[Base] | None = None
        self._newest_generation: Generation | None = None

    def after(
        self, checkpoint_id: int, limit: int | None = None, *, is_same_generation: bool = False
    ) -> Iterator[tuple[int, Attempt]]:
        """Yield each attempt with a higher number, ascending, with its number; at most ``limit``.

        ``is_same_generation``: all of them belong to the generation of ``checkpoint_id``, or the
        earlier ones are reported already. Then numbers have no gaps, and are tried one after the
        other, which avoids a listing that grows with the age of the job.

        Raises:
            CorruptCheckpointError: a base cannot be read, so no timeline can be known.
            StorageUnavailable: the store did not answer.
        """
        enough = None if limit is None else limit + PENDING_MAX
        found = self._tried(checkpoint_id) if is_same_generation else self._listed(checkpoint_id)
        ids = list(islice(found, enough))
        for position, known in enumerate(ids[:limit]):
            overtaken = len(ids) - 1 - position >= PENDING_MAX
            yield known, self._look_at(known, overtaken=overtaken)

    def _listed(self, checkpoint_id: int) -> Iterator[CheckpointId]:
        return (known for known in self._store.attempts.ids() if known > checkpoint_id)

    def _tried(self, checkpoint_id: int) -> Iterator[CheckpointId]:
        misses = 0
        for number in count(checkpoint_id + 1):
            known = CheckpointId(number)
            if self._store.objects.size(self._store.paths.trigger(known)) is not None:
                misses = 0
                yield known
            elif (misses := misses + 1) == _MISSES_MAX:
                return

    def _look_at(self, checkpoint_id: CheckpointId, *, overtaken: bool) -> Attempt:
        found = read_stored(self._store, checkpoint_id)
        if found is None:
            return self._without_manifest(checkpoint_id, overtaken=overtaken)
        if not isinstance(found, StoredCheckpoint):
            return Failed(checkpoint_id, "damaged", found.problem, found.sha256)
        generation = Generation(found.manifest.generation)
        if self._bases is None:
            self._bases = self._store.generations.bases()
        if on_timeline(checkpoint_id, generation, self._bases):
            return found
        reason = f"completed by generation {generation}, but a later one did not continue from it"
        return Failed(checkpoint_id, "orphan", reason, found.sha256)

    def _without_manifest(self, checkpoint_id: CheckpointId, *, overtaken: bool) -> Attempt:
        try:
            ended = self._store.attempts.read_outcome(checkpoint_id)
            trigger = self._store.attempts.read_trigger(checkpoint_id)
        except CorruptCheckpointError as error:
            return Failed(checkpoint_id, "damaged", str(error), self._digest(checkpoint_id))
        if ended is not None:
            if ended.outcome == "completed":
                return Silent(checkpoint_id)
            digest = sha256_hex(ended.to_bytes())
            return Failed(checkpoint_id, ended.outcome, ended.reason, digest, ended)
        if trigger is None:
            return Silent(checkpoint_id)
        if not overtaken and not self._is_over(Generation(trigger.generation)):
            return Pending(checkpoint_id)
        return _abandoned(trigger)

    def _digest(self, checkpoint_id: CheckpointId) -> str:
        """Of the records of an attempt as they are stored, whether or not they can be read."""
        keys = self._store.paths.outcome(checkpoint_id), self._store.paths.trigger(checkpoint_id)
        stored = (bytes_in(self._store.objects, key) or b"" for key in keys)
        return sha256_hex(b"".join(stored))

    def _is_over(self, generation: Generation) -> bool:
        if self._newest_generation is None:
            self._newest_generation = self._store.claims.newest()
        return self._newest_generation is not None and generation < self._newest_generation


def _abandoned(trigger: TriggerRecord) -> Failed:
    return Failed(
        trigger.checkpoint_id,
        "abandoned",
        f"generation {trigger.generation} recorded no end",
        sha256_hex(b"abandoned " + trigger.to_bytes()),
    )
