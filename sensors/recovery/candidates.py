"""Choose the checkpoint for a recovery without reading it whole: that would cost downtime.

It is read whole twice all the same, by the check before the driver and by the driver. So a damaged
checkpoint is never restored; it costs one attempt, and then it is on record.
"""

from collections.abc import Mapping

from laminar_core.codec.digest import sha256_hex
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.resources.names import GROUP, job_name
from laminar_core.sensors.facts.integrity_records import FoundDamage
from laminar_core.store.checkpoint_store import CheckpointStore, Choice
from laminar_core.store.records import bytes_in
from laminar_core.store.verification import compare_sizes, verify_files


def choose_by_sizes(
    store: CheckpointStore, on_record: Mapping[str, FoundDamage], group: str = GROUP
) -> Choice:
    """Choose the newest checkpoint on the timeline that has all files and no recorded damage.

    Raises:
        CorruptCheckpointError: a base cannot be read, so the timeline is unknown.
        StorageUnavailable: the store did not answer.
    """
    return store.choose_checkpoint(examine=_Candidates(store, on_record, group).problem_of)


class _Candidates:
    """Examines checkpoints from the newest to older ones.

    A checkpoint found damaged may not be the only one. So after it the others are read whole,
    except those that name one of the damaged files, so that the next attempt succeeds.
    """

    def __init__(
        self, store: CheckpointStore, on_record: Mapping[str, FoundDamage], group: str
    ) -> None:
        self._store, self._on_record, self._group = store, on_record, group
        self._damaged: dict[str, str] = {}
        self._is_suspicious = False

    def problem_of(self, manifest: CheckpointManifest) -> str | None:
        """Return the problem of a checkpoint, or None."""
        store, paths = self._store, {ref.path for ref in manifest.files()}
        data = bytes_in(store.objects, store.paths.manifest(manifest.checkpoint_id))
        if (found := self._on_record.get(sha256_hex(data or b""))) is not None:
            self._is_suspicious = True
            self._damaged |= dict.fromkeys(found.paths, found.problem)
            return (
                f"{found.problem} (found by run {found.run_id[:8]}; once it is repaired, "
                f"{job_name('verify', self._group)} says so)"
            )
        if known := sorted(paths & self._damaged.keys()):
            return self._damaged[known[0]]
        examine = verify_files if self._is_suspicious else compare_sizes
        return examine(store.objects, store.paths, manifest).problem
