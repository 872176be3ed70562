"""Build the manifest, history record and committables from acknowledgements."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from laminar_core._version import __version__
from laminar_core.driver.carrying import Carried
from laminar_core.link.messages import SnapshotAck
from laminar_core.operators.base import JsonObject
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_events import RecordOutcome
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.channel_entries import AlignmentEntry, InflightEntry
from laminar_core.records.manifest import (
    CheckpointManifest,
    HistoryRecord,
    SubtaskNumbers,
    TriggerRecord,
    fingerprint_of,
    resolved_mode,
)
from laminar_core.records.manifest_fields import DiscoveryEntry, SubtaskEntry
from laminar_core.records.paths import JobPaths
from laminar_core.worker.outputs import edge_entry


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """The fields that all manifests of a generation have in common."""

    job: str
    generation: Generation
    plan: Plan
    parallelism: int
    carried: Carried | None = None
    """None: no source was removed."""


class Completion(NamedTuple):
    """The time of completion. The wall clock may have stepped since the trigger."""

    at_ms: int
    duration_ms: int


def build_manifest(
    identity: JobIdentity,
    trigger: TriggerRecord,
    parent_id: CheckpointId | None,
    acks: Collection[SnapshotAck],
    completion: Completion,
    discovery: Mapping[str, DiscoveryEntry],
) -> CheckpointManifest:
    """Put the parts together; entries in the order of the plan, so equal cuts look equal."""
    carried = identity.carried
    entries = [entry for ack in acks for entry in ack.entries]
    alignment = [entry for ack in acks for entry in ack.alignment]
    descriptions = identity.plan.descriptions()
    parallelism = dict.fromkeys(descriptions, identity.parallelism)
    found = dict(discovery)
    if carried is not None:
        entries += carried.entries(JobPaths(identity.job), CheckpointId(trigger.checkpoint_id))
        parallelism |= {o: carried.manifest.parallelism[o] for o in carried.operators}
        described = carried.manifest.operators_description
        descriptions |= {o: described[o] for o in carried.operators}
        found |= carried.discovery()
    order = {operator_id: n for n, operator_id in enumerate(descriptions)}
    vertices = {v.vertex_id: n for n, v in enumerate(identity.plan.vertices)}
    inflight = [entry for ack in acks for entry in ack.inflight]
    mode = resolved_mode(alignment, inflight)
    return CheckpointManifest(
        job=identity.job,
        generation=identity.generation,
        checkpoint_id=trigger.checkpoint_id,
        parent_checkpoint_id=parent_id,
        kind=trigger.kind,
        mode=mode,
        is_unaligned=mode != "aligned",
        triggered_at_ms=trigger.triggered_at_ms,
        completed_at_ms=completion.at_ms,
        duration_ms=completion.duration_ms,
        max_parallelism=identity.plan.max_parallelism,
        parallelism=parallelism,
        fingerprint={o: fingerprint_of(d) for o, d in descriptions.items()},
        operators_description=dict(descriptions),
        edges=tuple(edge_entry(identity.plan, edge) for edge in identity.plan.edges),
        code_version=f"laminar {__version__}",
        subtasks=tuple(sorted(entries, key=lambda e: (order[e.operator_id], e.subtask_index))),
        alignment=tuple(sorted(alignment, key=lambda e: (vertices[e.vertex_id], e.subtask_index))),
        inflight_files=tuple(
            sorted((file for ack in acks for file in ack.inflight_files), key=lambda f: f.path)
        ),
        inflight_data=tuple(sorted(inflight, key=lambda e: _place(e, vertices))),
        discovery=found,
        carried={} if carried is None else dict(carried.operators),
    )


def _place(entry: InflightEntry, vertices: Mapping[str, int]) -> tuple[int | str, ...]:
    """Channels in the order of the plan; of each, the receiver's queue before the sender's."""
    downstream, *rest = entry.queue
    return vertices[downstream], *rest


def committables_of(manifest: CheckpointManifest, operator_id: str) -> list[JsonObject]:
    """Return the sink's committables, over all its subtasks."""
    return [
        dict(committable)
        for entry in manifest.subtasks
        if entry.operator_id == operator_id
        for committable in entry.committables
    ]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Per sink, committables that a person decided not to commit."""

    by_sink: Mapping[str, Sequence[JsonObject]] = field(
        default_factory=dict[str, Sequence[JsonObject]]
    )

    def rest(self, operator_id: str, committables: Iterable[JsonObject]) -> list[JsonObject]:
        """Return the committables without those that are left out."""
        gone = self.by_sink.get(operator_id, ())
        return [committable for committable in committables if committable not in gone]


def longest_alignment_ms(alignment: Iterable[AlignmentEntry]) -> float:
    """Return the alignment time of the slowest subtask, which determines the cut's."""
    return max((entry.alignment_ms for entry in alignment), default=0.0)


def longest_phase_ms(subtasks: Iterable[SubtaskEntry], phase: str) -> float:
    """Return the slowest operator subtask's time in a phase, ``sync_ms`` or ``async_ms``."""
    return max((getattr(entry, phase) for entry in subtasks), default=0.0)


def history_record(
    effect: RecordOutcome,
    generation: Generation,
    manifest: CheckpointManifest | None,
    wall_ms: Callable[[int], int],
) -> HistoryRecord:
    """Return the history record of an attempt; with numbers if it completed.

    ``wall_ms`` translates the protocol's time into wall-clock time.
    """
    subtasks = () if manifest is None else manifest.subtasks
    return HistoryRecord(
        checkpoint_id=effect.checkpoint_id,
        generation=generation,
        kind=effect.kind,
        outcome=effect.outcome.value,
        reason=effect.reason,
        triggered_at_ms=wall_ms(effect.triggered_ms),
        ended_at_ms=wall_ms(effect.ended_ms),
        duration_ms=effect.ended_ms - effect.triggered_ms,
        size_bytes=0 if manifest is None else manifest.size_bytes,
        written_bytes=0 if manifest is None else manifest.written_bytes,
        inflight_bytes=0 if manifest is None else manifest.inflight_bytes,
        mode="aligned" if manifest is None else manifest.mode,
        alignment_ms_max=None if manifest is None else longest_alignment_ms(manifest.alignment),
        subtasks=tuple(
            SubtaskNumbers(
                operator_id=entry.operator_id,
                subtask_index=entry.subtask_index,
                size_bytes=entry.size_bytes,
                row_count=entry.row_count,
                sync_ms=entry.sync_ms,
                async_ms=entry.async_ms,
            )
            for entry in subtasks
        ),
    )
