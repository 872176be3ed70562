"""Which job is meant, and which of its checkpoints is the newest to go on from."""

import pytest

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    StorageUnavailable,
)
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.jobs import job_names, newest_manifest, open_job
from tests.store.stores import JOB, claim, complete, damage


@pytest.fixture
def store(tmp_path) -> CheckpointStore:
    LocalObjectStore(tmp_path).put("_probe/x", b"")
    store = CheckpointStore(LocalObjectStore(tmp_path), JOB)
    claim(store)
    return store


def test_the_only_job_need_not_be_named(store):
    uri = store.objects.uri
    assert open_job(uri, None).job == JOB
    assert open_job(uri, JOB).job == JOB


def test_there_must_be_one(store, tmp_path):
    uri = store.objects.uri
    with pytest.raises(ConfigurationError, match="has no job payment; its jobs: payments"):
        open_job(uri, "payment")
    LocalObjectStore(uri).put("clicks/generations/x", b"")
    with pytest.raises(ConfigurationError, match="the jobs clicks, payments: choose one with --j"):
        open_job(uri, None)
    with pytest.raises(ConfigurationError, match="choose one with option job"):
        open_job(uri, None, how="option job")
    with pytest.raises(ConfigurationError, match="has no jobs"):
        open_job(str(tmp_path / "new"), None)


def test_what_is_no_folder_of_a_job_is_no_job(store, tmp_path):
    """A file of somebody else, and folders whose names no job can have."""
    (tmp_path / "filler").write_bytes(b"x")
    objects = LocalObjectStore(tmp_path)
    objects.put("9/audit/x.json", b"")
    for stray in ("a.b", "-a", "x" * 129):
        objects.put(f"{stray}/checkpoints/x", b"")
    objects.put("holidays/checkpoints.txt", b"")
    objects.put("holidays/rome/x", b"")
    assert job_names(store.objects.uri) == ["9", JOB]
    with pytest.raises(ConfigurationError, match=r"has no job holidays; its jobs: 9, payments$"):
        open_job(store.objects.uri, "holidays")


def test_an_error_names_ten_jobs(tmp_path):
    for number in range(12):
        LocalObjectStore(tmp_path).put(f"job-{number:02}/generations/x", b"")
    with pytest.raises(ConfigurationError, match="job-08, job-09 and others: choose one"):
        open_job(str(tmp_path), None)


def test_a_folder_that_nobody_may_look_into_is_passed_over(store, monkeypatch):
    """As there are some in ``/tmp``; a job that is named is an error all the same."""
    LocalObjectStore(store.objects.uri).put("private/generations/x", b"")
    children = LocalObjectStore.children

    def guarded(self: LocalObjectStore, folder: str) -> list[str]:
        if folder == "private/":
            raise StorageUnavailable(ErrorCode.STORE_ACCESS_DENIED, "no")
        if folder == "broken/":
            raise StorageUnavailable(ErrorCode.STORE_IO, "no")
        return children(self, folder)

    monkeypatch.setattr(LocalObjectStore, "children", guarded)
    assert job_names(store.objects.uri) == [JOB]
    with pytest.raises(StorageUnavailable):
        open_job(store.objects.uri, "private")
    LocalObjectStore(store.objects.uri).put("broken/generations/x", b"")
    with pytest.raises(StorageUnavailable):
        job_names(store.objects.uri)


def test_the_newest_is_on_the_timeline(store):
    for number in (1, 2, 3):
        complete(store, number, 1)
    assert newest_manifest(store).checkpoint_id == 3
    claim(store, base=2)
    assert newest_manifest(store).checkpoint_id == 2


def test_without_checkpoints_there_is_none(store):
    with pytest.raises(ConfigurationError, match="has no completed checkpoint") as caught:
        newest_manifest(store)
    assert caught.value.code is ErrorCode.NO_SUCH_CHECKPOINT


def test_damage_is_not_passed_over(store):
    complete(store, 1, 1)
    complete(store, 2, 1)
    damage(store, store.paths.manifest(newest_manifest(store).checkpoint_id), "rotten")
    with pytest.raises(CorruptCheckpointError, match="0000000002/manifest"):
        newest_manifest(store)
