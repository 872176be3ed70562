"""Which checkpoint a restore goes back to: found, verified whole, or refused with the reason."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import dagster as dg

from laminar_core.checkpoint.recovery import Refuse, Rejected, RestoreFrom, on_timeline
from laminar_core.checkpoint.recovery_facts import Wish
from laminar_core.checkpoint.types import CheckpointId, Generation
from laminar_core.errors import CorruptCheckpointError
from laminar_core.state.arrow_codec import sha256_hex
from laminar_core.state.manifest import CheckpointManifest
from laminar_core.storage.checkpoint_store import CheckpointStore


@dataclass(frozen=True, slots=True)
class Chosen:
    """A checkpoint of which every byte has just been read."""

    manifest: CheckpointManifest
    sha256: str
    """Of the stored manifest: the data version of the checkpoint's partition."""
    rejected: tuple[Rejected, ...]
    """Newer ones that were found to be damaged on the way."""

    @property
    def checkpoint_id(self) -> CheckpointId:
        """Its number."""
        return CheckpointId(self.manifest.checkpoint_id)


def choose(store: CheckpointStore, wish: Wish) -> Chosen:
    """Find and verify what ``wish`` asks for; changes nothing.

    Raises:
        dagster.Failure: there is none, or it is damaged, orphaned or being deleted.
        LaminarError: the store did not answer, or the timeline cannot be known.
    """
    choice = store.choose_checkpoint(wish)
    if not isinstance(choice.decision, RestoreFrom):
        reason = "it has no completed checkpoint"
        if isinstance(choice.decision, Refuse):
            reason = choice.decision.reason
        raise refused(f"job {store.job} is not restored: {reason}")
    manifest = choice.manifest
    assert manifest is not None, "a restore has one"
    data = store.objects.get(store.paths.manifest(CheckpointId(manifest.checkpoint_id)))
    if data is None:
        raise refused(f"checkpoint {manifest.checkpoint_id} was deleted while it was read")
    rejected = tuple(each for each in choice.decision.rejected if not each.orphan)
    return Chosen(manifest, sha256_hex(data), rejected)


def timeline(store: CheckpointStore) -> Iterator[CheckpointManifest]:
    """Completed checkpoints that a restore may go back to, newest first; no state is read.

    Raises:
        CorruptCheckpointError: a base cannot be read, so no timeline can be known.
        StorageUnavailable: the store did not answer.
    """
    bases = store.bases()
    for checkpoint_id in reversed(store.completed_ids()):
        try:
            manifest = store.find_manifest(checkpoint_id)
        except CorruptCheckpointError:
            continue
        if manifest and on_timeline(checkpoint_id, Generation(manifest.generation), bases):
            yield manifest


def back_by(store: CheckpointStore, steps: int) -> CheckpointId:
    """The checkpoint ``steps`` completed ones before the newest.

    Raises:
        dagster.Failure: there are not that many.
        LaminarError: as ``timeline``.
    """
    found = [manifest.checkpoint_id for manifest in islice(timeline(store), steps + 1)]
    if len(found) <= steps:
        before = max(len(found) - 1, 0)
        newest = f"newest, {found[0]}" if found else "newest"
        raise refused(
            f"job {store.job} cannot go back by {steps}: before its {newest}, there "
            f"{'is' if before == 1 else 'are'} {before} completed on the timeline"
        )
    return CheckpointId(found[-1])


def refused(why: str) -> dg.Failure:
    """A run that ends because a second try would end the same way."""
    return dg.Failure(why, allow_retries=False)
