"""Each worker finds its own part of a checkpoint, and its own part of a fresh start."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from laminar_core.errors import CorruptCheckpointError, DamagedFileError, ErrorCode
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.state.splits import current
from laminar_core.worker.deployment import RestoredState
from laminar_core.worker.restored_edges import RestoredEdge
from laminar_core.worker.restored_part import RestoredPart
from tests.plan.plans import small_plan
from tests.records.manifests import alignment, manifest, subtask
from tests.store.stores import damage, open_job
from tests.worker.deployments import SPLITS, deployment, own

PLAN = small_plan()


def restored_state(index: int, restored: CheckpointManifest | None = None, **changes: Any):
    return RestoredState(own(index, deployment(restored, **changes)), index, open_job())


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
    assert restored_state(0).event_time_us("time") is None
    assert not restored_state(0).finished("in")
    assert restored_state(0).edge(PLAN.edges[0]) == RestoredEdge()
    assert restored_state(0).outgoing(PLAN.edges[0], 1) == []


class Restored:
    """A checkpoint in a store: subtask 0 of ``window`` has rows, and every part its marks."""

    def __init__(self) -> None:
        self.store = open_job()
        self.position = SPLITS.slice(1, 2)
        self.ref = self.store.parts.write_state(CheckpointId(7), "window", 0, self.position)
        self.manifest = manifest(
            subtasks=(
                subtask("window", 0, self.ref, properties={"late": 3}),
                subtask("window", 1),
                subtask("sink", 0, committables=({"file": 1},)),
                subtask("sink", 1),
            ),
            alignment=(alignment(vertex_id="time"),),
        )

    def state(self, index: int) -> RestoredState:
        whole = deployment(self.manifest, window=SPLITS)
        return RestoredState(own(index, whole), index, self.store)


def test_each_worker_gets_its_own_part() -> None:
    restored = Restored()
    (window,) = restored.state(0).snapshots("window")
    assert (list(window.rows()), window.properties) == ([restored.position], {"late": 3})
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
    assert restored.state(0).event_time_us("time") == 1_000_000
    assert restored.state(0).edge(PLAN.edges[0]).times == {0: (1_000_000, False), 1: (None, True)}
    assert restored.state(1).event_time_us("time") is None
    assert restored.state(0).event_time_us("other") is None


@pytest.mark.parametrize("how", ["missing", "torn", "rotten"])
def test_damage_is_found_before_anything_is_restored(how: str) -> None:
    restored = Restored()
    damage(restored.store, f"payments/{restored.ref.path}", how)
    with pytest.raises(CorruptCheckpointError):
        [list(snapshot.rows()) for snapshot in restored.state(0).snapshots("window")]


class Rescaled:
    """A checkpoint of four workers; what subtask n kept says n, in properties and in rows."""

    def __init__(self, **changes: Any) -> None:
        self.store = open_job()
        numbers = [pa.table({"n": [n]}) for n in range(4)]
        files = [
            self.store.parts.write_state(CheckpointId(7), "window", n, table)
            for n, table in enumerate(numbers)
        ]
        self.segments = [
            file.model_copy(update={"key_groups": (32 * n, 32 * n + 32)})
            for n, file in enumerate(files)
        ]
        self.manifest = manifest(
            parallelism={"window": 4},
            subtasks=tuple(
                subtask("window", n, self.segments[n], properties={"n": n}) for n in range(4)
            ),
            **changes,
        )

    def state(self, index: int, parallelism: int, **splits: pa.Table) -> RestoredState:
        goes_on = own(index, deployment(self.manifest, parallelism, **splits))
        return RestoredState(goes_on, index, self.store)


@pytest.mark.parametrize(
    ("redistribution", "parallelism", "given"),
    [
        ("keyed", 3, [[0, 1], [1, 2], [2, 3]]),
        ("keyed", 8, [[0], [0], [1], [1], [2], [2], [3], [3]]),
        ("split", 3, [[0, 3], [1], [2]]),
        ("split", 5, [[0], [1], [2], [3], []]),
        ("union", 2, [[0, 1, 2, 3]] * 2),
        ("union", 4, [[0], [1], [2], [3]]),
        (None, 3, [[]] * 3),
    ],
)
def test_with_other_workers_an_operator_gets_what_it_says(redistribution, parallelism, given):
    rescaled = Rescaled()
    for index, numbers in enumerate(given):
        found = rescaled.state(index, parallelism).snapshots("window", redistribution)
        assert [snapshot.properties["n"] for snapshot in found] == numbers


def test_segments_without_a_key_of_the_new_subtask_are_not_read() -> None:
    rescaled = Rescaled()
    damage(rescaled.store, f"payments/{rescaled.segments[3].path}", "missing")
    found = rescaled.state(0, 1).snapshots("window", "keyed")[:3]
    assert [table.column("n").to_pylist() for s in found for table in s.rows()] == [[0], [1], [2]]
    damage(rescaled.store, f"payments/{rescaled.segments[2].path}", "missing")
    given = rescaled.state(0, 2).snapshots("window", "keyed")
    assert [table.column("n").to_pylist() for s in given for table in s.rows()] == [[0], [1]]


def test_rows_without_keys_are_all_restored_although_a_column_is_called_key_group() -> None:
    """An earlier version took such a column of a sink's rows for that of keyed state."""
    rescaled = Rescaled()
    found = rescaled.state(1, 2).snapshots("window", "split")
    assert [table.column("n").to_pylist() for s in found for table in s.rows()] == [[1], [3]]
    assert rescaled.state(0, 2).snapshots("window", "split")[1].properties["n"] == 2
    given = [
        table.column("n").to_pylist()
        for index in range(3)
        for snapshot in rescaled.state(index, 3).snapshots("window", "split")
        for table in snapshot.rows()
    ]
    assert given == [[0], [3], [1], [2]]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_with_other_workers_splits_are_dealt_anew_with_their_offsets(parallelism: int) -> None:
    """In the order of discovery: later ones are later in event time."""
    splits = current(
        pa.table(
            {
                "split_id": [5, 0, 1, 4, 3, 2],
                "next_row": [0, 3, 9, 0, 2, 9],
                "row_count": [9, 9, 9, None, 9, 9],
            }
        )
    )
    rescaled = Rescaled()
    dealt = [rescaled.state(n, parallelism, window=splits) for n in range(parallelism)]
    parts = [state.splits("window") for state in dealt]
    ids = [part.column("split_id").to_pylist() for part in parts]
    assert all(part == sorted(part) for part in ids)
    assert pa.concat_tables(parts).sort_by("split_id") == splits.sort_by("split_id")
    unread = [len(set(part) & {0, 3, 4, 5}) for part in ids]
    assert max(unread) - min(unread) <= 1


def test_a_source_has_ended_if_it_had_wherever_its_splits_may_come_from() -> None:
    ends = (True, True, False, True)
    mixed = tuple(
        alignment(vertex_id="in", subtask_index=n, finished=end) for n, end in enumerate(ends)
    )
    assert not any(Rescaled(alignment=mixed).state(n, 2).finished("in") for n in range(2))
    assert [Rescaled(alignment=mixed).state(n, 4).finished("in") for n in range(4)] == [*ends]
    ended = tuple(entry.model_copy(update={"finished": True}) for entry in mixed)
    assert all(Rescaled(alignment=ended).state(n, 3).finished("in") for n in range(3))


def test_with_other_workers_what_was_to_be_sent_has_been_sent() -> None:
    assert Rescaled().state(1, 2).outgoing(PLAN.edges[0], 0) == []


def test_a_deployment_survives_the_way_to_a_worker() -> None:
    """Spark pickles the task; nothing in it may depend on this process."""
    sent = deployment(manifest())
    arrived = cloudpickle.loads(cloudpickle.dumps(sent))
    assert arrived == sent


def test_tables_come_back_by_their_names_and_with_what_has_expired() -> None:
    restored = Restored()
    parts = restored.store.parts
    right = parts.write_state(CheckpointId(7), "window", 0, SPLITS, name="right", part=1)
    entry = subtask("window", 0, segments=(restored.ref, right), expired_us={"right": 4})
    restored.manifest = manifest(subtasks=(entry, *restored.manifest.subtasks[1:]))
    (snapshot,) = restored.state(0).snapshots("window")
    assert snapshot.expired_us == {"right": 4}
    assert [(table.name, table.rows.num_rows) for table in snapshot.tables] == [
        ("", 2),
        ("right", SPLITS.num_rows),
    ]
    assert restored.state(0).own_segments("window") == (restored.ref, right)


def test_what_has_expired_does_not_come_back() -> None:
    """Not even if the watermark of who restores it is behind: it was given up already."""
    restored = Restored()
    rows = pa.table({"n": [1, 2, 3], "_expires": pa.array([4, 5, None], pa.int64())})
    left = restored.store.parts.write_state(CheckpointId(7), "window", 0, rows, name="l", part=1)
    entry = subtask("window", 0, segments=(left,), expired_us={"l": 4, "": 9})
    restored.manifest = manifest(subtasks=(entry, *restored.manifest.subtasks[1:]))
    (snapshot,) = restored.state(0).snapshots("window")
    assert [table.rows.column("n").to_pylist() for table in snapshot.tables] == [[2, 3]]


def test_a_file_that_nobody_asked_for_is_verified_all_the_same() -> None:
    """No file of this checkpoint is in the store."""
    restored = manifest()
    part = RestoredPart.whole(restored)
    index, file = next((n, f) for n in range(2) for f in part.files_of_worker(n, 2))
    with pytest.raises(DamagedFileError) as found:
        restored_state(index, restored).verify_rest()
    assert found.value.code is ErrorCode.CHECKPOINT_CORRUPT
    assert (found.value.path, found.value.problem) == (file.path, "missing")
    made, parts = found.value.__reduce__()
    assert vars(made(*parts)) == vars(found.value)
