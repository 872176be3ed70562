"""Pins and holds: checkpoints that retention must not delete. A hold is a pin that expires.

``Pins`` reads and writes them. ``pin_checkpoint`` and ``unpin_checkpoint`` do so on behalf of an
actor, with a record in the audit log.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.limits import TIME_MS_MAX
from laminar_core.records.paths import padded
from laminar_core.records.pin import Pin
from laminar_core.records.record import JsonObject
from laminar_core.records.retention import PinRecord
from laminar_core.records.retention_paths import RetentionPaths, check_pin_name
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import create_or_confirm
from laminar_core.store.retention_log import RetentionLog


@dataclass(frozen=True, slots=True)
class StoredPin:
    """One pin.

    If it is unreadable, ``record`` is None and ``problem`` has the reason; it still holds.
    """

    checkpoint_id: CheckpointId
    name: str
    record: PinRecord | None
    problem: str | None = None

    def as_fact(self) -> Pin:
        """Return the pin as a fact for retention."""
        if self.record is None:
            return Pin(self.name, "an unknown actor", f"its record cannot be read ({self.problem})")
        record = self.record
        return Pin(record.name, record.actor, record.reason, record.expires_at_ms)


class Pins:
    """Reads and writes the pins of one job."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._objects = store.objects
        self._paths = RetentionPaths(store.paths)
        self._log = RetentionLog(store.objects, store.paths)

    def pin(self, record: PinRecord) -> PinRecord:
        """Keep a checkpoint from now on; return the record that is stored.

        The same pin again changes nothing, and the same hold again begins anew. A hold that has
        expired, at the time of the new record, gives way to any pin of its name.

        Raises:
            ConfigurationError: it never completed, is being deleted, or has another pin of this
                name. Nothing is pinned then.
            StorageUnavailable: the store did not answer; call again.
        """
        checkpoint_id = record.checkpoint_id
        key = self._paths.pin(checkpoint_id, record.name)
        self._check_there(checkpoint_id)
        if not create_or_confirm(self._objects, key, record.to_bytes()):
            record = self._in_place_of(self._read(checkpoint_id, record.name).record, record)
            self._objects.put(key, record.to_bytes())
        # Retention that planned before it could see this pin gives way; see ``retention_log``.
        self._log.abandon_undecided(record.actor, f"checkpoint {checkpoint_id} is pinned")
        try:
            self._check_there(checkpoint_id)
        except ConfigurationError:
            self._objects.delete(key)
            raise
        return record

    def _in_place_of(self, there: PinRecord | None, new: PinRecord) -> PinRecord:
        """Return the record to store where another one is, which may be needed by somebody."""
        if there is not None and _repeatable(there) == _repeatable(new):
            return max(there, new, key=lambda record: record.expires_at_ms or 0)
        ends_ms = None if there is None else there.expires_at_ms
        if ends_ms is not None and ends_ms <= new.created_at_ms:
            return new
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"checkpoint {new.checkpoint_id} already has a pin named {new.name}: "
            "take another name, or unpin it first",
        )

    @contextmanager
    def held(
        self, checkpoint_id: CheckpointId, name: str, actor: Actor, now_ms: int, hold_ms: int
    ) -> Generator[None]:
        """Keep a checkpoint while it is read; who is killed meanwhile holds it for ``hold_ms``.

        Raises:
            As ``pin`` does, before anything is done inside.
        """
        record = PinRecord(
            checkpoint_id=checkpoint_id,
            name=name,
            actor=actor.name,
            reason=actor.reason,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + hold_ms,
        )
        try:
            self.pin(record)
        except KeyboardInterrupt:
            self.unpin(checkpoint_id, name)  # It may be there.
            raise
        try:
            yield
        finally:
            self.unpin(checkpoint_id, name)

    def find(self, checkpoint_id: CheckpointId, name: str) -> PinRecord | None:
        """Return the record of a pin; None if it cannot be read.

        Raises:
            ConfigurationError: there is no such pin.
        """
        if self._objects.size(self._paths.pin(checkpoint_id, name)) is None:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"checkpoint {checkpoint_id} has no pin named {name}: "
                "see `laminar checkpoints list`",
            )
        return self._read(checkpoint_id, name).record

    def unpin(self, checkpoint_id: CheckpointId, name: str) -> None:
        """Take a pin away; nothing happens if there is none."""
        self._objects.delete(self._paths.pin(checkpoint_id, name))

    def list(self) -> list[StoredPin]:
        """Return all pins and holds, including expired ones, by checkpoint and name."""
        names = self._objects.children(self._paths.pins)
        told = [pin for name in names if (pin := self._paths.pin_of(name)) is not None]
        return [self._read(checkpoint_id, name) for checkpoint_id, name in told]

    def by_checkpoint(self) -> dict[CheckpointId, tuple[Pin, ...]]:
        """Return all pins per checkpoint, as facts for retention."""
        found: dict[CheckpointId, tuple[Pin, ...]] = {}
        for pin in self.list():
            found[pin.checkpoint_id] = (*found.get(pin.checkpoint_id, ()), pin.as_fact())
        return found

    def _read(self, checkpoint_id: CheckpointId, name: str) -> StoredPin:
        key = self._paths.pin(checkpoint_id, name)
        try:
            record = self._log.read(PinRecord, key)
        except CorruptCheckpointError as error:
            return StoredPin(checkpoint_id, name, None, str(error))
        return StoredPin(checkpoint_id, name, record, None if record else "it was just removed")

    def _check_there(self, checkpoint_id: CheckpointId) -> None:
        manifests = self._store.manifests
        if checkpoint_id in self._log.being_deleted():
            raise manifests.being_deleted(checkpoint_id)
        manifests.require_kept(checkpoint_id)
        if not manifests.is_complete(checkpoint_id):
            raise ConfigurationError(
                ErrorCode.NO_SUCH_CHECKPOINT,
                f"job {self._store.job} has no completed checkpoint {checkpoint_id} to pin: "
                "see `laminar checkpoints list`",
            )


def _repeatable(record: PinRecord) -> tuple[str, str, int | None]:
    """Return what a pin has in common with the same one that was asked for at another time."""
    ends_ms = record.expires_at_ms
    hold_ms = None if ends_ms is None else ends_ms - record.created_at_ms
    return record.actor, record.reason, hold_ms


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
    padded(checkpoint_id)  # Before it is in a record: some numbers can be in none.
    ends_ms = None if hold_ms is None else min(now_ms + hold_ms, TIME_MS_MAX)
    record = PinRecord(
        checkpoint_id=checkpoint_id,
        name=check_pin_name(name),
        actor=actor.name,
        reason=actor.reason,
        created_at_ms=now_ms,
        expires_at_ms=ends_ms,
    )
    audit = AuditLog(store.objects, store.paths, lambda: now_ms)
    after = record.model_dump(mode="json")
    intended = audit.append(action="pin", actor=actor, after=after)
    try:
        record = Pins(store).pin(record)
    except BaseException as error:
        audit.conclude(intended, "failed", reason=str(error))
        raise
    audit.conclude(intended, "done", reason=actor.reason)
    return record


def unpin_checkpoint(
    store: CheckpointStore, checkpoint_id: CheckpointId, name: str, actor: Actor, now_ms: int
) -> StoredPin:
    """Remove a pin, so that retention may delete the checkpoint; return the removed pin.

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
