"""The splits of a source in a checkpoint, over all subtasks."""

from laminar_core.state.splits import split_table
from laminar_core.store.source_positions import positions_of
from tests.store.stores import claim, open_job, write

SPLITS = split_table([{"split_id": 0, "split": "a", "offset": "3"}])


def test_the_splits_of_all_subtasks_are_put_together() -> None:
    store = open_job()
    manifest = write(store, 1, claim(store), SPLITS)
    found = positions_of("window", store, manifest)
    assert found is not None
    assert found.column("offset").to_pylist() == ["3", "3"]


def test_a_checkpoint_without_the_source_has_none() -> None:
    store = open_job()
    assert positions_of("new", store, write(store, 1, claim(store), SPLITS)) is None
