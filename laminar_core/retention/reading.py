"""Read the facts for retention, in an order that keeps them valid; changes nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.checkpoint_index import KnownCheckpoint
from laminar_core.records.manifest import GenerationClaim
from laminar_core.records.paths import checkpoints_in
from laminar_core.records.retention import QuarantineRecord
from laminar_core.records.retention_paths import RetentionPaths, StoredName
from laminar_core.retention.facts import (
    Completed,
    Incomplete,
    RetentionFacts,
    StoredFile,
    Trace,
    Unreadable,
)
from laminar_core.store.checkpoint_index import CheckpointIndex
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.file_scrub import DamageLog
from laminar_core.store.pins import Pins
from laminar_core.store.records import read_record
from laminar_core.store.retention_log import RetentionLog
from laminar_core.store.verification import verify_files

READERS = 16
"""Requests at a time; what is read is small, and the store may be far away."""

Verify = Literal["sizes", "bytes"]
"""How to check that a checkpoint is restorable: by the lengths of its files, or by all bytes."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Depth:
    """How much to read."""

    verify: Verify = "sizes"
    remembers: bool = False
    """Whether the policy deletes history, so that recorded attempts must be read."""
    dates: bool = False
    """Whether the times at which attempts ended must be read."""
    announced: bool = False
    """Whether announcements of a default policy must be read."""
    damage: Mapping[CheckpointId, str] = field(default_factory=dict[CheckpointId, str])
    """Damage that is known already."""
    indexed: bool = False
    """Whether the index may stand for manifests, for a plan that is shown and not carried out."""
    readers: int = READERS
    """1 reads everything in one order, in the caller's thread."""


def read_facts(store: CheckpointStore, now_ms: int, depth: Depth) -> RetentionFacts:
    """Read everything that retention decides by.

    Raises:
        CorruptCheckpointError: what a generation started from cannot be read.
        StorageUnavailable: the store did not answer.
    """
    return _Reader(store, depth).read(now_ms)


class _Reader:
    def __init__(self, store: CheckpointStore, depth: Depth) -> None:
        self._store = store
        self._depth = depth
        self._paths = RetentionPaths(store.paths)
        self._log = RetentionLog(store.objects, store.paths)
        self._known_damage: Mapping[CheckpointId, str] = {}

    def read(self, now_ms: int) -> RetentionFacts:
        store = self._store
        claimed = store.claims.newest()  # First: who claims the job later, is seen later.
        bases = store.generations.bases()
        started = (base.generation for base in bases)  # Also those whose claim is lost.
        newest = max([*started, claimed or Generation(0)]) or None
        doomed = self._log.being_deleted()
        pins = Pins(store).by_checkpoint()
        quarantined = self._quarantined()
        self._known_damage = {
            **DamageLog(store.objects, store.paths).in_words(),
            **self._depth.damage,
        }
        listed = self._listed()
        stored = {key: self._paths.classify(key) for key in listed}
        attempted = sorted({name.checkpoint_id for name in stored.values() if name.checkpoint_id})
        marked = frozenset(c for c in attempted if store.paths.deletion(c) in stored)
        found = self._checkpoints(attempted, listed)
        completed = [each for each in found.values() if isinstance(each, KnownCheckpoint)]
        sizes = self._sizes(listed, stored, completed)
        incomplete = [c for c in attempted if found[c] is None]
        return RetentionFacts(
            now_ms=now_ms,
            newest_generation=newest,
            bases=bases,
            checkpoints=(
                *self._completed(completed, sizes),
                *(each for each in found.values() if isinstance(each, Unreadable)),
                *self._incomplete(incomplete, stored, marked),
            ),
            announced=frozenset(self._announced(completed)),
            committed=frozenset(store.attempts.committed_ids()),
            marked=doomed | marked,
            pins=pins,
            files=tuple(self._files(stored, sizes)),
            traces=tuple(self._traces(set(found) - set(incomplete), marked)),
            quarantined=quarantined,
        )

    def _map(self, function: Callable[[T], U], arguments: Iterable[T]) -> list[U]:
        if self._depth.readers == 1:
            return [function(argument) for argument in arguments]
        with ThreadPoolExecutor(self._depth.readers) as pool:
            return list(pool.map(function, arguments))

    def _listed(self) -> dict[str, int]:
        """Return the length of every object that may belong to a checkpoint, by key."""
        objects, paths = self._store.objects, self._store.paths
        listed = objects.sizes(paths.checkpoints)
        listed.update(objects.sizes(paths.shared))
        listed.update(objects.sizes(paths.staged))
        return listed

    def _quarantined(self) -> dict[str, int]:
        """Return left-over files found earlier, with the time; now, if the record is damaged."""
        keys = self._store.objects.list(self._paths.quarantine)
        found = self._map(self._first_seen_at_ms, keys)
        seen = zip(keys, found, strict=True)
        return {self._paths.path_in_quarantine(key): at for key, at in seen if at is not None}

    def _first_seen_at_ms(self, key: str) -> int | None:
        try:
            record = self._log.read(QuarantineRecord, key)
        except CorruptCheckpointError:
            return 2**62  # It waits until somebody deletes the record.
        return None if record is None else record.first_seen_at_ms

    def _checkpoints(
        self, attempted: Sequence[CheckpointId], listed: Mapping[str, int]
    ) -> dict[CheckpointId, KnownCheckpoint | Unreadable | None]:
        """Return what was attempted; from the index if that may be, else from manifests."""
        objects, paths = self._store.objects, self._store.paths
        indexed = CheckpointIndex(objects, paths).read(listed) if self._depth.indexed else {}
        others = [c for c in attempted if c not in indexed]
        read = dict(zip(others, self._map(self._manifest, others), strict=True))
        return {c: indexed[c] if c in indexed else read[c] for c in attempted}

    def _manifest(self, checkpoint_id: CheckpointId) -> KnownCheckpoint | Unreadable | None:
        try:
            manifest = self._store.manifests.find(checkpoint_id)
        except CorruptCheckpointError as error:
            path = self._store.paths.relative(self._store.paths.manifest(checkpoint_id))
            return Unreadable(checkpoint_id, str(error), path)
        return None if manifest is None else KnownCheckpoint.of(manifest)

    def _sizes(
        self,
        listed: Mapping[str, int],
        stored: Mapping[str, StoredName],
        completed: Iterable[KnownCheckpoint],
    ) -> dict[str, int | None]:
        """Length of every file, by path; None: it is named and not there.

        Named files are looked up even if not listed: a checkpoint may have completed since.
        """
        paths = self._store.paths
        begin = len(paths.absolute(""))
        sizes: dict[str, int | None] = {
            key[begin:]: listed[key] for key, name in stored.items() if name.kind != "record"
        }
        unlisted = sorted({path for each in completed for path in each.files} - sizes.keys())
        lengths = self._map(self._store.objects.size, map(paths.absolute, unlisted))
        return sizes | dict(zip(unlisted, lengths, strict=True))

    def _completed(
        self, completed: Iterable[KnownCheckpoint], sizes: Mapping[str, int | None]
    ) -> list[Completed]:
        return [
            Completed(
                checkpoint_id=each.checkpoint_id,
                generation=each.generation,
                completed_at_ms=each.completed_at_ms,
                files=each.files,
                is_savepoint=each.kind is CheckpointKind.SAVEPOINT,
                damage=self._damage(each, sizes),
                staged=each.staged,
            )
            for each in completed
        ]

    def _damage(self, known: KnownCheckpoint, sizes: Mapping[str, int | None]) -> str | None:
        if recorded := self._known_damage.get(known.checkpoint_id):
            return recorded
        for path, expected in known.files.items():
            size_bytes = sizes[path]
            if size_bytes is None:
                return f"{path} is missing"
            if size_bytes != expected:
                return f"{path} has {size_bytes} bytes instead of {expected}"
        return self._unreadable(known.checkpoint_id) if self._depth.verify == "bytes" else None

    def _unreadable(self, checkpoint_id: CheckpointId) -> str | None:
        """Read every file of a checkpoint; another run may delete it meanwhile."""
        manifest = self._store.manifests.find(checkpoint_id)
        if manifest is None:
            return "its manifest is gone"
        return verify_files(self._store.objects, self._store.paths, manifest).problem

    def _announced(self, completed: Iterable[KnownCheckpoint]) -> Iterable[Generation]:
        """Return writers of checkpoints whose claim announces a policy.

        An unreadable claim does not count.
        """
        if not self._depth.announced:
            return ()
        writers = sorted({each.generation for each in completed})
        said = self._map(self._has_announced, writers)
        return [writer for writer, yes in zip(writers, said, strict=True) if yes]

    def _has_announced(self, generation: Generation) -> bool:
        key = self._store.paths.claim(generation)
        try:
            claim = read_record(self._store.objects, key, GenerationClaim)
        except CorruptCheckpointError:
            return False
        return claim is not None and claim.default_retention is not None

    def _incomplete(
        self,
        ids: Iterable[CheckpointId],
        stored: Mapping[str, StoredName],
        marked: AbstractSet[CheckpointId],
    ) -> list[Incomplete]:
        """Return attempts that left files, and attempts that could still be published.

        An attempt with a recorded end, or with a tombstone, cannot be published.
        """
        left = {name.checkpoint_id for name in stored.values() if name.kind == "part"}
        paths = self._store.paths
        ended = self._numbered(paths.history) | marked
        found = [
            c for c in ids if c in left or (c not in ended and paths.manifest(c) not in stored)
        ]
        return [Incomplete(c, self._reserved_by(c)) for c in found]

    def _numbered(self, folder: str) -> frozenset[CheckpointId]:
        return frozenset(checkpoints_in(self._store.objects.children(folder)))

    def _reserved_by(self, checkpoint_id: CheckpointId) -> Generation | None:
        try:
            trigger = self._store.attempts.read_trigger(checkpoint_id)
        except CorruptCheckpointError:
            return None
        return None if trigger is None else Generation(trigger.generation)

    def _files(
        self, stored: Mapping[str, StoredName], sizes: Mapping[str, int | None]
    ) -> Iterable[StoredFile]:
        begin = len(self._store.paths.absolute(""))
        for key, name in stored.items():
            if name.kind == "record":
                continue
            path = key[begin:]
            size_bytes = sizes[path]
            if size_bytes is not None:
                yield StoredFile(path, size_bytes, name.kind, name.checkpoint_id, name.generation)

    def _traces(
        self, with_manifest: AbstractSet[CheckpointId], marked: AbstractSet[CheckpointId]
    ) -> list[Trace]:
        if not self._depth.remembers:
            return []
        paths = self._store.paths
        remembered = self._numbered(paths.history) | self._numbered(paths.commits)
        ids = sorted((remembered | marked) - with_manifest)
        return self._map(lambda c: Trace(c, self._ended_at_ms(c)), ids)

    def _ended_at_ms(self, checkpoint_id: CheckpointId) -> int | None:
        if not self._depth.dates:
            return None
        try:
            record = self._store.attempts.read_outcome(checkpoint_id)
        except CorruptCheckpointError:
            return None
        return None if record is None else record.ended_at_ms
