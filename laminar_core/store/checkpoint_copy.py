"""Copy one checkpoint of a job, byte by byte, into a store of its own, to be restored there."""

from laminar_core.protocol.types import Generation
from laminar_core.records.actor import ActorKind
from laminar_core.records.manifest import CheckpointManifest, GenerationClaim, GenerationEnd, Owner
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import create_and_read_back
from laminar_core.store.verification import read_verified


def copy_checkpoint(
    source: CheckpointStore, target: CheckpointStore, manifest: CheckpointManifest, owner: Owner
) -> int:
    """Copy all files and then the manifest, each verified; return the number of bytes.

    ``source`` is not changed. In ``target`` the generation that wrote the checkpoint counts as
    over, so the next claim of the job there gets a number, and object names, of its own.

    Raises:
        CorruptCheckpointError: a file is damaged, or the target holds something else,
            or does not keep it.
        StorageUnavailable: one of the stores does not answer; the copy may be in part there.
    """
    target.objects.create()
    size_bytes = 0
    for ref in manifest.files():
        data = read_verified(source.objects, source.paths, ref)
        create_and_read_back(target.objects, target.paths.absolute(ref.path), data)
        size_bytes += len(data)
    generation = Generation(manifest.generation)
    claim = GenerationClaim(
        job=manifest.job,
        generation=generation,
        owner=owner,
        actor=owner.user,
        actor_kind=ActorKind.PROGRAM,
        reason=f"stands for the generation that wrote checkpoint {manifest.checkpoint_id}",
        code_version=manifest.code_version,
        claimed_at_ms=manifest.completed_at_ms,
    )
    ended = GenerationEnd(generation=generation, outcome="copied", reason=source.objects.uri)
    create_and_read_back(target.objects, target.paths.claim(generation), claim.to_bytes())
    create_and_read_back(target.objects, target.paths.end(generation), ended.to_bytes())
    copy = manifest.model_copy(update={"audited": None})  # The audit log stays where it is.
    key = source.paths.relative(source.paths.manifest(manifest.checkpoint_id))
    create_and_read_back(target.objects, target.paths.absolute(key), copy.to_bytes())
    return size_bytes
