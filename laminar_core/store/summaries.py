"""One line per checkpoint for display: its outcome and its problems."""

from dataclasses import dataclass
from typing import Literal

from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation, ResolvedMode
from laminar_core.records.checkpoint_index import KnownCheckpoint
from laminar_core.records.manifest import CheckpointManifest, HistoryRecord, Outcome, TriggerRecord


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """The facts about one checkpoint that need no reading of its files; None where unknown.

    ``pending``: triggered, and nothing more is recorded. ``orphan``: completed, but off the
    timeline, so it is never restored. ``withdrawn``: an orphan whose output was committed; the
    generation that went back behind it took that back. ``deleted``: by retention, or just being
    deleted.
    ``problem``: an object that cannot be read. ``damaged``: the running job found that files of it
    are lost.
    """

    checkpoint_id: CheckpointId
    outcome: Outcome | Literal["pending"]
    reason: str = ""
    generation: Generation | None = None
    kind: CheckpointKind | None = None
    mode: ResolvedMode | None = None
    triggered_at_ms: int | None = None
    duration_ms: float | None = None
    size_bytes: int | None = None
    written_bytes: int | None = None
    inflight_bytes: int | None = None
    committed: bool = False
    orphan: bool = False
    deleted: bool = False
    problem: str | None = None
    withdrawn: bool = False
    damaged: bool = False


Known = CheckpointManifest | KnownCheckpoint | HistoryRecord | TriggerRecord
"""The records that a summary can be made from; the first that exists is used, in this order."""


def summarise(
    checkpoint_id: CheckpointId, known: Known | None, *, committed: bool, problem: str | None = None
) -> CheckpointSummary:
    """Summarise a checkpoint by the most informative record that exists."""
    match known:
        case None:
            return CheckpointSummary(checkpoint_id, "pending", committed=committed, problem=problem)
        case TriggerRecord():
            return CheckpointSummary(
                checkpoint_id,
                "pending",
                generation=Generation(known.generation),
                kind=known.kind,
                triggered_at_ms=known.triggered_at_ms,
                committed=committed,
                problem=problem,
            )
        case CheckpointManifest() | KnownCheckpoint() | HistoryRecord():
            return CheckpointSummary(
                checkpoint_id,
                known.outcome if isinstance(known, HistoryRecord) else "completed",
                reason=known.reason if isinstance(known, HistoryRecord) else "",
                generation=Generation(known.generation),
                kind=known.kind,
                mode=known.mode,
                triggered_at_ms=known.triggered_at_ms,
                duration_ms=known.duration_ms,
                size_bytes=known.size_bytes,
                written_bytes=known.written_bytes,
                inflight_bytes=known.inflight_bytes,
                committed=committed,
                problem=problem,
            )
