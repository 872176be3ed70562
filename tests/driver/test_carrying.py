"""The files of removed sources are read once, verified, and written again with each checkpoint."""

import pyarrow as pa
import pytest

from laminar_core.driver.carrying import Carried
from laminar_core.errors import CheckpointDeclined, CorruptCheckpointError
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import CarriedOperator
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.records.manifests import subtask
from tests.records.test_manifest_versions import CARRYING
from tests.store.stores import damage, open_job

THEN, NOW = CheckpointId(4), CheckpointId(9)
TABLES = [pa.table({"split_id": [n], "offset": [str(n)]}) for n in range(3)]
MARKS = {"gone": CarriedOperator(source="gone", checkpoint_id=THEN)}


@pytest.fixture
def store() -> CheckpointStore:
    return open_job(MemoryObjectStore())


def with_files(store: CheckpointStore) -> CheckpointManifest:
    """Return a checkpoint whose removed source has two files of its own and a shared one."""
    first = store.parts.write_state(THEN, "gone", 0, TABLES[0])
    second = store.parts.write_state(THEN, "gone", 1, TABLES[1])
    shared = store.parts.write_shared("gone", Generation(1), 2, 0, TABLES[2])
    gone = (subtask("gone", 0, first), subtask("gone", 1, second), subtask("gone", 2, shared))
    others = tuple(e for e in CARRYING.subtasks if e.operator_id != "gone")
    return CARRYING.model_copy(update={"subtasks": (*others, *gone)})


def test_each_file_is_in_the_folder_of_the_new_checkpoint_with_the_same_bytes(store) -> None:
    carried = Carried.read(store, with_files(store), MARKS)
    carried.write(store, NOW)
    carried.write(store, NOW)  # As after an answer that was lost.
    first, second, _ = carried.entries(store.paths, NOW)
    for n, entry in enumerate((first, second)):
        (segment,) = entry.segments
        assert segment.path == f"checkpoints/0000000009/operators/gone/state_{n}.seg"
        assert store.parts.read_state(segment) == TABLES[n]
        assert (entry.written_bytes, entry.sync_ms, entry.async_ms) == (segment.size_bytes, 0, 0)


def test_a_shared_file_is_part_of_a_chain_and_is_named_as_it_is(store) -> None:
    manifest = with_files(store)
    carried = Carried.read(store, manifest, MARKS)
    *_, third = carried.entries(store.paths, NOW)
    assert third.segments == manifest.subtasks[-1].segments
    assert third.written_bytes == 0


@pytest.mark.parametrize("how", ["missing", "torn", "rotten"])
def test_bytes_that_were_not_written_are_not_carried_on(store, how: str) -> None:
    manifest = with_files(store)
    damage(store, store.paths.state(THEN, "gone", 1), how)
    with pytest.raises(CorruptCheckpointError, match="operators/gone/state_1"):
        Carried.read(store, manifest, MARKS)


def test_what_another_wrote_there_is_not_replaced(store) -> None:
    carried = Carried.read(store, with_files(store), MARKS)
    store.parts.write_state(NOW, "gone", 1, TABLES[2])
    with pytest.raises(CheckpointDeclined, match="holds something else"):
        carried.write(store, NOW)


def test_the_discovery_of_the_removed_source_and_of_no_other(store) -> None:
    carried = Carried.read(store, CARRYING, MARKS)
    assert carried.discovery() == CARRYING.discovery
    assert Carried.read(store, CARRYING, {}).discovery() == {}
