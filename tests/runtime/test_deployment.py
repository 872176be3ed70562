"""Each worker finds its own part of a checkpoint, and its own part of a fresh start."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from laminar_core.checkpoint.types import CheckpointId, Generation
from laminar_core.errors import CorruptCheckpointError
from laminar_core.operators.base import Snapshot
from laminar_core.runtime.deployment import Deployment, RestoredState
from laminar_core.runtime.transport import CoordinatorAddress
from laminar_core.state.manifest import CheckpointManifest
from tests.runtime.plans import SOURCE, small_plan
from tests.state.manifests import manifest, subtask
from tests.storage.stores import damage, open_job

SPLITS = SOURCE.discover()


def deployment(
    restored: CheckpointManifest | None = None, parallelism: int = 2, **splits: pa.Table
) -> Deployment:
    return Deployment(
        job="payments",
        generation=Generation(4),
        parallelism=parallelism,
        plan=small_plan(),
        store_uri="memory://",
        address=CoordinatorAddress("ipc", "ipc:///x"),
        restored=restored,
        splits=splits or {"in": SPLITS},
    )


def restored_state(index: int, restored: CheckpointManifest | None = None, **changes: Any):
    return RestoredState(deployment(restored, **changes), index, open_job())


def test_a_subtask_is_told_where_it_runs() -> None:
    context = deployment().context("time", 1)
    assert (context.operator_id, context.subtask_index, context.parallelism) == ("time", 1, 2)
    assert (context.max_parallelism, context.generation) == (128, 4)


def test_barriers_up_to_the_restored_checkpoint_are_stale() -> None:
    assert deployment().newest_id == 0
    assert deployment(manifest()).newest_id == 7


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_a_fresh_start_deals_every_split_to_one_worker(parallelism: int) -> None:
    dealt = [
        restored_state(index, parallelism=parallelism).splits("in") for index in range(parallelism)
    ]
    assert all(part.schema == SPLITS.schema for part in dealt)
    numbers = sorted(n for part in dealt for n in part.column("split_id").to_pylist())
    assert numbers == SPLITS.column("split_id").to_pylist()
    assert max(part.num_rows for part in dealt) - min(part.num_rows for part in dealt) <= 1


def test_a_fresh_start_has_no_state() -> None:
    assert restored_state(0).snapshots("time") == []
    assert restored_state(0).alignment("keyed") is None


class Restored:
    """A checkpoint in a store: subtask 0 of ``window`` has rows, and every part its marks."""

    def __init__(self) -> None:
        self.store = open_job()
        self.position = SPLITS.slice(1, 2)
        self.ref = self.store.write_state(CheckpointId(7), "window", 0, self.position)
        self.manifest = manifest(
            subtasks=(
                subtask("window", 0, self.ref, properties={"late": 3}),
                subtask("window", 1),
                subtask("sink", 0, committables=({"file": 1},)),
                subtask("sink", 1),
            )
        )

    def state(self, index: int) -> RestoredState:
        return RestoredState(deployment(self.manifest, window=SPLITS), index, self.store)


def test_each_worker_gets_its_own_part() -> None:
    restored = Restored()
    (window,) = restored.state(0).snapshots("window")
    assert (list(window.tables), window.properties) == ([restored.position], {"late": 3})
    (nothing,) = restored.state(1).snapshots("window")
    (sink,) = restored.state(0).snapshots("sink")
    assert [*nothing.tables, *sink.tables] == []
    assert sink.committables == ({"file": 1},)


def test_a_worker_that_had_no_splits_left_gets_none_again() -> None:
    """Its splits were read to their end: dealing them out afresh would read them twice."""
    restored = Restored()
    assert restored.state(0).splits("window") == restored.position
    assert restored.state(1).splits("window") == SPLITS.slice(0, 0)


def test_event_time_is_that_of_the_vertex_and_the_subtask() -> None:
    restored = Restored()
    entry = restored.state(0).alignment("keyed")
    assert entry is not None
    assert entry.watermark_us == 1_000_000
    assert restored.state(1).alignment("keyed") is None
    assert restored.state(0).alignment("other") is None


@pytest.mark.parametrize("how", ["missing", "torn", "rotten"])
def test_damage_is_found_before_anything_is_restored(how: str) -> None:
    restored = Restored()
    damage(restored.store, f"payments/{restored.ref.path}", how)
    with pytest.raises(CorruptCheckpointError):
        restored.state(0).snapshots("window")


def test_a_deployment_survives_the_way_to_a_worker() -> None:
    """Spark pickles the task; nothing in it may depend on this process."""
    sent = deployment(manifest())
    arrived = cloudpickle.loads(cloudpickle.dumps(sent))
    assert arrived == sent
