"""Manifests: a checkpoint is complete as soon as its manifest is created."""

from collections.abc import Mapping

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    ProtocolError,
)
from laminar_core.objectstore.opening import ObjectStore, address
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.damage import DamagedFile
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.paths import JobPaths, number_in
from laminar_core.records.retention import TOMBSTONE_LENGTH_MAX, is_tombstone
from laminar_core.store.claims import Claims
from laminar_core.store.file_scrub import damage_by_listing
from laminar_core.store.records import bytes_in, create_or_confirm


class Manifests:
    """The completed checkpoints of one job. Safe to use from several threads."""

    def __init__(self, objects: ObjectStore, paths: JobPaths, claims: Claims) -> None:
        self._objects = objects
        self._paths = paths
        self._claims = claims

    def publish(self, manifest: CheckpointManifest) -> None:
        """Complete the checkpoint. Its output may be committed only after this returned.

        Raises:
            FencedError: a newer generation is claimed. The manifest may be there all the same;
                whether it counts, and is committed, is for the newer generation to decide.
            StorageUnavailable: the store did not answer; call again with the same manifest.
        """
        self._claims.check_owner(Generation(manifest.generation))
        self._create(manifest)

    def publish_if_whole(self, manifest: CheckpointManifest) -> tuple[DamagedFile, ...]:
        """Complete the checkpoint if all its files exist; return the missing ones.

        Files are compared with a listing before the manifest is created, so a checkpoint that
        cannot be restored never counts. Retention cannot delete them meanwhile: the manifest names
        files of the newest checkpoint, and new ones.

        Raises:
            As ``publish`` does.
        """
        self._claims.check_owner(Generation(manifest.generation))
        damage = damage_by_listing(self._objects, self._paths, manifest)
        if not damage:
            self._create(manifest)
        return damage

    def _create(self, manifest: CheckpointManifest) -> None:
        """The caller has checked the owner: a zombie leaves no orphan if it can be helped."""
        generation, checkpoint_id = _ids(manifest)
        created = create_or_confirm(
            self._objects, self._paths.manifest(checkpoint_id), manifest.to_bytes()
        )
        self._claims.check_owner(generation)  # The fence: after the create, before any commit.
        if not created:
            raise ProtocolError(
                ErrorCode.OBJECT_EXISTS, f"checkpoint {checkpoint_id} was published before"
            )

    def ids(self) -> list[CheckpointId]:
        """Return the ids with a manifest, ascending, without checkpoints that are being deleted.

        Damaged checkpoints and orphans are included.
        """
        sizes = self._objects.sizes(self._paths.checkpoints)
        numbers = {number_in(key.removeprefix(self._paths.checkpoints)[:11]) for key in sizes}
        ids = sorted(CheckpointId(number) for number in numbers if number)
        return [c for c in ids if self._is_complete_in(sizes, c)]

    def _is_complete_in(self, sizes: Mapping[str, int], checkpoint_id: CheckpointId) -> bool:
        key = self._paths.manifest(checkpoint_id)
        if key not in sizes or self._paths.deletion(checkpoint_id) in sizes:
            return False
        return sizes[key] > TOMBSTONE_LENGTH_MAX or not self._is_tombstone(key)

    def read(self, checkpoint_id: CheckpointId) -> CheckpointManifest:
        """Read a manifest and check that it belongs to this checkpoint.

        Raises:
            ConfigurationError: there is no such completed checkpoint (NO_SUCH_CHECKPOINT), or not
                any more (BEING_DELETED).
            CorruptCheckpointError: it cannot be read, or belongs to another checkpoint.
        """
        manifest = self.find(checkpoint_id)
        if manifest is None:
            deleted = self.is_being_deleted(checkpoint_id)
            reason = ", retention deleted it" if deleted else ""
            raise ConfigurationError(
                ErrorCode.BEING_DELETED if deleted else ErrorCode.NO_SUCH_CHECKPOINT,
                f"job {self._paths.job} in {self._objects.uri} has no completed checkpoint "
                f"{checkpoint_id}{reason}: see `laminar checkpoints list`",
            )
        return manifest

    def find(self, checkpoint_id: CheckpointId) -> CheckpointManifest | None:
        """Read a manifest like ``read``; return None if the checkpoint never completed."""
        key = self._paths.manifest(checkpoint_id)
        try:
            data = self._objects.get(key)
            if data is None or is_tombstone(data):
                return None
            manifest = parse_manifest(data)
        except CorruptCheckpointError as error:
            raise CorruptCheckpointError(
                error.code, f"{address(self._objects, key)}: {error}"
            ) from error
        if (manifest.job, manifest.checkpoint_id) != (self._paths.job, checkpoint_id):
            raise CorruptCheckpointError(
                ErrorCode.MANIFEST_UNREADABLE,
                f"{address(self._objects, key)} is the manifest of checkpoint "
                f"{manifest.checkpoint_id} of job {manifest.job}: put the right one back",
            )
        return manifest

    def is_complete(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether there is a manifest, readable or not, that is not being deleted."""
        key = self._paths.manifest(checkpoint_id)
        if self._objects.size(key) is None or self.is_being_deleted(checkpoint_id):
            return False
        return not self._is_tombstone(key)

    def is_being_deleted(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether retention has marked the checkpoint: it is being deleted, or was."""
        return self._objects.size(self._paths.deletion(checkpoint_id)) is not None

    def require_kept(self, checkpoint_id: CheckpointId) -> None:
        """Refuse a checkpoint that retention deletes, or has deleted.

        Raises:
            ConfigurationError: so it is (BEING_DELETED).
        """
        if self.is_being_deleted(checkpoint_id):
            raise self.being_deleted(checkpoint_id)

    def being_deleted(self, checkpoint_id: CheckpointId) -> ConfigurationError:
        """Return the error for a checkpoint that retention deletes."""
        return ConfigurationError(
            ErrorCode.BEING_DELETED,
            f"checkpoint {checkpoint_id} of job {self._paths.job} is being deleted by retention"
            ": choose another checkpoint",
        )

    def _is_tombstone(self, key: str) -> bool:
        """Only what is as short as a tombstone is read, to see whether it is one."""
        size_bytes = self._objects.size(key)
        if size_bytes is None or size_bytes > TOMBSTONE_LENGTH_MAX:
            return False
        return is_tombstone(bytes_in(self._objects, key) or b"")


def _ids(manifest: CheckpointManifest) -> tuple[Generation, CheckpointId]:
    return Generation(manifest.generation), manifest.checkpoint_id
