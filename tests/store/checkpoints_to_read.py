"""A job with everything that can be read: state in segments, positions, rows in flight, records."""

from pathlib import Path

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.manifest import HistoryRecord, Outcome
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.stores import JOB, capture, claim, trigger, with_inflight
from tests.store.window_states import write_windows

ROWS = {(f"m{number}", start): (number, number * 10) for number in range(6) for start in (0, 10)}
AT_MS = 1_700_000_000_000


def write_job(root: Path) -> CheckpointStore:
    """Checkpoints 1 and 2 (two segments), 4, 5 (with rows in flight); 3 failed; two acts."""
    store = CheckpointStore(LocalObjectStore(root), JOB)
    claim(store)
    write_windows(store, 1, [ROWS], watermark_s=3, next_row=4)
    write_windows(store, 2, [ROWS, {("m1", 0): (1, 1)}], watermark_s=5, next_row=9)
    write_windows(store, 4, [ROWS], watermark_s=5, next_row=9)
    captured = (capture(store, 5, subtask_index=0), capture(store, 5, subtask_index=1))
    entries = tuple(entry.model_copy(update={"operator_id": "totals"}) for entry in captured)
    manifest = with_inflight(store.manifests.read(CheckpointId(4)), *entries)
    assert store.attempts.record_trigger(trigger(5, manifest.generation))
    store.manifests.publish(
        manifest.model_copy(update={"checkpoint_id": 5, "parent_checkpoint_id": 4})
    )
    outcomes: dict[int, Outcome] = {1: "completed", 3: "expired"}
    for number, outcome in outcomes.items():
        store.attempts.record_outcome(
            HistoryRecord(
                checkpoint_id=number,
                generation=1,
                kind=trigger(number, 1).kind,
                outcome=outcome,
                reason="",
                triggered_at_ms=AT_MS,
                ended_at_ms=AT_MS + 1000,
                duration_ms=1000,
            )
        )
    log = AuditLog(store.objects, store.paths, lambda: AT_MS)
    log.append(action="claim", actor=Actor("ann", reason="x"), after={"generation": 1})
    log.append(action="restore", actor=Actor("bob", reason="y", run_id="run-7"))
    return store
