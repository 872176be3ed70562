"""Materialisations of a stream's output, made of what its store shows as committed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.recovery_facts import Base
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import CommitRecord
from laminar_core.records.sink_outputs import combined, outputs_of
from laminar_core.resources.names import OUTPUT_OF_TAG, asset_key
from laminar_core.resources.output_partitions import OutputPartitions
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, read_stored
from laminar_core.sensors.observer.checkpoint_metadata import DATA_VERSION_TAG
from laminar_core.sensors.observer.output_decision import (
    Passed,
    ReportedOutput,
    VisibleOutput,
    Withdrawn,
    has_new_rows,
    kept_by,
    passed_partitions,
    withdrawn_to,
)
from laminar_core.sensors.observer.output_reports import output_metadata, read_commit
from laminar_core.sensors.run_records import LEFT_TO_RUN_MS
from laminar_core.store.checkpoint_store import CheckpointStore

_UNCOMMITTED_MAX = 20
"""How many completed checkpoints are looked at for one that is committed."""

_REPORTS_SEARCHED = 20
"""Newest events that are searched for one of Laminar: anybody may report a materialisation."""


@dataclass(frozen=True, slots=True)
class OutputWatch:
    """Facts that a read of the store needs: the partitions, and the newest report in Dagster.

    ``is_supervised``: a run owns the driver, and reports at its end what its last checkpoint shows.
    """

    partitions: OutputPartitions | None = None
    reported: ReportedOutput | None = None
    is_supervised: bool = False

    def leaves(self, stored: StoredCheckpoint, now_ms: int) -> bool:
        """Return whether the output of the newest checkpoint is left for the run to report."""
        age_ms = now_ms - stored.manifest.completed_at_ms
        return self.is_supervised and self.partitions is None and age_ms < LEFT_TO_RUN_MS


@dataclass(frozen=True, slots=True)
class Searched:
    """The part of a store that is searched: completed checkpoints that are not dealt with."""

    store_id: str
    newest_generation: int
    ids: range


@dataclass(frozen=True, slots=True)
class FoundOutput:
    """Output that is visible and not reported. ``is_all``: nothing more up to this checkpoint."""

    checkpoint_id: int
    is_all: bool
    events: tuple[dg.AssetMaterialization, ...] = ()


def watch_output(
    instance: dg.DagsterInstance,
    stream: str,
    partitions: OutputPartitions | None,
    *,
    is_supervised: bool = False,
) -> OutputWatch:
    """Return the newest report that Dagster has, by a run or by the observer."""
    records = instance.fetch_materializations(asset_key(stream, "output"), limit=_REPORTS_SEARCHED)
    events = (record.asset_materialization for record in records.records)
    reports = (reported_by(event) for event in events if event is not None)
    reported = next((each for each in reports if each is not None), None)
    return OutputWatch(partitions, reported, is_supervised)


def reported_by(event: dg.AssetMaterialization) -> ReportedOutput | None:
    """Return what an event reports; None: it is not one of these."""
    store = (event.tags or {}).get(OUTPUT_OF_TAG)
    checkpoint_id = _number(event, "committed_checkpoint")
    generation, rows = _number(event, "generation"), _number(event, "rows_out")
    if store is None or checkpoint_id is None or generation is None or rows is None:
        return None
    return ReportedOutput(store, checkpoint_id, generation, rows, event.partition)


def _number(event: dg.AssetMaterialization, name: str) -> int | None:
    value = event.metadata[name].value if name in event.metadata else None
    return value if isinstance(value, int) else None


def read_output(
    store: CheckpointStore, searched: Searched, watch: OutputWatch, now_ms: int
) -> FoundOutput | None:
    """Return what is to be reported; None: no checkpoint that is searched is committed.

    Also None if a base cannot be read, so that no timeline is known. The attempts say so, too.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    try:
        return _read(store, searched, watch, now_ms)
    except CorruptCheckpointError:
        return None


def _read(
    store: CheckpointStore, searched: Searched, watch: OutputWatch, now_ms: int
) -> FoundOutput | None:
    visible = newest_visible(store, searched)
    if visible is not None and visible[0].manifest.checkpoint_id == searched.ids[-1]:
        earlier = replace(searched, ids=searched.ids[:-1])
        visible = newest_visible(store, earlier) if watch.leaves(visible[0], now_ms) else visible
    if visible is None:
        return None
    stored, commit = visible
    store_id, reported = searched.store_id, watch.reported
    if reported is not None and reported.store != store_id:
        reported = None
    passed = _to_report(store, watch.partitions, reported, stored, now_ms)
    metadata = output_metadata(store, stored, commit) if passed.partitions else {}
    return FoundOutput(
        stored.manifest.checkpoint_id,
        is_all=not passed.more,
        events=tuple(
            dg.AssetMaterialization(
                asset_key(store.job, "output"),
                partition=partition,
                description=_sentence(reported, stored),
                metadata=metadata,
                tags=output_tags(store_id, stored, partition),
            )
            for partition in passed.partitions
        ),
    )


def visible_report(
    store: CheckpointStore, store_id: str, stored: StoredCheckpoint
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return metadata and tags of the report that a run makes; empty: it is not committed."""
    commit = read_commit(store, stored.manifest.checkpoint_id)
    if commit is None:
        return {}, {}
    return output_metadata(store, stored, commit), output_tags(store_id, stored)


def newest_visible(
    store: CheckpointStore, searched: Searched
) -> tuple[StoredCheckpoint, CommitRecord] | None:
    """Return the newest of these checkpoints that is committed, and on the timeline."""
    bases: Sequence[Base] | None = None
    for number in reversed(searched.ids[-_UNCOMMITTED_MAX:]):
        checkpoint_id = CheckpointId(number)
        if (commit := read_commit(store, checkpoint_id)) is None:
            continue
        stored = read_stored(store, checkpoint_id)
        if not isinstance(stored, StoredCheckpoint):
            continue
        generation = Generation(stored.manifest.generation)
        if generation < searched.newest_generation and bases is None:
            bases = store.generations.bases()
        if on_timeline(checkpoint_id, generation, bases or ()):
            return stored, commit
    return None


def output_tags(
    store_id: str, stored: StoredCheckpoint, partition: str | None = None
) -> dict[str, str]:
    """Return the tags by which a report is known again; the same one has the same data version."""
    version = sha256_hex(f"output {stored.sha256} {partition or ''}".encode())
    return {DATA_VERSION_TAG: version, OUTPUT_OF_TAG: store_id}


def _to_report(
    store: CheckpointStore,
    partitions: OutputPartitions | None,
    reported: ReportedOutput | None,
    stored: StoredCheckpoint,
    now_ms: int,
) -> Passed:
    outputs = outputs_of(stored.manifest)
    visible = VisibleOutput(
        stored.manifest.checkpoint_id,
        sum(each.rows for each in outputs),
        combined(each.time for each in outputs),
    )
    withdrawn = _withdrawn(store, reported, stored)
    if partitions is None:
        return Passed((None,)) if has_new_rows(reported, visible, withdrawn) else Passed()
    return passed_partitions(partitions, reported, visible, withdrawn, now_ms)


def _withdrawn(
    store: CheckpointStore, reported: ReportedOutput | None, stored: StoredCheckpoint
) -> Withdrawn | None:
    if reported is None or reported.generation == stored.manifest.generation:
        return None
    base = withdrawn_to(reported, store.generations.bases())
    if base is None:
        return None
    if not kept_by(base) or base.checkpoint_id is None:
        return Withdrawn()
    kept = read_stored(store, base.checkpoint_id)
    if not isinstance(kept, StoredCheckpoint):
        return Withdrawn()
    return Withdrawn(combined(each.time for each in outputs_of(kept.manifest)).watermark_us)


def _sentence(reported: ReportedOutput | None, stored: StoredCheckpoint) -> str:
    """Name the checkpoints whose output is new."""
    newest = stored.manifest.checkpoint_id
    first = 1 if reported is None else reported.checkpoint_id + 1
    return f"visible: output of checkpoint {newest if first >= newest else f'{first} to {newest}'}"


def visible_sentence(events: Sequence[dg.AssetMaterialization]) -> str:
    """Say what of the output is reported; nothing if there is nothing.

    >>> hours = [dg.AssetMaterialization("output", partition=f"{n}:00") for n in (9, 10)]
    >>> visible_sentence(hours)
    'output is complete up to partition 10:00'
    """
    if not events:
        return ""
    last = events[-1]
    if last.partition is None:
        return last.description or "output is visible"
    return f"output is complete up to partition {last.partition}"
