"""Pins that a person, or an orchestrator, sets and takes away; the audit log tells of it."""

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.record import JsonObject
from laminar_core.records.retention import PinRecord
from laminar_core.records.retention_paths import check_pin_name
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins, StoredPin


def pin_checkpoint(
    store: CheckpointStore,
    checkpoint_id: CheckpointId,
    name: str,
    actor: Actor,
    now_ms: int,
    hold_ms: int | None = None,
) -> PinRecord:
    """Keep a checkpoint from now on, for ``hold_ms`` or until it is unpinned.

    Raises:
        As ``Pins.pin`` does, and ConfigurationError: that is no name for a pin.
    """
    record = PinRecord(
        checkpoint_id=checkpoint_id,
        name=check_pin_name(name),
        actor=actor.name,
        reason=actor.reason,
        created_at_ms=now_ms,
        expires_at_ms=None if hold_ms is None else now_ms + hold_ms,
    )
    audit = AuditLog(store.objects, store.paths, lambda: now_ms)
    after = record.model_dump(mode="json")
    intended = audit.append(action="pin", actor=actor, after=after)
    try:
        Pins(store).pin(record)
    except BaseException as error:
        audit.conclude(intended, "failed", reason=str(error))
        raise
    audit.conclude(intended, "done", reason=actor.reason)
    return record


def unpin_checkpoint(
    store: CheckpointStore, checkpoint_id: CheckpointId, name: str, actor: Actor, now_ms: int
) -> StoredPin:
    """Let retention treat a checkpoint like others again; returns the pin that is gone.

    Raises:
        ConfigurationError: the checkpoint has no pin of that name.
        StorageUnavailable: the store did not answer; call again.
    """
    pins = Pins(store)
    before: JsonObject = {"checkpoint_id": checkpoint_id, "name": name}
    pin = pins.find(checkpoint_id, name)
    AuditLog(store.objects, store.paths, lambda: now_ms).append(
        action="unpin",
        actor=actor,
        before=before if pin is None else pin.model_dump(mode="json"),
    )
    pins.unpin(checkpoint_id, name)
    return StoredPin(checkpoint_id, name, pin)
