"""Checkpoints of a window aggregation for tests: segments, source positions, watermarks."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pydantic import JsonValue

from laminar_core.codec.key_groups import key_group_range, key_groups_of
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.record import JsonObject
from laminar_core.state.splits import at_rows, numbered_splits
from laminar_core.state.window_layout import TIME_TYPE
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.records.manifests import alignment, manifest
from tests.store.stores import trigger

SECOND = 1_000_000
SIZE_S = 10
MAX_PARALLELISM = 8

Panes = Mapping[tuple[str, int], tuple[int, int]]
"""(merchant, start of the window in seconds) -> (rows, sum of their amounts)."""

DESCRIPTIONS = {
    "in": {"kind": "memory"},
    "totals": {
        "kind": "window-aggregate",
        "keys": ["merchant"],
        "window": {"kind": "tumbling", "size_us": SIZE_S * SECOND, "offset_us": 0},
        "allowed_lateness_us": 0,
        "aggregates": [{"function": "sum", "column": "amount", "name": "total"}],
    },
    "out": {"kind": "collect"},
}


def stored(panes: Panes) -> pa.Table:
    """The table that a subtask would write."""
    keys, values = list(panes), list(panes.values())
    rows = pa.table(
        {
            "merchant": pa.array([merchant for merchant, _ in keys], pa.string()),
            "window_start": pa.array([s * SECOND for _, s in keys], pa.int64()).cast(TIME_TYPE),
            "count(*)": pa.array([count for count, _ in values], pa.int64()),
            "sum(amount)": pa.array([amount for _, amount in values], pa.int64()),
        }
    ).combine_chunks()
    groups = [
        group
        for batch in rows.to_batches()
        for group in key_groups_of(batch, ("merchant",), MAX_PARALLELISM).tolist()
    ]
    return rows.add_column(0, "key_group", [pa.array(groups, pa.int32())])


def owned(panes: Panes, subtask_index: int, parallelism: int) -> dict[tuple[str, int], tuple]:
    """Return the part with keys of this subtask."""
    mine = key_group_range(subtask_index, MAX_PARALLELISM, parallelism)
    groups = stored(panes).column("key_group").to_pylist()
    pairs = zip(panes.items(), groups, strict=True)
    return {key: value for (key, value), group in pairs if group in mine}


def splits_at(split_id: int, rows: int) -> pa.Table:
    """The position of a source with one split of 100 rows."""
    fresh = numbered_splits([f"split {split_id}"], [100])
    at = at_rows(fresh, np.array([rows]))
    return at.set_column(0, "split_id", pa.array([split_id], pa.int64()))


def write_windows(
    store: CheckpointStore,
    checkpoint_id: int,
    cuts: Sequence[Panes],
    *,
    parallelism: int = 2,
    watermark_s: int | None = None,
    next_row: int = 0,
) -> CheckpointManifest:
    """Publish a checkpoint whose state is in one segment per cut and subtask."""
    generation = store.claims.newest()
    assert generation is not None
    assert store.attempts.record_trigger(trigger(checkpoint_id, generation))
    watermark_us = None if watermark_s is None else watermark_s * SECOND
    subtasks = [
        entry
        for index in range(parallelism)
        for entry in _entries(
            store,
            CheckpointId(checkpoint_id),
            [stored(owned(panes, index, parallelism)) for panes in cuts],
            splits_at(index, next_row),
            {
                "watermark_us": watermark_us,
                "late_row_count": next_row // 2,
                "key_groups": _key_groups(index, parallelism),
            },
        )
    ]
    written = manifest(
        generation=generation,
        checkpoint_id=checkpoint_id,
        parent_checkpoint_id=checkpoint_id - 1 or None,
        max_parallelism=MAX_PARALLELISM,
        parallelism=dict.fromkeys(DESCRIPTIONS, parallelism),
        fingerprint={name: fingerprint_of(text) for name, text in DESCRIPTIONS.items()},
        operators_description=DESCRIPTIONS,
        subtasks=tuple(subtasks),
        alignment=tuple(
            alignment(vertex_id="totals", subtask_index=i, watermark_us=watermark_us, channels=())
            for i in range(parallelism)
        ),
    )
    store.manifests.publish(written)
    return written


def _entries(
    store: CheckpointStore,
    number: CheckpointId,
    tables: Sequence[pa.Table],
    split: pa.Table,
    properties: JsonObject,
) -> list[SubtaskEntry]:
    """What one worker writes: it reads one split, and ``tables`` are its part of the state."""
    index = split.column("split_id")[0].as_py()
    segments = tuple(
        store.parts.write_state(number, "totals", index, table, part=part)
        for part, table in enumerate(tables)
    )
    position = store.parts.write_state(number, "in", index, split)
    common = {"subtask_index": index, "sync_ms": 0.5, "async_ms": 1.0}
    return [
        SubtaskEntry(operator_id="in", segments=(position,), **common),
        SubtaskEntry(operator_id="totals", segments=segments, properties=properties, **common),
        SubtaskEntry(operator_id="out", **common),
    ]


def _key_groups(index: int, parallelism: int) -> list[JsonValue]:
    groups = key_group_range(index, MAX_PARALLELISM, parallelism)
    return [groups.start, groups.stop]
