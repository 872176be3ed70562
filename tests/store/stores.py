"""Jobs in a store for tests: claimants, checkpoints written step by step, stored damage."""

from collections.abc import Sequence

import pyarrow as pa

from laminar_core.codec.inflight import InflightElement, InflightEncoder
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import Actor
from laminar_core.records.channel_entries import InflightEntry
from laminar_core.records.manifest import (
    CheckpointManifest,
    CommitRecord,
    HistoryRecord,
    Owner,
    TriggerRecord,
)
from laminar_core.records.paths import Direction
from laminar_core.store import owner as owners
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.claims import Claimant, WaitMs
from laminar_core.store.owner import this_process
from tests.codec.inflight_files import ELEMENTS, SCHEMA
from tests.records.manifests import files_of, inflight, manifest, rows, subtask

JOB = "payments"
DAMAGE = ["missing", "torn", "longer", "rotten"]
"""The effect of ``damage`` on an object."""


def open_job(objects: ObjectStore | None = None) -> CheckpointStore:
    return CheckpointStore(objects or MemoryObjectStore(), JOB)


def claimant(owner: Owner | None = None, actor: str = "test") -> Claimant:
    return Claimant(
        owner or this_process(), Actor(actor, reason="to test"), "0.1.0", 1_700_000_000_000
    )


def owner_of(pid: int) -> Owner:
    """A process of this machine."""
    return replace_owner(this_process(), pid=pid, pid_start_time=owners._start_time(pid) or 0)


def elsewhere(claim_number: int = 1) -> Owner:
    """A process on another machine."""
    return Owner(
        host_id="far/1",
        boot_id="other",
        pid=7,
        pid_start_time=9,
        claim_number=claim_number,
        user="u",
    )


def never(_duration_ms: float) -> None:
    raise AssertionError("nothing to wait for")


def claim(store: CheckpointStore, base: int | None = None) -> Generation:
    """Claim by force, and start from ``base``; a job's first act, so it may begin the store."""
    store.objects.create()
    generation = store.claims.claim(claimant(), wait_ms=never, take_over=True)
    store.generations.record_base(generation, None if base is None else CheckpointId(base))
    return generation


def trigger(checkpoint_id: int, generation: int) -> TriggerRecord:
    return TriggerRecord(
        checkpoint_id=checkpoint_id,
        generation=generation,
        kind=CheckpointKind.PERIODIC,
        triggered_at_ms=1,
    )


def write(
    store: CheckpointStore, checkpoint_id: int, generation: int, table: pa.Table | None = None
) -> CheckpointManifest:
    """Reserve the id and write its parts; returns what is to be published."""
    assert store.attempts.record_trigger(trigger(checkpoint_id, generation))
    states = [
        store.parts.write_state(
            CheckpointId(checkpoint_id), "window", index, table or rows(index, 2)
        )
        for index in (0, 1)
    ]
    return manifest(
        generation=generation,
        checkpoint_id=checkpoint_id,
        parent_checkpoint_id=checkpoint_id - 1 or None,
        subtasks=(
            subtask("window", 0, states[0]),
            subtask("window", 1, states[1]),
            subtask("sink", 0),
            subtask("sink", 1),
        ),
    )


def capture(
    store: CheckpointStore,
    checkpoint_id: int = 2,
    elements: Sequence[InflightElement] = ELEMENTS,
    direction: Direction = "input",
    subtask_index: int = 0,
    **changes: object,
) -> InflightEntry:
    """Write what was captured on channel 3 of an operator; returns what a manifest says of it.

    It has a file of its own: part 1 of its worker for an output.
    """
    encoder = InflightEncoder(SCHEMA, 3)
    for element in elements:
        encoder.add(element)
    ref = store.parts.write_inflight(
        CheckpointId(checkpoint_id), subtask_index, encoder.finish(), int(direction == "output")
    )
    fields = {
        "direction": direction,
        "subtask_index": subtask_index,
        "input_id": 3,
        "sender": subtask_index,
        "receiver": subtask_index,
        "event_count": encoder.event_count,
        "row_count": encoder.row_count,
    }
    return inflight(**dict(ref) | fields | changes)


def read_back(
    store: CheckpointStore, entry: InflightEntry, schema: pa.Schema | None = None
) -> list[InflightElement]:
    """Read one part of a file that ends with it."""
    return store.parts.inflight(files_of(entry)).read(entry, schema)


def with_inflight(written: CheckpointManifest, *entries: InflightEntry) -> CheckpointManifest:
    """Return the checkpoint with barriers that overtook the rows in these files."""
    changes = {
        "mode": "switched",
        "is_unaligned": True,
        "inflight_data": entries,
        "inflight_files": files_of(*entries),
    }
    return CheckpointManifest(**dict(written) | changes)


def complete(store: CheckpointStore, checkpoint_id: int, generation: int) -> CheckpointManifest:
    written = write(store, checkpoint_id, generation)
    store.manifests.publish(written)
    return written


def commit(store: CheckpointStore, checkpoint_id: int, generation: int) -> None:
    store.attempts.record_commit(
        CommitRecord(checkpoint_id=checkpoint_id, generation=generation, committed_at_ms=1)
    )


def damage(store: CheckpointStore, key: str, how: str) -> None:
    """Harm a stored object: ``missing``, ``torn``, ``rotten`` (one bit), ``longer``.

    The bit is one that makes of any JSON what is none: a manifest has no digest of itself.
    """
    data = store.objects.get(key)
    assert data is not None
    store.objects.delete(key)
    if how == "torn":
        store.objects.put(key, data[: len(data) // 2])
    elif how == "rotten":
        middle = len(data) // 2
        store.objects.put(key, data[:middle] + bytes([data[middle] ^ 0x80]) + data[middle + 1 :])
    elif how == "longer":
        store.objects.put(key, data + b"\0")


def gone(owner: Owner) -> Owner:
    """Return the owner as a process that has ended: its pid was reused."""
    return replace_owner(owner, pid_start_time=owner.pid_start_time + 1)


def replace_owner(owner: Owner, **changes: object) -> Owner:
    return owner.model_copy(update=changes)


def ids(*numbers: int) -> list[CheckpointId]:
    return [CheckpointId(number) for number in numbers]


def outcome(checkpoint_id: int, what: str = "declined") -> HistoryRecord:
    return HistoryRecord(
        checkpoint_id=checkpoint_id,
        generation=1,
        kind=CheckpointKind.PERIODIC,
        outcome=what,
        reason="because",
        triggered_at_ms=1,
        ended_at_ms=2,
        duration_ms=1,
    )


def claim_as(store: CheckpointStore, owner: Owner, wait_ms: WaitMs = never) -> Generation:
    """Claim the next generation, and start nothing."""
    return store.claims.claim(claimant(owner), wait_ms=wait_ms)
