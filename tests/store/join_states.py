"""Checkpoints of an operator with two tables of other columns, for tests of who reads them."""

from collections.abc import Mapping

import pyarrow as pa

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TABLES, TableLayout, described
from laminar_core.state.window_layout import KEY_GROUP
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.records.manifests import manifest, subtask
from tests.store.stores import claim, trigger

KEYED = [(KEY_GROUP, pa.int32()), ("key", pa.string())]
LEFT = TableLayout(
    "left", pa.schema([*KEYED, ("left", pa.int64()), (EXPIRES, pa.int64())]), ("key",), "newest"
)
RIGHT = TableLayout("right", pa.schema([*KEYED, ("said", pa.string())]), ("key",), "append")
DESCRIPTIONS = {
    "join": {"kind": "test-join", TABLES: described([LEFT, RIGHT])},
    "out": {"kind": "collect"},
}


def write_join(
    store: CheckpointStore,
    checkpoint_id: int,
    left: Mapping[str, tuple[int, int]],
    right: Mapping[str, str],
    expired_us: int,
) -> CheckpointManifest:
    """Publish a checkpoint of one worker; ``left`` is in two segments, the second one is newer.

    ``left``: key -> (value, when it expires); each value is 0 in the first segment.
    """
    generation = store.claims.newest() or claim(store)
    assert store.attempts.record_trigger(trigger(checkpoint_id, generation))
    of_left = [
        _rows(LEFT, [(key, 0 if old else value, at) for key, (value, at) in left.items()])
        for old in (True, False)
    ]
    of_right = _rows(RIGHT, list(right.items()))
    segments = tuple(
        store.parts.write_state(CheckpointId(checkpoint_id), "join", 0, rows, name=name, part=part)
        for part, (name, rows) in enumerate([*(("left", t) for t in of_left), ("right", of_right)])
    )
    written = manifest(
        generation=generation,
        checkpoint_id=checkpoint_id,
        parent_checkpoint_id=checkpoint_id - 1 or None,
        parallelism=dict.fromkeys(DESCRIPTIONS, 1),
        fingerprint={name: fingerprint_of(text) for name, text in DESCRIPTIONS.items()},
        operators_description=DESCRIPTIONS,
        subtasks=(
            subtask(
                "join",
                0,
                segments=segments,
                expired_us={"left": expired_us},
                properties={"key_groups": [0, 128]},
            ),
            subtask("out", 0),
        ),
        alignment=(),
    )
    store.manifests.publish(written)
    return written


def _rows(layout: TableLayout, rows: list[tuple]) -> pa.Table:
    names = layout.schema.names
    return pa.Table.from_pylist(
        [dict(zip(names, (1, *row), strict=True)) for row in rows], schema=layout.schema
    )
