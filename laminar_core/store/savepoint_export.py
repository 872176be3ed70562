"""Export a checkpoint as a savepoint; while it is copied a hold keeps it from retention."""

from collections.abc import Callable

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.objectstore.opening import open_object_store
from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.actor import Actor
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins
from laminar_core.store.savepoints import never, require_free, write_savepoint

HOLD_MS = 24 * 3_600_000
"""A copy that is broken off holds its checkpoint for so long."""


def export_savepoint(
    store: CheckpointStore,
    checkpoint_id: CheckpointId,
    target: str,
    actor: Actor,
    now_ms: int,
    is_cancelled: Callable[[], bool] = never,
) -> str:
    """Copy a completed checkpoint to the store at ``target``; returns its URI.

    Raises:
        As ``write_savepoint`` does, and ConfigurationError: there is no such checkpoint, retention
            deletes it, ``target`` is no store, or it is in the folder of a job of this store.
    """
    objects = open_object_store(target)
    require_free(store, objects)
    # Of this copy alone: another one must neither wait for the hold of one that was killed, nor end
    # the hold of one that is still made.
    name = f"copy-{sha256_hex(f'{objects.uri} {now_ms}'.encode())[:12]}"
    copying = actor.because(f"it is copied to {objects.uri}")
    with Pins(store).held(checkpoint_id, name, copying, now_ms, HOLD_MS):
        manifest = store.manifests.read(checkpoint_id)
        write_savepoint(store, manifest, objects, actor, now_ms, is_cancelled)
    return objects.uri


def export_as(
    store: CheckpointStore,
    checkpoint_id: CheckpointId,
    target: str,
    actor: Actor,
    now_ms: Callable[[], int],
) -> str:
    """Export a savepoint on behalf of an actor, recorded in the audit log; return its URI.

    Raises:
        As ``export_savepoint`` does, and IncompatibleStateError: the job went back behind the
            checkpoint.
    """
    _require_on_timeline(store, checkpoint_id)
    require_free(store, open_object_store(target))
    audit = AuditLog(store.objects, store.paths, now_ms)
    intended = audit.append(
        action="export",
        actor=actor,
        after={"checkpoint_id": checkpoint_id, "savepoint": target},
    )
    try:
        uri = export_savepoint(store, checkpoint_id, target, actor, intended.at_ms)
    except BaseException as error:
        audit.conclude(intended, "failed", reason=str(error))
        raise
    audit.conclude(intended, "done", reason=actor.reason)
    return uri


def _require_on_timeline(store: CheckpointStore, checkpoint_id: CheckpointId) -> None:
    generation = Generation(store.manifests.read(checkpoint_id).generation)
    if not on_timeline(checkpoint_id, generation, store.generations.bases()):
        raise IncompatibleStateError(
            ErrorCode.NO_RESTORABLE_CHECKPOINT,
            f"job {store.job} was restored to an older checkpoint than {checkpoint_id}: "
            "export another one",
        )
