"""Detect lost or damaged files while the state is still in memory, and replace them.

An incremental checkpoint names files that earlier ones wrote. A lost file makes every later
checkpoint useless, and this would remain unnoticed until a restore. So the coordinator compares
every manifest with a listing before creating it, and reads the files of the newest checkpoint one
after the other in the background, no faster than ``bytes_per_second``.

A damaged file is reported once, the checkpoints that name it are marked, and its operator writes
the whole state with the next checkpoint, which names no older file. Nothing is deleted.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Literal

from laminar_core.driver.events import FilesDamaged
from laminar_core.driver.hosting import CoordinatorHost
from laminar_core.errors import CorruptCheckpointError, FencedError, StorageUnavailable
from laminar_core.link.messages import Renew
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.damage import DamagedFile, DamageKind
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.record import FileRef
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.file_scrub import DamageLog, damage_by_reading, is_inherited, naming_any

SCRUB_BYTES_PER_SECOND = 1 << 20
"""86 GB a day. Small files are read one a second, which is 0.04 $ a day in a bucket."""
_PAUSE_MIN_MS = 1_000

FoundBy = Literal["listing", "reading"]


class Scrub:
    """The scrub of one generation; called from the coordinator's thread."""

    def __init__(
        self,
        store: CheckpointStore,
        generation: Generation,
        host: CoordinatorHost,
        background: Executor,
        bytes_per_second: int,
    ) -> None:
        self._store = store
        self._generation = generation
        self._host = host
        self._background = background
        self._bytes_per_second = bytes_per_second
        self._named: dict[str, FileRef] = {}
        """Files of the newest completed checkpoint, by path."""
        self._owners: dict[str, tuple[str, int]] = {}
        """Shared files with the operator and the subtask that own their state."""
        self._newest: CheckpointManifest | None = None
        self._suspects: dict[str, FileRef] = {}
        """Files that a worker could not merge, and that were not read since."""
        self._waiting: deque[str] = deque()
        self._reading = False
        self._next_ms = 0
        self._known: dict[str, DamagedFile] = {}
        """Damage found before, by path."""
        self._healing: set[str] = set()
        """Damaged files whose owners were asked to write their whole state."""

    # --- what there is --------------------------------------------------------------------------

    def completed(self, manifest: CheckpointManifest) -> None:
        """Scrub the files of this checkpoint, the newest, from now on."""
        self._newest = manifest
        self._named = {file.path: file for file in manifest.files()}
        suspected = {p: owner for p, owner in self._owners.items() if p in self._suspects}
        self._owners = {**suspected, **dict(self._owners_of(manifest))}
        known = [p for p in self._waiting if p in self._suspects or p in self._named]
        new = self._named if self._bytes_per_second else ()
        self._waiting = deque(dict.fromkeys([*known, *new]))
        if lost := self.known_damage(manifest):  # It was found while the manifest was created.
            self._background.submit(self._report, lost, "reading", [], manifest)

    def known_damage(self, manifest: CheckpointManifest) -> tuple[DamagedFile, ...]:
        """Return what the manifest names although it is known to be lost."""
        files = (self._known.get(file.path) for file in manifest.files())
        return tuple(file for file in files if file is not None)

    def _owners_of(self, manifest: CheckpointManifest) -> Iterator[tuple[str, tuple[str, int]]]:
        for entry in manifest.subtasks:
            if entry.operator_id in manifest.carried:
                continue  # No worker has it, so none can write it again.
            for segment in entry.segments:
                if is_inherited(self._store.paths, manifest, segment.path):
                    yield segment.path, (entry.operator_id, entry.subtask_index)

    # --- reading --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Read the next file if it is due."""
        if self._reading or not self._waiting or self._host.monotonic_ms() < self._next_ms:
            return
        self._reading = True
        path = self._waiting.popleft()
        self._background.submit(self._read, self._suspects.get(path) or self._named[path])

    def next_wakeup_ms(self) -> int | None:
        """Return when ``tick`` is due; None if there is no file to read."""
        return None if self._reading or not self._waiting else self._next_ms

    def suspect(self, operator_id: str, subtask_index: int, file: FileRef) -> None:
        """Read this file before others, also without a budget: a worker could not merge it."""
        if file.path in self._known or file.path in self._suspects:
            return
        self._suspects[file.path] = file
        self._owners[file.path] = operator_id, subtask_index
        self._waiting.appendleft(file.path)
        self._next_ms = 0

    def _read(self, file: FileRef) -> None:
        problem: DamageKind | None = None
        with suppress(StorageUnavailable):  # Its turn comes again.
            problem = damage_by_reading(self._store.objects, self._store.paths, file)
        self._host.post(lambda: self._was_read(file, problem))

    def _was_read(self, file: FileRef, problem: DamageKind | None) -> None:
        self._reading = False
        rate = self._bytes_per_second or SCRUB_BYTES_PER_SECOND
        pause_ms = max(_PAUSE_MIN_MS, file.size_bytes * 1_000 // rate)
        self._next_ms = int(self._host.monotonic_ms()) + pause_ms
        suspected = self._suspects.pop(file.path, None) is not None
        if suspected:  # It may wait as a file of a checkpoint besides.
            self._waiting = deque(path for path in self._waiting if path != file.path)
        if file.path not in self._named and not suspected:
            return  # No checkpoint will name it any more, so retention may have deleted it.
        if problem is not None:
            self._found((DamagedFile(path=file.path, problem=problem),), "reading")
        elif self._bytes_per_second and file.path in self._named:
            self._waiting.append(file.path)

    # --- what is found --------------------------------------------------------------------------

    def unpublished(self, manifest: CheckpointManifest, damage: tuple[DamagedFile, ...]) -> None:
        """Handle a manifest that was not created, because files it names are lost."""
        self._owners = {**self._owners, **dict(self._owners_of(manifest))}
        self._found(damage, "listing")

    def _found(self, damage: tuple[DamagedFile, ...], found_by: FoundBy) -> None:
        """Heal at once, and report; each file once.

        A file in the folder of the restored checkpoint has no owner until a manifest inherits it,
        so it may be healed only when it is found again.
        """
        healable = [f.path for f in damage if f.path in self._owners.keys() - self._healing]
        self._healing.update(healable)
        owners = sorted({self._owners[path] for path in healable})
        if owners:
            self._host.broadcast(Renew(generation=self._generation, operators=tuple(owners)))
        new = tuple(file for file in damage if file.path not in self._known)
        if new:
            self._known.update({file.path: file for file in new})
            renewed = [owner for owner, _ in owners]
            self._background.submit(self._report, new, found_by, renewed, self._newest)

    def _report(
        self,
        damage: tuple[DamagedFile, ...],
        found_by: FoundBy,
        renewed: list[str],
        newest: CheckpointManifest | None,
    ) -> None:
        """Mark the checkpoints that name the files, then publish the event.

        Runs in the background. ``newest`` was the newest completed checkpoint when the files were
        found: a later one does not name them any more, and the search would end there.
        """
        marked: list[CheckpointId] = []
        try:
            self._store.claims.check_owner(
                self._generation
            )  # What a successor deletes is not lost.
            log = DamageLog(self._store.objects, self._store.paths)
            for manifest, lost in naming_any(self._store.paths, self._lineage(newest), damage):
                checkpoint_id = manifest.checkpoint_id
                log.record(checkpoint_id, self._generation, lost, self._host.now_ms())
                marked.append(checkpoint_id)
        except FencedError as error:
            self._host.fenced(error)
            return
        except StorageUnavailable:
            pass  # Those that are not marked are found by whoever verifies them.
        event = FilesDamaged(
            time_ms=self._host.now_ms(),
            generation=self._generation,
            found_by=found_by,
            files=damage,
            checkpoint_ids=tuple(sorted(marked)),
            rewritten_operators=tuple(sorted(set(renewed))),
        )
        self._host.post(lambda: self._host.notify(event))

    def _lineage(self, manifest: CheckpointManifest | None) -> Iterator[CheckpointManifest]:
        """Yield a completed checkpoint and its ancestors, as far as they can be read."""
        with suppress(CorruptCheckpointError):
            while manifest is not None:
                yield manifest
                parent_id = manifest.parent_checkpoint_id
                if parent_id is None:
                    return
                manifest = self._store.manifests.find(parent_id)


def not_whole(damage: Sequence[DamagedFile]) -> str:
    """Say why a checkpoint that names these files is not published."""
    first = damage[0]
    more = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
    return (
        f"{first.path} is lost ({first.problem}){more}: the operators that need it write their "
        "whole state with the next checkpoint"
    )
