"""Describe a completed checkpoint to the listener of the job, from its manifest."""

from collections import Counter
from collections.abc import Iterable

from laminar_core.driver.events import ChannelWait, CheckpointCompleted, OperatorBytes
from laminar_core.driver.publication import longest_alignment_ms, longest_phase_ms
from laminar_core.protocol.coordinator_events import RecordOutcome
from laminar_core.records.bad_rows import bad_rows_of
from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry

CHANNELS_MAX = 32
"""Largest number of channels in the event of a checkpoint."""


def completed_event(
    effect: RecordOutcome, manifest: CheckpointManifest, time_ms: int
) -> CheckpointCompleted:
    """Return the event for a checkpoint that ended as ``effect`` says."""
    alignment = manifest.alignment
    return CheckpointCompleted(
        time_ms=time_ms,
        checkpoint_id=effect.checkpoint_id,
        generation=manifest.generation,
        kind=effect.kind,
        mode=manifest.mode,
        duration_ms=effect.ended_ms - effect.triggered_ms,
        start_delay_ms=max((entry.start_delay_ms for entry in alignment), default=0.0),
        alignment_ms=longest_alignment_ms(alignment),
        sync_ms=longest_phase_ms(manifest.subtasks, "sync_ms"),
        async_ms=longest_phase_ms(manifest.subtasks, "async_ms"),
        size_bytes=manifest.size_bytes,
        written_bytes=manifest.written_bytes,
        inflight_bytes=manifest.inflight_bytes,
        inflight_rows=manifest.inflight_rows,
        bad_rows=bad_rows_of(manifest),
        operators=bytes_by_operator(manifest.subtasks),
        channels=slowest_channels(alignment),
    )


def bytes_by_operator(subtasks: Iterable[SubtaskEntry]) -> dict[str, OperatorBytes]:
    """Return the part of each operator over all workers, without data in flight."""
    sizes: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for entry in subtasks:
        sizes[entry.operator_id] += entry.size_bytes
        written[entry.operator_id] += entry.written_bytes
    return {
        name: OperatorBytes(size_bytes=sizes[name], written_bytes=written[name]) for name in sizes
    }


def slowest_channels(alignment: Iterable[AlignmentEntry]) -> tuple[ChannelWait, ...]:
    """Return the longest waits for a barrier, by sender and receiving vertex, longest first."""
    longest_ms: dict[tuple[str, str, int], float] = {}
    for entry in alignment:
        for channel in entry.slowest_channels:
            if channel.barrier_ms is not None:
                key = (entry.vertex_id, channel.upstream, channel.sender)
                longest_ms[key] = max(longest_ms.get(key, 0.0), channel.barrier_ms)
    waits = [
        ChannelWait(vertex_id=vertex_id, upstream=upstream, sender=sender, barrier_ms=barrier_ms)
        for (vertex_id, upstream, sender), barrier_ms in sorted(longest_ms.items())
    ]
    return tuple(sorted(waits, key=lambda wait: -wait.barrier_ms)[:CHANNELS_MAX])
