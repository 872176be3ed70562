"""Manifests and tables for tests: small, whole, and changed by keyword."""

from typing import Any

import pyarrow as pa

from laminar_core.protocol.edges import PartitioningKind
from laminar_core.protocol.types import CheckpointKind
from laminar_core.records.channel_entries import (
    AlignmentEntry,
    ChannelEntry,
    EdgeEntry,
    EdgeRef,
    InflightEntry,
)
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.record import FileRef
from laminar_core.records.segment import SegmentRef

DESCRIPTIONS = {
    "window": {"kind": "tumbling", "size_us": 300_000_000, "key": ["merchant"]},
    "sink": {"kind": "parquet", "columns": ["merchant", "count"]},
}
DIGEST = "0123456789abcdef" * 4


def rows(*values: int) -> pa.Table:
    """Shape (len(values), key | value)."""
    return pa.table({"key": [f"k{value}" for value in values], "value": list(values)})


def file_ref(path: str = "checkpoints/0000000007/operators/window/state_0.arrow") -> SegmentRef:
    return SegmentRef(path=path, size_bytes=1234, sha256=DIGEST, row_count=10)


def subtask(
    operator_id: str, index: int, state: SegmentRef | None = None, **changes: Any
) -> SubtaskEntry:
    fields: dict[str, Any] = {
        "operator_id": operator_id,
        "subtask_index": index,
        "segments": (state,) if state else (),
        "written_bytes": state.size_bytes if state else 0,
        "sync_ms": 0.5,
        "async_ms": 12.25,
    }
    return SubtaskEntry(**fields | changes)


def manifest(**changes: Any) -> CheckpointManifest:
    """A whole one of two operators with two subtasks, as ``changes`` say."""
    fields: dict[str, Any] = {
        "job": "payments",
        "generation": 2,
        "checkpoint_id": 7,
        "parent_checkpoint_id": 6,
        "kind": CheckpointKind.PERIODIC,
        "mode": "aligned",
        "triggered_at_ms": 1_700_000_000_000,
        "completed_at_ms": 1_700_000_000_040,
        "duration_ms": 40.5,
        "max_parallelism": 128,
        "parallelism": {"window": 2, "sink": 2},
        "fingerprint": {op: fingerprint_of(text) for op, text in DESCRIPTIONS.items()},
        "operators_description": DESCRIPTIONS,
        "code_version": "0.1.0",
        "subtasks": (
            subtask("window", 0, file_ref(), properties={"next_timer_us": 5, "late": None}),
            subtask("window", 1),
            subtask("sink", 0, committables=({"files": ["part-0.parquet"], "rows": 3},)),
            subtask("sink", 1),
        ),
        "alignment": (alignment(),),
    }
    return CheckpointManifest(**fields | changes)


def alignment(**changes: Any) -> AlignmentEntry:
    fields: dict[str, Any] = {
        "vertex_id": "keyed",
        "subtask_index": 0,
        "mode": "aligned",
        "start_delay_ms": 1.5,
        "alignment_ms": 3.25,
        "watermark_us": 1_000_000,
        "channels": (
            ChannelEntry(input_id=0, watermark_us=1_000_000, idle=False),
            ChannelEntry(input_id=1, watermark_us=None, idle=True),
        ),
    }
    return AlignmentEntry(**fields | changes)


def edge(**changes: Any) -> EdgeRef:
    fields: dict[str, Any] = {"upstream": "source", "downstream": "keyed", "input_index": 0}
    return EdgeRef(**fields | changes)


def edge_entry(**changes: Any) -> EdgeEntry:
    fields: dict[str, Any] = {**dict(edge()), "partitioning": PartitioningKind.KEYED}
    return EdgeEntry(**fields | changes)


def inflight(**changes: Any) -> InflightEntry:
    fields: dict[str, Any] = {
        "operator_id": "window",
        "direction": "input",
        "subtask_index": 0,
        "input_id": 1,
        "edge": edge(),
        "sender": 1,
        "receiver": 0,
        "path": "checkpoints/0000000007/operators/window/0/inflight_1.buf",
        "offset": 0,
        "event_count": 3,
        "row_count": 200,
        "size_bytes": 99,
        "sha256": DIGEST,
    }
    return InflightEntry(**fields | changes)


def files_of(*entries: InflightEntry) -> tuple[FileRef, ...]:
    """The files that end with these parts; one with a single part is that part."""
    ends: dict[str, int] = {}
    for entry in entries:
        ends[entry.path] = max(entry.end, ends.get(entry.path, 0))
    digests = {entry.path: entry.sha256 for entry in entries}
    return tuple(FileRef(path=p, size_bytes=end, sha256=digests[p]) for p, end in ends.items())


def unaligned(mode: str = "unaligned", **changes: Any) -> CheckpointManifest:
    """A whole one with what barriers overtook on one channel: some at either end of it."""
    overtaken = inflight(
        operator_id="window",
        direction="output",
        subtask_index=1,
        input_id=0,
        path="checkpoints/0000000007/operators/window/1/outflight_0.buf",
    )
    fields: dict[str, Any] = {
        "mode": mode,
        "is_unaligned": True,
        "alignment": (alignment(mode=mode), alignment(subtask_index=1, finished=True)),
        "inflight_data": (inflight(), overtaken),
    }
    fields |= changes
    return manifest(**{"inflight_files": files_of(*fields["inflight_data"])} | fields)


def folded() -> CheckpointManifest:
    """Return a manifest of ranges with gaps, of idle channels, and of columns with several parts.

    Of three senders the first is ahead at the second receiver and has not been heard of at the
    fourth, and the last one is idle at all but the first.
    """
    path = "checkpoints/0000000007/operators/inflight_"
    size_bytes = iter(range(10, 90, 10))
    times_us = {0: (5, 9, 5, None), 1: (7, 7, 7, 7), 2: (3, 3, 3, 3)}
    alignments = tuple(
        alignment(
            subtask_index=receiver,
            mode="unaligned",
            channels=tuple(
                ChannelEntry(input_id=n, watermark_us=t[receiver], idle=n == 2 and receiver > 0)
                for n, t in times_us.items()
                if (n, receiver) != (1, 2)
            ),
        )
        for receiver in range(4)
    )
    received = [
        inflight(
            path=f"{path}{receiver}.buf",
            subtask_index=receiver,
            receiver=receiver,
            sender=sender,
            input_id=2 + sender,
            offset=100 * sender,
            size_bytes=next(size_bytes),
            row_count=sender,
        )
        for receiver in (0, 1)
        for sender in (0, 1, 3)
    ]
    sent = inflight(
        path=f"{path}1.buf",
        direction="output",
        subtask_index=1,
        sender=1,
        receiver=1,
        input_id=7,
        offset=400,
    )
    entries = (*received[:5], sent, received[5])
    return unaligned(alignment=alignments, inflight_data=entries)
