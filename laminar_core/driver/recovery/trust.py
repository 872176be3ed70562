"""Decide how much of a checkpoint the driver reads before workers restore it.

Workers verify the digest of every file they restore from, and no output is settled before all of
them have (``driver.execution``). So the driver does not read the same bytes first: it verifies the
manifest, and by listings that each file is there and has its length. It reads all of a checkpoint

- that a person asked for, or that comes from a savepoint,
- of another number of workers: then no rule says that each file has one worker that verifies it,
- that is marked as damaged, or that a worker or the driver itself found damaged,
- whose files are not all there.

Only the full reading rejects a checkpoint, so the reasons are the same wherever damage is found.
Once it has rejected one, it reads the older ones as well: a generation that starts from a damaged
checkpoint puts all newer ones off the timeline, where they stay when a person puts the file back.
So at most one generation starts in vain. Source: ADR-0105.
"""

from collections.abc import Collection

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.savepoint import is_own
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.file_scrub import DamageLog, damage_by_listing
from laminar_core.store.verification import read_verified, verify_files


class Trust:
    """The checkpoints of a job that workers may verify, over the generations of one driver."""

    def __init__(self, store: CheckpointStore, parallelism: int) -> None:
        self._store = store
        self._parallelism = parallelism
        self._is_automatic = False
        self._marked: frozenset[CheckpointId] | None = None
        """Checkpoints with a record of damage; None: not listed yet."""
        self._withdrawn: set[CheckpointId] = set()
        self._has_rejected = False
        """Whether a newer checkpoint of this choice is damaged."""

    def begin(self, *, is_automatic: bool) -> None:
        """Begin a choice; ``is_automatic``: the driver takes the newest that verifies."""
        self._is_automatic = is_automatic
        self._marked = None
        self._has_rejected = False

    def withdraw_from(self, checkpoint_id: CheckpointId) -> bool:
        """Read all of this checkpoint from now on; return False if nothing changes by that."""
        if not self._is_automatic or checkpoint_id in self._withdrawn:
            return False
        self._withdrawn.add(checkpoint_id)
        return True

    def damage_of(self, manifest: CheckpointManifest) -> str | None:
        """Return what is wrong with the files of a checkpoint; None: it can be restored.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        objects, paths = self._store.objects, self._store.paths
        if self._leaves_to_workers(manifest) and not damage_by_listing(objects, paths, manifest):
            return None
        problem = verify_files(objects, paths, manifest).problem
        self._has_rejected = self._has_rejected or problem is not None
        return problem

    def require_carried(self, manifest: CheckpointManifest, operators: Collection[str]) -> None:
        """Verify files that later checkpoints will name although no worker restores from them.

        Files in the folder of the checkpoint are read, and so verified, when they are copied.

        Raises:
            CorruptCheckpointError: one is missing, or not what was written.
            StorageUnavailable: the store did not answer.
        """
        if not self._leaves_to_workers(manifest):
            return
        for entry in manifest.subtasks:
            if entry.operator_id in operators:
                for segment in entry.segments:
                    if not is_own(segment.path):
                        read_verified(self._store.objects, self._store.paths, segment)

    def _leaves_to_workers(self, manifest: CheckpointManifest) -> bool:
        if not self._is_automatic or self._has_rejected:
            return False
        if set(manifest.parallelism.values()) - {self._parallelism}:
            return False
        if self._marked is None:
            self._marked = DamageLog(self._store.objects, self._store.paths).ids()
        return manifest.checkpoint_id not in self._withdrawn | self._marked
