"""Verdicts as Dagster shows them: the result of a check, or an event of the observer."""

from collections.abc import Sequence

import dagster as dg

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.names import StreamCheck, check_key
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, chain_lengths
from laminar_core.sensors.judgements import (
    Verdict,
    judge_alignment,
    judge_chain_length,
    judge_inflight_share,
)
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.store.checkpoint_store import CheckpointStore

ALIGNMENT_CHECK: StreamCheck = "alignment_p99"
INFLIGHT_CHECK: StreamCheck = "inflight_share"
CHAIN_CHECK: StreamCheck = "chain_length"
FILES_CHECK: StreamCheck = "files_present"
"""Evaluated by the observer with these, and within a minute when its verdict changes."""
OBSERVED_CHECKS = (ALIGNMENT_CHECK, INFLIGHT_CHECK, CHAIN_CHECK)
"""Evaluated by the observer, for the newest checkpoint of each minute."""

_ATTEMPTS_PER_CHECKPOINT = 3


def check_result(verdict: Verdict, **facts: float | str) -> dg.AssetCheckResult:
    """Return the result of a running check; ``facts`` are further metadata."""
    return dg.AssetCheckResult(
        passed=verdict.passed,
        severity=_severity(verdict),
        description=verdict.description,
        metadata={**verdict.figures, **facts},
    )


def evaluation(
    stream: str, check: StreamCheck, verdict: Verdict, **facts: float | str
) -> dg.AssetCheckEvaluation:
    """Return the evaluation as an event, for code outside the check."""
    key = check_key(stream, check)
    return dg.AssetCheckEvaluation(
        key.asset_key,
        key.name,
        passed=verdict.passed,
        severity=_severity(verdict),
        description=verdict.description,
        metadata={**verdict.figures, **facts},
    )


def judge_checkpoint(
    store: CheckpointStore, stored: StoredCheckpoint, policy: AlertPolicy
) -> dict[StreamCheck, Verdict]:
    """Return the verdicts on one checkpoint and its predecessors, by check.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    manifest = stored.manifest
    aligned = [*alignment_before(store, stored, policy.alignment_window - 1), _alignment_ms(stored)]
    return {
        ALIGNMENT_CHECK: judge_alignment(aligned, policy),
        INFLIGHT_CHECK: judge_inflight_share(manifest.inflight_bytes, manifest.size_bytes, policy),
        CHAIN_CHECK: judge_chain_length(chain_lengths(manifest), policy),
    }


def judged(
    store: CheckpointStore, stored: StoredCheckpoint, policy: AlertPolicy
) -> Sequence[dg.AssetCheckEvaluation]:
    """Return the verdicts on a checkpoint as events.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    checkpoint_id = stored.manifest.checkpoint_id
    return [
        evaluation(store.job, name, verdict, checkpoint_id=checkpoint_id)
        for name, verdict in judge_checkpoint(store, stored, policy).items()
    ]


def says_the_same(instance: dg.DagsterInstance, told: dg.AssetCheckEvaluation) -> bool:
    """Return whether the check's last evaluation equals this one.

    A check that never ran has passed.
    """
    key = told.asset_check_key
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    last = None if found is None else found.evaluation
    if last is None:
        return told.passed
    before, now = ((each.passed, each.severity, each.description) for each in (last, told))
    return before == now


def is_judged(instance: dg.DagsterInstance, stream: str, checkpoint_id: int) -> bool:
    """Return whether the last of the observed checks was already evaluated for this checkpoint."""
    key = check_key(stream, OBSERVED_CHECKS[-1])
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    if found is None or found.evaluation is None:
        return False
    shown = found.evaluation.metadata.get("checkpoint_id")
    return shown is not None and shown.value == checkpoint_id


def alignment_before(store: CheckpointStore, stored: StoredCheckpoint, count: int) -> list[float]:
    """Return alignment times of up to ``count`` earlier checkpoints, oldest first.

    They belong to the same generation, and come from the history, which is smaller than manifests
    and outlives their deletion.
    """
    newest = stored.manifest.checkpoint_id
    found: list[float] = []
    for checkpoint_id in range(newest - 1, newest - 1 - _ATTEMPTS_PER_CHECKPOINT * count, -1):
        if checkpoint_id < 1 or len(found) == count:
            break
        try:
            record = store.attempts.read_outcome(CheckpointId(checkpoint_id))
        except CorruptCheckpointError:
            continue
        if record is None or record.outcome != "completed":
            continue
        if record.generation < stored.manifest.generation:
            break
        if record.alignment_ms_max is not None:
            found.append(float(record.alignment_ms_max))
    return found[::-1]


def _alignment_ms(stored: StoredCheckpoint) -> float:
    return max((float(a.alignment_ms) for a in stored.manifest.alignment), default=0.0)


def _severity(verdict: Verdict) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if verdict.is_severe else dg.AssetCheckSeverity.WARN
