"""Savepoints are copied whole, never half, verified, and deleted so that a crash does no harm."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.codec.arrow import decode_table
from laminar_core.errors import (
    CheckpointDeclined,
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    StorageUnavailable,
)
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import (
    ObjectStore,
    bucket_options,
    open_object_store,
    place_below,
)
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.savepoint import SavepointDeletion
from laminar_core.store import savepoints
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.savepoints import (
    FoundSavepoint,
    canonical,
    delete_savepoint,
    list_savepoints,
    read_savepoint,
    write_savepoint,
)
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.observed_store import ObservedStore, StoreCall
from tests.objectstore.s3_servers import BUCKET, client
from tests.records.manifests import subtask
from tests.store.join_states import write_join
from tests.store.stores import capture, claim, complete, open_job, with_inflight, write
from verification.crash_points import crash_at, crash_points

ANN = Actor("ann", reason="a test")
NOW_MS = 1_700_000_000_000
GOLDEN = Path(__file__).parent.parent / "golden/savepoint_v1"


def completed(store: CheckpointStore | None = None) -> tuple[CheckpointStore, CheckpointManifest]:
    store = store or open_job()
    return store, complete(store, 1, claim(store))


def contents(objects: ObjectStore) -> dict[str, bytes | None]:
    return {key: objects.get(key) for key in objects.list("")}


def incremental(store: CheckpointStore, split: int) -> CheckpointManifest:
    """Return the rows in two segments that only this checkpoint names."""
    generation = claim(store)
    written = write(store, 1, generation, KEYED.slice(0, split))
    entries = [
        subtask("window", index).model_copy(
            update={
                "segments": (
                    written.subtasks[index].segments[0],
                    store.parts.write_state(
                        CheckpointId(1), "window", index, KEYED.slice(split), part=1
                    ),
                )
            }
        )
        for index in (0, 1)
    ]
    return written.model_copy(update={"subtasks": (*entries, *written.subtasks[2:])})


KEYED = pa.table(
    {
        "key_group": pa.array([3, 1, 2, 1, 3, 1], pa.int32()),
        "key": ["c", "b", "a", "a", "b", None],
        "values": [[1], [2], None, [4], [5], [6]],
        "sum": [1.5, float("nan"), 2.0, None, 4.0, 5.0],
    }
)


# --- writing ------------------------------------------------------------------------------------


def test_a_savepoint_is_whole_and_says_where_it_comes_from():
    store, manifest = completed()
    target = MemoryObjectStore()
    record = write_savepoint(store, manifest, target, ANN, NOW_MS)
    found = read_savepoint(target)
    assert found.record == record
    assert found.verify().problem is None
    assert (record.origin.job, record.origin.checkpoint_id) == ("payments", 1)
    assert {file.path for file in record.cut().files()} | {"savepoint.json"} == set(target.list(""))
    assert (record.actor, record.reason, record.canonical) == ("ann", "a test", True)


def test_what_was_in_flight_is_part_of_it():
    store = open_job()
    generation = claim(store)
    written = write(store, 1, generation)
    manifest = with_inflight(written, capture(store, 1))
    store.manifests.publish(manifest)
    target = MemoryObjectStore()
    cut = write_savepoint(store, manifest, target, ANN, NOW_MS).cut()
    assert [e.path for e in cut.inflight_data] == ["operators/inflight_0.buf"]
    assert cut.inflight_files == tuple(
        file.model_copy(update={"path": "operators/inflight_0.buf"})
        for file in manifest.inflight_files
    )
    assert read_savepoint(target).verify().problem is None


@pytest.mark.parametrize("split", [1, 3, 5])
def test_equal_state_gives_equal_bytes_however_it_was_kept(split):
    whole, parts = open_job(), open_job()
    first, second = MemoryObjectStore(), MemoryObjectStore()
    write_savepoint(whole, write(whole, 1, claim(whole), KEYED), first, ANN, NOW_MS)
    write_savepoint(parts, incremental(parts, split), second, ANN, NOW_MS)
    for key in first.list("operators/"):
        assert first.get(key) == second.get(key)
    assert first.list("operators/") == second.list("operators/")


def test_the_order_of_rows_is_that_of_key_groups_and_then_of_the_rows():
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4], [4, 2, 0, 5, 1, 3]):
        sorted_rows = canonical(KEYED.take(pa.array(order)))
        assert sorted_rows.column("key_group").to_pylist() == [1, 1, 1, 2, 3, 3]
        assert sorted_rows.column("key").to_pylist() == ["a", "b", None, "a", "b", "c"]
        assert sorted_rows.column("key").num_chunks == 1


def test_rows_without_a_key_keep_their_order():
    splits = pa.table({"split_id": [3, 1, 2]})
    assert canonical(splits).to_pylist() == splits.to_pylist()


def test_rows_of_a_sink_keep_their_order_whatever_their_columns_are_called():
    store = open_job()
    manifest = write(store, 1, claim(store))
    rows = pa.table({"key_group": [3, 1, 2]})
    segment = store.parts.write_state(CheckpointId(1), "sink", 0, rows, is_keyed=False)
    entry = manifest.subtasks[2].model_copy(update={"segments": (segment,)})
    changed = manifest.model_copy(
        update={"subtasks": (*manifest.subtasks[:2], entry, manifest.subtasks[3])}
    )
    target = MemoryObjectStore()
    write_savepoint(store, changed, target, ANN, NOW_MS)
    assert decode_table(target.get("operators/sink/state_0.seg")).equals(rows)


def test_state_that_others_name_too_is_copied_and_is_not_canonical():
    store = open_job()
    generation = claim(store)
    written = write(store, 1, generation)
    shared = store.parts.write_shared("window", generation, 0, 1, KEYED)
    entry = written.subtasks[0].model_copy(update={"segments": (shared,)})
    manifest = written.model_copy(update={"subtasks": (entry, *written.subtasks[1:])})
    target = MemoryObjectStore()
    record = write_savepoint(store, manifest, target, ANN, NOW_MS)
    assert not record.canonical
    copy = record.cut().subtasks[0].segments[0]
    assert (copy.path, copy.sha256) == ("operators/window/state_0.seg", shared.sha256)


def test_large_state_is_sorted_file_by_file(monkeypatch):
    monkeypatch.setattr(savepoints, "CANONICAL_BYTES_MAX", 10)
    store = open_job()
    record = write_savepoint(store, incremental(store, 3), MemoryObjectStore(), ANN, NOW_MS)
    assert not record.canonical
    names = [segment.path for segment in record.cut().subtasks[0].segments]
    assert names == ["operators/window/state_0.seg", "operators/window/state_0_1.seg"]


def test_a_place_where_something_is_gets_no_savepoint():
    store, manifest = completed()
    target = MemoryObjectStore()
    target.put("notes.txt", b"mine")
    with pytest.raises(ConfigurationError, match=r"is not empty \(notes.txt\)") as caught:
        write_savepoint(store, manifest, target, ANN, NOW_MS)
    assert caught.value.code is ErrorCode.TARGET_NOT_EMPTY


def test_a_copy_that_is_broken_off_is_no_savepoint_and_gets_none():
    store, manifest = completed()
    target = MemoryObjectStore()
    answers = iter([False, True])
    with pytest.raises(CheckpointDeclined):
        write_savepoint(store, manifest, target, ANN, NOW_MS, lambda: next(answers))
    assert len(target.list("")) == 1
    with pytest.raises(ConfigurationError, match="its copy was interrupted"):
        read_savepoint(target)
    with pytest.raises(ConfigurationError, match="is not empty"):
        write_savepoint(store, manifest, target, ANN, NOW_MS)


def test_wherever_a_copy_dies_there_is_a_whole_savepoint_or_none():
    store, manifest = completed()

    def copy(disk: ObjectStore) -> None:
        write_savepoint(store, manifest, disk, ANN, NOW_MS)

    points = crash_points(copy, SimulatedDisk())
    assert len(points) > 8
    for point in points:
        disk = SimulatedDisk()
        crash_at(point, copy, disk)
        try:
            found = read_savepoint(disk)
        except ConfigurationError:
            continue
        assert found.verify().problem is None


def test_a_damaged_checkpoint_makes_no_savepoint():
    store, manifest = completed()
    store.objects.put(store.paths.absolute(manifest.files()[0].path), b"rot")
    target = MemoryObjectStore()
    with pytest.raises(CorruptCheckpointError, match="has 3 bytes"):
        write_savepoint(store, manifest, target, ANN, NOW_MS)
    assert target.get("savepoint.json") is None


# --- reading ------------------------------------------------------------------------------------


def test_nothing_is_no_savepoint(tmp_path):
    with pytest.raises(ConfigurationError, match="there is nothing at") as caught:
        read_savepoint(LocalObjectStore(tmp_path / "nowhere"))
    assert caught.value.code is ErrorCode.NO_SUCH_SAVEPOINT
    assert not (tmp_path / "nowhere").exists()


def test_damage_is_found_in_every_part():
    store, manifest = completed()
    target = MemoryObjectStore()
    write_savepoint(store, manifest, target, ANN, NOW_MS)
    for key in target.list("operators/"):
        data = target.get(key) or b""
        target.put(key, data[:-1] + bytes([data[-1] ^ 1]))
        assert key in (read_savepoint(target).verify().problem or "")
        target.put(key, data)
    target.put("savepoint.json", b"{}")
    with pytest.raises(CorruptCheckpointError):
        read_savepoint(target)


def test_savepoints_in_a_folder_are_listed_with_what_is_wrong_with_them(tmp_path):
    store, manifest = completed()
    for name in ("a", "b"):
        write_savepoint(store, manifest, LocalObjectStore(tmp_path / name), ANN, NOW_MS)
    (tmp_path / "b/savepoint.json").write_text("rot")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("mine")
    listed = dict(list_savepoints(str(tmp_path)))
    assert list(listed) == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert isinstance(listed[f"{tmp_path}/b"], str)
    assert list(dict(list_savepoints(f"{tmp_path}/a"))) == [f"{tmp_path}/a"]


NAMES = ["2026-11-30T12:00", "50%", "a%20b", "before upgrade", "no#1", "v=2", "what?", "ü"]


def test_savepoints_in_folders_with_any_name_are_listed(tmp_path):
    store, manifest = completed()
    for name in NAMES:
        write_savepoint(store, manifest, LocalObjectStore(tmp_path / name), ANN, NOW_MS)
    (tmp_path / "latest").symlink_to("v=2")
    listed = dict(list_savepoints(str(tmp_path)))
    assert list(listed) == [f"{tmp_path}/{name}" for name in sorted([*NAMES, "latest"])]
    assert all(isinstance(found, FoundSavepoint) for found in listed.values())


@pytest.mark.parametrize("code", [ErrorCode.STORE_READ_ONLY, ErrorCode.STORE_IO])
def test_a_folder_that_may_not_be_read_does_not_hide_the_others(tmp_path, monkeypatch, code):
    store, manifest = completed()
    write_savepoint(store, manifest, LocalObjectStore(tmp_path / "a"), ANN, NOW_MS)
    (tmp_path / "private").mkdir()

    def opened(uri: str) -> ObjectStore:
        if uri.endswith("private"):
            raise StorageUnavailable(code, "cannot list it")
        return open_object_store(uri)

    monkeypatch.setattr(savepoints, "open_object_store", opened)
    whole, private = dict(list_savepoints(str(tmp_path))).values()
    assert isinstance(whole, FoundSavepoint)
    assert private == "cannot list it"


@pytest.mark.parametrize("name", [".DS_Store", ".snapshot", "lost+found"])
def test_what_systems_put_into_every_place_leaves_it_empty(tmp_path, name: str):
    (tmp_path / name).mkdir()
    store, manifest = completed()
    write_savepoint(store, manifest, LocalObjectStore(tmp_path), ANN, NOW_MS)
    assert [place for place, _ in list_savepoints(str(tmp_path))] == [str(tmp_path)]


@pytest.mark.parametrize("name", ["my report (1).pdf", "a b/", "latest"])
def test_what_others_put_into_a_place_makes_it_not_empty(tmp_path, name: str):
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    elif name == "latest":
        (tmp_path / name).symlink_to("nowhere")
    else:
        (tmp_path / name).touch()
    store, manifest = completed()
    with pytest.raises(ConfigurationError, match="is not empty") as refused:
        write_savepoint(store, manifest, LocalObjectStore(tmp_path), ANN, NOW_MS)
    assert refused.value.code is ErrorCode.TARGET_NOT_EMPTY


def test_folders_of_others_in_a_bucket_do_not_disturb_the_list(s3_server):
    store, manifest = completed()
    folder, _, settings = s3_server.uri().partition("?")
    places = [place_below(f"{folder}?{settings}", name) for name in NAMES]
    for place in places:
        write_savepoint(store, manifest, open_object_store(place), ANN, NOW_MS)
    prefix = bucket_options(folder).prefix
    for name in ("report (1)/x", "/x", "../x", "./x"):
        client(s3_server.endpoint).put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=b"x")
    assert list(dict(list_savepoints(f"{folder}?{settings}"))) == places


def test_a_bucket_holds_savepoints_as_a_directory_does(s3_server):
    store, manifest = completed()
    folder, _, settings = s3_server.uri().partition("?")
    places = [f"{folder}/{name}?{settings}" for name in ("a", "b")]
    for place in places:
        write_savepoint(store, manifest, open_object_store(place), ANN, NOW_MS)
    listed = dict(list_savepoints(f"{folder}?{settings}"))
    assert list(listed) == places
    found = listed[places[0]]
    assert isinstance(found, FoundSavepoint)
    assert found.verify().problem is None
    delete_savepoint(found.objects, deletion_of(found.objects))
    assert list(dict(list_savepoints(f"{folder}?{settings}"))) == places[1:]


def test_a_place_that_is_replaced_while_it_is_written_to_is_reported():
    """Goal: no savepoint counts of which a part lies in the directory that was there before."""
    moment = told = 0
    while True:
        moment += 1
        store, manifest = completed()
        disk, calls = SimulatedDisk(), []

        def observe(seen: StoreCall, disk=disk, calls=calls, moment=moment) -> None:
            calls.append(seen)
            if len(calls) == moment:
                disk.unmount()

        target = ObservedStore(disk, "me", observe)
        try:
            write_savepoint(store, manifest, target, ANN, NOW_MS)
        except (StorageUnavailable, CorruptCheckpointError):
            told += 1
            continue
        if len(calls) < moment:
            break  # Every moment was tried.
        if moment == len(calls):
            disk.mount()  # It was whole, and went away afterwards.
        assert read_savepoint(disk).verify().problem is None
    assert told > 10


def test_a_directory_that_was_copied_elsewhere_is_the_same_savepoint(tmp_path):
    store, manifest = completed()
    record = write_savepoint(store, manifest, LocalObjectStore(tmp_path / "a"), ANN, NOW_MS)
    shutil.copytree(tmp_path / "a", tmp_path / "far/b")
    found = read_savepoint(LocalObjectStore(tmp_path / "far/b"))
    assert found.record == record
    assert found.verify().problem is None


# --- deleting -----------------------------------------------------------------------------------


def deletion_of(target: ObjectStore) -> SavepointDeletion:
    sha256 = read_savepoint(target).sha256
    return SavepointDeletion(job="payments", generation=2, savepoint_sha256=sha256)


def test_wherever_a_deletion_dies_nobody_takes_the_rest_for_a_savepoint_and_it_can_be_ended():
    store, manifest = completed()
    disk = SimulatedDisk()
    write_savepoint(store, manifest, disk, ANN, NOW_MS)
    deletion = deletion_of(disk)

    def delete(objects: ObjectStore) -> None:
        delete_savepoint(objects, deletion)

    points = crash_points(delete, disk)
    assert len(points) > 8
    for point in points:
        left = disk.copy()
        crash_at(point, delete, left)
        if contents(left) != contents(disk):
            with pytest.raises(ConfigurationError, match=r"claimed by a job|there is nothing"):
                read_savepoint(left)
        delete(left)
        assert left.list("") == []


def test_another_savepoint_in_the_same_place_is_left_alone():
    store, manifest = completed()
    target = MemoryObjectStore()
    write_savepoint(store, manifest, target, ANN, NOW_MS)
    other = deletion_of(target).model_copy(update={"savepoint_sha256": "0" * 64})
    before = contents(target)
    delete_savepoint(target, other)
    assert contents(target) == before


# --- for ever -----------------------------------------------------------------------------------


def test_the_first_format_is_read_for_ever():
    """``tests/simulated/test_savepoints.py`` restores it."""
    found = read_savepoint(LocalObjectStore(GOLDEN))
    assert found.verify().problem is None
    assert found.record.canonical
    rows = [entry.row_count for entry in found.record.cut().subtasks]
    assert sum(rows) > 0


@pytest.mark.parametrize("bytes_max", [10, 1 << 20])
def test_tables_of_an_operator_have_files_of_their_own(bytes_max, monkeypatch):
    monkeypatch.setattr(savepoints, "CANONICAL_BYTES_MAX", bytes_max)
    store, target = open_job(), MemoryObjectStore()
    manifest = write_join(store, 1, {"a": (1, 5)}, {"a": "x"}, expired_us=3)
    record = write_savepoint(store, manifest, target, ANN, NOW_MS)
    join = record.cut().subtasks[0]
    names = ["left", "left", "right"] if bytes_max == 10 else ["left", "right"]
    assert [segment.table for segment in join.segments] == names
    assert [segment.path for segment in join.segments] == [
        f"operators/join/state_0{part}.seg" for part in ("", "_1", "_2")[: len(names)]
    ]
    assert (join.expired_us, record.canonical) == ({"left": 3}, bytes_max > 10)
    assert [segment.newest_window_us for segment in join.segments if segment.table == "left"] == [
        5
    ] * names.count("left")
    assert read_savepoint(target).verify().problem is None
