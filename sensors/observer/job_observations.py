"""Events of a job, whatever their origin, as events of its assets.

Every act is in the audit log of the job: starts, ends, commands, pins, savepoints, retention. A run
of this Dagster reports its own acts; the others are reported here. Starts and ends are always
reported here, because a driver restarts on its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import dagster as dg

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.audit import AuditRecord
from laminar_core.records.drill import DrillRecord
from laminar_core.resources.names import (
    DRILL_TAG,
    RETENTION_PLAN_TAG,
    StreamAsset,
    asset_key,
    partition_of,
)
from laminar_core.sensors.background import BackgroundReads, StillReadingError
from laminar_core.sensors.facts.audit_follower import Audited
from laminar_core.sensors.judgements import ended_on_purpose
from laminar_core.sensors.observer.checkpoint_metadata import DATA_VERSION_TAG
from laminar_core.sensors.observer.savepoint_reports import savepoint_materialization
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.generation_summary import GenerationSummary, read_generation

Event = dg.AssetMaterialization | dg.AssetObservation

_COMMANDS = {"checkpoint", "savepoint", "stop", "cancel", "mode"}
_ABOUT: Mapping[str, StreamAsset] = {
    "restore": "deployment",
    "start-fresh": "deployment",
    "end": "deployment",
    **dict.fromkeys(_COMMANDS, "deployment"),
    "retention-apply": "retention",
    "pin": "checkpoint",
    "unpin": "checkpoint",
    "export": "savepoint",
}
_STARTS_AND_ENDS = {"restore", "start-fresh", "end"}
_CONCLUDED = {*_COMMANDS, "retention-apply", "pin", "export"}
"""Acts with a second record for their outcome."""

_SAVEPOINTS = BackgroundReads(wait_ms=5_000)
"""Savepoints may be in another store, which must not hold this one up."""

_IDS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Happening:
    """An event to be reported, unless ``reported_by`` is a run of this Dagster that reported it.

    ``at_ms``: when it happened, by the writer's clock.
    """

    asset: StreamAsset
    event: Event
    at_ms: int
    reported_by: str | None = None


def happenings(store: CheckpointStore, audited: Audited) -> list[Happening]:
    """Return the events for an audit record; none before the act has ended.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    record = audited.record
    asset = _ABOUT.get(record.action)
    if asset is None or (record.action in _CONCLUDED and record.outcome == "intended"):
        return []
    reported_by = None if record.action in _STARTS_AND_ENDS else record.run_id
    found = [Happening(asset, _event(store, asset, audited), record.at_ms, reported_by)]
    if (uri := savepoint_of(audited)) is not None:
        event = _savepoint(store.job, uri, audited)
        made = Happening("savepoint", event, record.at_ms, reported_by)
        found = [made] if asset == "savepoint" else [*found, made]
    return found


def savepoint_of(audited: Audited) -> str | None:
    """Return the URI of the savepoint that was made; None if there is none."""
    if audited.record.outcome != "done":
        return None
    place = audited.said.get("savepoint" if audited.record.action == "export" else "target")
    return place if isinstance(place, str) else None


def _savepoint(stream: str, uri: str, audited: Audited) -> dg.AssetMaterialization:
    try:
        made = _SAVEPOINTS.read(uri, lambda: savepoint_materialization(stream, uri))
    except StillReadingError:
        metadata = {"savepoint": dg.PathMetadataValue(uri), "not_readable_from_here": "too slow"}
        made = dg.AssetMaterialization(asset_key(stream, "savepoint"), metadata=metadata)
    if made.tags and DATA_VERSION_TAG in made.tags:
        return made
    version = sha256_hex(f"savepoint {audited.sha256}".encode())
    return dg.AssetMaterialization(
        made.asset_key, metadata=made.metadata, tags={DATA_VERSION_TAG: version}
    )


def deleted_checkpoints(audited: Audited) -> tuple[CheckpointId, ...]:
    """Return the checkpoints in a retention's plan; after a failure some may still exist."""
    ids = audited.said.get("checkpoints")
    if audited.record.action != "retention-apply" or not isinstance(ids, list):
        return ()
    return tuple(CheckpointId(each) for each in cast("list[object]", ids) if isinstance(each, int))


def drill_event(stream: str, record: DrillRecord, sha256: str) -> dg.AssetObservation:
    """Return the result of a restore drill that was run elsewhere as an event."""
    return dg.AssetObservation(
        asset_key(stream, "drill"),
        description=f"drill of checkpoint {record.checkpoint_id} {record.outcome}",
        metadata={
            "outcome": record.outcome,
            "checkpoint_id": record.checkpoint_id or 0,
            "problems": "; ".join(record.problems) or "none",
            "drill_ms": float(record.duration_ms),
            "size_bytes": record.size_bytes,
            "rows_read": record.rows_read,
            "workers": record.workers,
            "started_at": dg.MetadataValue.timestamp(record.started_at_ms / 1000),
            "actor": record.actor,
            "why": record.reason,
        },
        tags={DATA_VERSION_TAG: sha256, DRILL_TAG: str(record.number)},
    )


def _event(store: CheckpointStore, asset: StreamAsset, audited: Audited) -> dg.AssetObservation:
    record = audited.record
    intent = audited.intent or record
    tags = {DATA_VERSION_TAG: audited.sha256}
    metadata: dict[str, Any] = {
        "what": record.action,
        "outcome": record.outcome,
        "actor": intent.actor,
        "actor_kind": intent.actor_kind.value,
        "why": intent.reason,
        "audit_record": str(record.number),
        "at": dg.MetadataValue.timestamp(record.at_ms / 1000),
    }
    if record.run_id:
        metadata["run"] = dg.MetadataValue.dagster_run(record.run_id)
    if record.reason != intent.reason and record.reason:
        metadata["result"] = record.reason
    match record.action:
        case "restore" | "start-fresh":
            metadata |= _start(store, record)
        case "retention-apply":
            metadata |= _retention(audited)
            if isinstance(number := (intent.before or {}).get("plan"), int):
                tags[RETENTION_PLAN_TAG] = str(number)
        case _:
            metadata |= _plain(audited.said or record.before or {})
    partition = None
    if asset == "checkpoint" and isinstance(pinned := metadata.get("checkpoint_id"), int):
        partition = partition_of(pinned)
    return dg.AssetObservation(
        asset_key(store.job, asset),
        partition=partition,
        description=_sentence(record, metadata),
        metadata=metadata,
        tags=tags,
    )


def _sentence(record: AuditRecord, metadata: Mapping[str, Any]) -> str:
    facts = record.after or {}
    generation, why = facts.get("generation"), record.reason
    match record.action:
        case "restore":
            said = f"generation {generation} starts from checkpoint {facts.get('checkpoint_id')}"
        case "start-fresh":
            said = f"generation {generation} starts from nothing"
        case "end":
            said = f"generation {generation} {facts.get('outcome')}"
        case _:
            said, why = f"{record.action} {record.outcome}", metadata["why"]
    return f"{said}: {why}" if why else said


def _plain(said: Mapping[str, object]) -> dict[str, Any]:
    """Return the values that can be shown directly, without those shown elsewhere."""
    left_out = {"kind", "command", "format_version", "actor", "actor_kind", "reason"}
    return {
        name: value
        for name, value in said.items()
        if name not in left_out and isinstance(value, str | int | float)
    }


# --- starts ---------------------------------------------------------------------------------------


def _start(store: CheckpointStore, record: AuditRecord) -> dict[str, Any]:
    facts = record.after or {}
    found = _plain(facts)
    rejected = (record.before or {}).get("rejected")
    if isinstance(rejected, list) and rejected:
        found["rejected"] = dg.MetadataValue.json(rejected)
    generation, base_id = facts.get("generation"), facts.get("checkpoint_id")
    if isinstance(generation, int):
        base = base_id if isinstance(base_id, int) else None
        found |= _lost_time(store, Generation(generation), base)
    return found


def _lost_time(
    store: CheckpointStore, generation: Generation, base_id: int | None
) -> dict[str, float | str]:
    """``down_s``: how long nothing ran. ``redone_s``: of the stream before that, what is repeated.

    Only where the generation before died: a job that was stopped has lost nothing.
    """
    if generation <= 1:
        return {}
    now = read_generation(store.objects, store.paths, generation)
    before = read_generation(store.objects, store.paths, Generation(generation - 1))
    if now.claim is None or ended_on_purpose(before.end):
        return {}
    last_ms = _last_sign_ms(before)
    if last_ms is None:
        return {}
    found: dict[str, float | str] = {
        "before_it": "failed" if before.end is not None else "killed, or cut off",
        "down_s": round(max(now.claim.claimed_at_ms - last_ms, 0) / 1000, 3),
    }
    completed_ms = _completed_at_ms(store, base_id)
    if completed_ms is not None:
        found["redone_s"] = round(max(last_ms - completed_ms, 0) / 1000, 3)
    return found


def _last_sign_ms(before: GenerationSummary) -> int | None:
    if before.heartbeat is not None:
        return before.heartbeat.at_ms
    return None if before.claim is None else before.claim.claimed_at_ms


def _completed_at_ms(store: CheckpointStore, checkpoint_id: int | None) -> int | None:
    if checkpoint_id is None:
        return None
    try:
        manifest = store.manifests.find(CheckpointId(checkpoint_id))
    except CorruptCheckpointError:
        return None
    return None if manifest is None else manifest.completed_at_ms


# --- retention ------------------------------------------------------------------------------------


def _retention(audited: Audited) -> dict[str, Any]:
    ids = deleted_checkpoints(audited)
    shown = ", ".join(str(each) for each in ids[:_IDS_SHOWN])
    more = f" and {len(ids) - _IDS_SHOWN} more" if len(ids) > _IDS_SHOWN else ""
    # Older versions wrote these numbers into a second record, under the names that are shown.
    now = {"checkpoints": len(ids), "files": audited.said.get("files")}
    now["bytes"] = audited.said.get("bytes")
    found = {f"deleted_{n}": audited.said.get(f"deleted_{n}", now[n]) for n in now}
    counts = {name: count for name, count in found.items() if isinstance(count, int)}
    return {"checkpoints": f"{shown}{more}" or "none", **counts}
