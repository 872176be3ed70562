"""Rows of a checkpoint are read once each, whole, and only as far as anybody needs them."""

from dataclasses import dataclass

import pytest

from laminar_core.errors import CorruptCheckpointError
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.records.actor import Actor
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.savepoints import read_savepoint, write_savepoint
from laminar_core.store.state_reading import SavepointFiles, read_operator, read_rows, table_names
from laminar_core.testing.faulty_store import FaultyStore
from tests.store.join_states import LEFT, write_join
from tests.store.stores import JOB, claim, damage, open_job
from tests.store.window_states import Panes, write_windows


@dataclass
class Written:
    store: CheckpointStore
    objects: FaultyStore
    manifest: CheckpointManifest

    def entry(self, operator_id: str, index: int = 0):
        return next(
            e
            for e in self.manifest.subtasks
            if (e.operator_id, e.subtask_index) == (operator_id, index)
        )


def write(*cuts: Panes, **options) -> Written:
    objects = FaultyStore(MemoryObjectStore())
    store = CheckpointStore(objects, JOB)
    claim(store)
    manifest = write_windows(store, 1, cuts, **options)
    objects.calls.clear()
    return Written(store, objects, manifest)


def panes(table) -> dict:
    return {
        (row["merchant"], int(row["window_start"].timestamp())): (
            row["count(*)"],
            row["sum(amount)"],
        )
        for row in table.to_pylist()
    }


FIRST = {("a", 0): (1, 5), ("b", 0): (2, 7), ("c", 10): (1, 1)}
SECOND_CUT = {("a", 0): (1, 3), ("c", 20): (4, 4)}


def test_segments_add_up_to_one_row_per_key():
    written = write(FIRST, SECOND_CUT)
    table = read_operator(written.store.parts, written.manifest, "totals")
    assert table is not None
    assert table.num_rows == 4
    assert panes(table) == {
        ("a", 0): (2, 8),
        ("b", 0): (2, 7),
        ("c", 10): (1, 1),
        ("c", 20): (4, 4),
    }


def test_subtasks_have_the_keys_that_they_own():
    written = write(FIRST, SECOND_CUT, parallelism=3)
    parts = [
        read_rows(written.store.parts, written.manifest, written.entry("totals", index))
        for index in range(3)
    ]
    together = {
        key: value for part in parts if part is not None for key, value in panes(part).items()
    }
    assert len(together) == sum(part.num_rows for part in parts if part is not None) == 4


def test_a_segment_of_which_every_window_has_fired_is_not_read():
    written = write({("a", 0): (1, 5)}, {("a", 20): (1, 3)}, parallelism=1, watermark_s=15)
    table = read_rows(written.store.parts, written.manifest, written.entry("totals"))
    assert panes(table) == {("a", 20): (1, 3)}
    assert len([key for verb, key in written.objects.calls if verb == "get"]) == 1


def test_if_all_windows_have_fired_there_are_columns_and_no_rows():
    written = write({("a", 0): (1, 5)}, {("a", 20): (1, 3)}, parallelism=1, watermark_s=30)
    table = read_rows(written.store.parts, written.manifest, written.entry("totals"))
    assert table is not None
    assert (table.num_rows, table.schema.names[1]) == (0, "merchant")


def test_who_wrote_nothing_has_no_rows():
    written = write(FIRST)
    assert read_rows(written.store.parts, written.manifest, written.entry("out")) is None
    assert read_operator(written.store.parts, written.manifest, "out") is None


def test_positions_of_sources_are_rows_like_any_other():
    written = write(FIRST, next_row=7)
    table = read_operator(written.store.parts, written.manifest, "in")
    assert table is not None
    assert table.select(["split_id", "offset"]).to_pylist() == [
        {"split_id": 0, "offset": "7"},
        {"split_id": 1, "offset": "7"},
    ]


def test_a_savepoint_is_read_like_its_checkpoint():
    written = write(FIRST, SECOND_CUT)
    target = MemoryObjectStore()
    write_savepoint(written.store, written.manifest, target, Actor("ann"), 1)
    found = read_savepoint(target)
    table = read_operator(SavepointFiles(found), found.record.cut(), "totals")
    assert table is not None
    assert panes(table) == panes(read_operator(written.store.parts, written.manifest, "totals"))
    segment = next(e for e in found.record.cut().subtasks if e.operator_id == "totals").segments[0]
    data = target.get(segment.path)
    assert data is not None
    target.put(segment.path, data[:-1] + b"x")
    with pytest.raises(CorruptCheckpointError, match=segment.path):
        read_operator(SavepointFiles(found), found.record.cut(), "totals")


@pytest.mark.parametrize("how", ["missing", "torn", "rotten"])
def test_nothing_is_decoded_that_is_not_what_was_written(how):
    written = write(FIRST, SECOND_CUT)
    segment = written.entry("totals").segments[1]
    damage(written.store, written.store.paths.absolute(segment.path), how)
    with pytest.raises(CorruptCheckpointError, match=segment.path):
        read_operator(written.store.parts, written.manifest, "totals")


def test_each_table_is_read_by_itself_without_what_has_expired():
    store = open_job()
    written = write_join(store, 1, {"a": (1, 5), "b": (2, 9)}, {"a": "x", "b": "y"}, expired_us=5)
    assert table_names("join", written) == ("left", "right")
    assert table_names("out", written) == ()
    left, right = (read_operator(store.parts, written, "join", name) for name in ("left", "right"))
    assert left is not None
    assert [tuple(row.values()) for row in left.to_pylist()] == [(1, "b", 2, 9)]
    assert right is not None
    assert right.column("said").to_pylist() == ["x", "y"]
    assert read_operator(store.parts, written, "join") is None, "it has no table without a name"


def test_a_table_that_has_expired_still_has_its_columns():
    store = open_job()
    written = write_join(store, 1, {"a": (1, 5)}, {}, expired_us=9)
    left = read_operator(store.parts, written, "join", "left")
    assert left is not None
    assert left.equals(LEFT.schema.empty_table())
