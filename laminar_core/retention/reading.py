"""Read the facts for retention, in an order that keeps them valid; changes nothing."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.manifest import CheckpointManifest, GenerationClaim
from laminar_core.records.paths import checkpoints_in
from laminar_core.records.retention import QuarantineRecord
from laminar_core.records.retention_paths import RetentionPaths, StoredName
from laminar_core.records.staged import staged_files
from laminar_core.retention.facts import (
    Completed,
    Incomplete,
    RetentionFacts,
    StoredFile,
    Trace,
    Unreadable,
)
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
        stored = {key: self._paths.classify(key) for key in self._listed()}
        attempted = sorted({name.checkpoint_id for name in stored.values() if name.checkpoint_id})
        manifests = dict(zip(attempted, self._map(self._manifest, attempted), strict=True))
        sizes = self._sizes(stored, manifests.values())
        incomplete = [c for c in attempted if manifests[c] is None]
        return RetentionFacts(
            now_ms=now_ms,
            newest_generation=newest,
            bases=bases,
            checkpoints=(
                *self._completed(manifests.values(), sizes),
                *(m for m in manifests.values() if isinstance(m, Unreadable)),
                *self._incomplete(incomplete, stored),
            ),
            announced=frozenset(self._announced(manifests.values())),
            committed=frozenset(store.attempts.committed_ids()),
            marked=doomed | self._marked(stored),
            pins=pins,
            files=tuple(self._files(stored, sizes)),
            traces=tuple(self._traces(set(manifests) - set(incomplete), self._marked(stored))),
            quarantined=quarantined,
        )

    def _map(self, function: Callable[[T], U], arguments: Iterable[T]) -> list[U]:
        if self._depth.readers == 1:
            return [function(argument) for argument in arguments]
        with ThreadPoolExecutor(self._depth.readers) as pool:
            return list(pool.map(function, arguments))

    def _listed(self) -> list[str]:
        objects, paths = self._store.objects, self._store.paths
        folders = (paths.checkpoints, paths.shared, paths.staged)
        return [key for folder in folders for key in objects.list(folder)]

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

    def _manifest(self, checkpoint_id: CheckpointId) -> CheckpointManifest | Unreadable | None:
        try:
            return self._store.manifests.find(checkpoint_id)
        except CorruptCheckpointError as error:
            path = self._store.paths.relative(self._store.paths.manifest(checkpoint_id))
            return Unreadable(checkpoint_id, str(error), path)

    def _sizes(
        self,
        stored: Mapping[str, StoredName],
        manifests: Iterable[CheckpointManifest | Unreadable | None],
    ) -> dict[str, int | None]:
        """Length of every file, by path; None: it is named and not there.

        Named files are looked up even if not listed: a checkpoint may have completed since.
        """
        paths = self._store.paths
        keys = {key for key, name in stored.items() if name.kind != "record"}
        for manifest in manifests:
            if isinstance(manifest, CheckpointManifest):
                keys.update(paths.absolute(file.path) for file in manifest.files())
        ordered = sorted(keys)
        lengths = self._map(self._store.objects.size, ordered)
        return {paths.relative(k): n for k, n in zip(ordered, lengths, strict=True)}

    def _completed(
        self,
        manifests: Iterable[CheckpointManifest | Unreadable | None],
        sizes: Mapping[str, int | None],
    ) -> list[Completed]:
        found = [m for m in manifests if isinstance(m, CheckpointManifest)]
        return [
            Completed(
                checkpoint_id=m.checkpoint_id,
                generation=Generation(m.generation),
                completed_at_ms=m.completed_at_ms,
                files={file.path: file.size_bytes for file in m.files()},
                is_savepoint=m.kind is CheckpointKind.SAVEPOINT,
                damage=self._damage(m, sizes),
                staged=frozenset(
                    file.path for entry in m.subtasks for file in staged_files(entry.committables)
                ),
            )
            for m in found
        ]

    def _damage(self, manifest: CheckpointManifest, sizes: Mapping[str, int | None]) -> str | None:
        checkpoint_id = manifest.checkpoint_id
        if known := self._known_damage.get(checkpoint_id):
            return known
        for file in manifest.files():
            size_bytes = sizes[file.path]
            if size_bytes is None:
                return f"{file.path} is missing"
            if size_bytes != file.size_bytes:
                return f"{file.path} has {size_bytes} bytes instead of {file.size_bytes}"
        if self._depth.verify == "bytes":
            return verify_files(self._store.objects, self._store.paths, manifest).problem
        return None

    def _announced(
        self, manifests: Iterable[CheckpointManifest | Unreadable | None]
    ) -> Iterable[Generation]:
        """Return writers of checkpoints whose claim announces a policy.

        An unreadable claim does not count.
        """
        if not self._depth.announced:
            return ()
        found = {Generation(m.generation) for m in manifests if isinstance(m, CheckpointManifest)}
        writers = sorted(found)
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
        self, ids: Iterable[CheckpointId], stored: Mapping[str, StoredName]
    ) -> list[Incomplete]:
        """Return attempts that left files, and attempts that could still be published.

        An attempt with a recorded end, or with a tombstone, cannot be published.
        """
        left = {name.checkpoint_id for name in stored.values() if name.kind == "part"}
        paths = self._store.paths
        ended = self._numbered(paths.history) | self._marked(stored)
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

    def _marked(self, stored: Iterable[str]) -> frozenset[CheckpointId]:
        told = ((key, self._paths.classify(key).checkpoint_id) for key in stored)
        return frozenset(c for key, c in told if c and key == self._paths.paths.deletion(c))

    def _files(
        self, stored: Mapping[str, StoredName], sizes: Mapping[str, int | None]
    ) -> Iterable[StoredFile]:
        for key, name in stored.items():
            path = self._store.paths.relative(key)
            if name.kind == "record" or (size_bytes := sizes[path]) is None:
                continue
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
