"""The metadata of a completed checkpoint in Dagster; numbers are plotted over the checkpoints.

So only those that matter first are numbers here; the others are one entry of JSON.

An event is kept for ever, so it is kept small: ``docs/orchestration.md`` has the size.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from laminar_core.objectstore.opening import address
from laminar_core.protocol.types import Generation
from laminar_core.records.bad_rows import bad_rows_of
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.records.record import JsonObject
from laminar_core.records.sink_numbers import sinks_of
from laminar_core.records.source_numbers import sources_of
from laminar_core.resources.names import checkpoint_key, source_key
from laminar_core.sensors.facts.stored_checkpoints import (
    SourcePosition,
    StoredCheckpoint,
    asked_by,
    chain_lengths,
    source_positions,
    watermark_us,
)
from laminar_core.sensors.observer.alignment_chart import bars_of, chart
from laminar_core.store.checkpoint_store import CheckpointStore

DATA_VERSION_TAG = "dagster/data_version"
"""Tag of each event: the digest of the stored record that it reports. Each is reported once."""

CODE_VERSION_TAG = "dagster/code_version"

_NUMBERS_AGE_MS_MAX = 60_000
"""Numbers of a heartbeat are those of a checkpoint if at most this time lies between them."""

_WALL_CLOCK_LAG_S_MAX = 30 * 86_400.0
"""Event time that is further from the clock is not meant to follow it."""


def materialization(store: CheckpointStore, stored: StoredCheckpoint) -> dg.AssetMaterialization:
    """Return the event that reports a checkpoint.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    manifest = stored.manifest
    picture = chart(bars_of(manifest))
    of_sources = source_number_metadata(store, manifest)
    metadata: dict[str, Any] = {
        **_plotted(manifest, of_sources),
        **({} if picture is None else {"alignment": dg.MetadataValue.md(picture)}),
        "operators": dg.MetadataValue.md(_operators_table(manifest)),
        "more_numbers": dg.MetadataValue.json(_more_numbers(store, manifest, of_sources)),
        **_identity(store, stored),
    }
    return dg.AssetMaterialization(
        checkpoint_key(store.job),
        partition=stored.partition,
        description=_summary(manifest),
        metadata=metadata,
        tags={
            DATA_VERSION_TAG: stored.sha256,
            CODE_VERSION_TAG: fingerprint_of(dict(manifest.fingerprint))[:12],
        },
    )


def source_observation(
    store: CheckpointStore, stored: StoredCheckpoint
) -> dg.AssetObservation | None:
    """Return the sources' positions at this checkpoint as an event; None if unreadable."""
    positions = source_positions(store, stored.manifest)
    if not positions:
        return None
    return dg.AssetObservation(
        source_key(store.job),
        metadata={
            "checkpoint_id": stored.manifest.checkpoint_id,
            **event_time_metadata(stored.manifest),
            **position_metadata(positions),
            **source_number_metadata(store, stored.manifest),
        },
        tags={DATA_VERSION_TAG: stored.sha256},
    )


def position_metadata(positions: Sequence[SourcePosition]) -> dict[str, int]:
    """Return ``rows_read/{operator}``, and ``rows_left/{operator}`` for bounded sources."""
    read = {f"rows_read/{p.operator_id}": p.rows_read for p in positions}
    left = {
        f"rows_left/{p.operator_id}": p.rows_total - p.rows_read
        for p in positions
        if p.rows_total is not None
    }
    return read | left


def source_number_metadata(
    store: CheckpointStore, manifest: CheckpointManifest
) -> dict[str, float | int]:
    """Return lag and headroom of each source, as the driver knew them about then.

    They are in its heartbeat, which is overwritten: a checkpoint that is reported later has none.
    """
    return {
        f"{what}/{source}": number
        for source, numbers in sources_of(_progress_about_then(store, manifest)).items()
        for what, number in (
            ("lag_rows", numbers.lag_rows),
            ("lag_seconds", numbers.lag_seconds),
            ("headroom_rows", numbers.headroom_rows),
            ("headroom_seconds", numbers.headroom_seconds),
        )
        if number is not None
    }


def sink_number_metadata(
    store: CheckpointStore, manifest: CheckpointManifest
) -> dict[str, float | int]:
    """Return the numbers of each sink, as the driver knew them about then."""
    return {
        f"{what}/{sink}": number
        for sink, numbers in sinks_of(_progress_about_then(store, manifest)).items()
        for what, number in (
            ("publish_rows_per_s", numbers.publish_rows_per_s),
            ("transaction_expires_in_ms", numbers.transaction_expires_in_ms),
        )
        if number is not None
    }


def _progress_about_then(store: CheckpointStore, manifest: CheckpointManifest) -> JsonObject:
    beat = store.generations.read_heartbeat(Generation(manifest.generation))
    if beat is None or abs(beat.at_ms - manifest.completed_at_ms) > _NUMBERS_AGE_MS_MAX:
        return {}
    return beat.progress


def _identity(store: CheckpointStore, stored: StoredCheckpoint) -> dict[str, Any]:
    manifest = stored.manifest
    location = store.paths.manifest(manifest.checkpoint_id)
    found: dict[str, Any] = {
        # Numbers would be plotted.
        "generation": str(manifest.generation),
        "parent": str(manifest.parent_checkpoint_id or "none"),
        "kind": manifest.kind.value,
        "mode": manifest.mode,
        "completed_at": dg.MetadataValue.timestamp(manifest.completed_at_ms / 1000),
        "manifest": dg.PathMetadataValue(address(store.objects, location)),
        "manifest_sha256": stored.sha256,
    }
    if (command := asked_by(store, manifest)) is not None:
        found |= {"requested_by": command.actor, "reason": command.reason}
        if command.run_id:
            found["requested_in"] = dg.MetadataValue.dagster_run(command.run_id)
    if manifest.imported_from is not None:
        found["imported_from"] = dg.PathMetadataValue(manifest.imported_from)
    return found


def _plotted(manifest: CheckpointManifest, of_sources: Mapping[str, float | int]) -> dict[str, Any]:
    """Return the numbers that are plotted, in this order: few, each with its unit in its name."""
    lags = {name: number for name, number in of_sources.items() if name.startswith("lag_")}
    return {
        "duration_ms": round(float(manifest.duration_ms), 3),
        "alignment_ms": _slowest(a.alignment_ms for a in manifest.alignment),
        "size_bytes": manifest.size_bytes,
        "state_rows": sum(s.row_count for s in manifest.subtasks),
        "inflight_rows": manifest.inflight_rows,
        **lags,
        **event_time_metadata(manifest),
    }


def _more_numbers(
    store: CheckpointStore, manifest: CheckpointManifest, of_sources: Mapping[str, float | int]
) -> dict[str, float | int]:
    """Return the other numbers, for one entry that is not plotted.

    Times are of the slowest subtask: they overlap, and do not add up to the duration.
    """
    size_bytes = manifest.size_bytes
    return {
        "start_delay_ms": _slowest(a.start_delay_ms for a in manifest.alignment),
        "sync_ms": _slowest(s.sync_ms for s in manifest.subtasks),
        "async_ms": _slowest(s.async_ms for s in manifest.subtasks),
        "written_bytes": manifest.written_bytes,
        "inflight_events": sum(entry.event_count for entry in manifest.inflight_data),
        "inflight_bytes": manifest.inflight_bytes,
        "inflight_share": round(manifest.inflight_bytes / size_bytes, 4) if size_bytes else 0.0,
        "chain_length": max(chain_lengths(manifest).values(), default=0),
        **position_metadata(source_positions(store, manifest)),
        **{name: number for name, number in of_sources.items() if not name.startswith("lag_")},
        **sink_number_metadata(store, manifest),
        **bad_row_metadata(manifest),
    }


def _slowest(times_ms: Iterable[float]) -> float:
    return round(float(max(times_ms, default=0.0)), 3)


def bad_row_metadata(manifest: CheckpointManifest) -> dict[str, int]:
    """Return the numbers of letters, dropped and skipped messages of sources with any."""
    return {
        f"{what}/{source}": number
        for source, totals in bad_rows_of(manifest).items()
        for what, number in (
            ("letters", totals.letters),
            ("bad_rows_dropped", totals.dropped),
            ("bad_rows_skipped", totals.skipped),
        )
        if number
    }


def event_time_metadata(manifest: CheckpointManifest) -> dict[str, Any]:
    """Return the watermark, and its lag if event time follows the wall clock."""
    reached_us = watermark_us(manifest)
    if reached_us is None:
        return {}
    lag_s = manifest.completed_at_ms / 1e3 - reached_us / 1e6
    found: dict[str, Any] = {"watermark": dg.MetadataValue.timestamp(reached_us / 1e6)}
    if abs(lag_s) <= _WALL_CLOCK_LAG_S_MAX:
        found["watermark_lag_s"] = round(lag_s, 3)
    return found


def _summary(manifest: CheckpointManifest) -> str:
    how = "" if manifest.mode == "aligned" else f", {manifest.mode}"
    rows = f", {manifest.inflight_rows} rows in flight" if manifest.inflight_rows else ""
    return (
        f"{manifest.kind.value}{how}: {manifest.duration_ms:.0f} ms, "
        f"{manifest.written_bytes} of {manifest.size_bytes} bytes written{rows}"
    )


def _operators_table(manifest: CheckpointManifest) -> str:
    """In Markdown, which takes a quarter of the bytes of Dagster's own tables."""
    return "\n".join(
        (
            "|operator|subtasks|rows|bytes|sync ms|async ms|rows in flight|",
            "|:-|-:|-:|-:|-:|-:|-:|",
            *(_operator_row(manifest, operator_id) for operator_id in manifest.parallelism),
        )
    )


def _operator_row(manifest: CheckpointManifest, operator_id: str) -> str:
    parts = [entry for entry in manifest.subtasks if entry.operator_id == operator_id]
    overtaken = [e for e in manifest.inflight_data if e.operator_id == operator_id]
    cells = (
        operator_id,
        len(parts),
        sum(part.row_count for part in parts),
        sum(part.size_bytes for part in parts),
        f"{max(part.sync_ms for part in parts):.1f}",
        f"{max(part.async_ms for part in parts):.1f}",
        sum(entry.row_count for entry in overtaken),
    )
    return f"|{'|'.join(str(cell) for cell in cells)}|"
