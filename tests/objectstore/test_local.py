import errno
import multiprocessing
import os
import signal
from pathlib import Path
from shutil import rmtree

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.local import LocalObjectStore
from tests.objectstore.object_store_contract import ObjectStoreContract


@pytest.fixture
def objects(tmp_path):
    store = LocalObjectStore(tmp_path / "new" / "root")
    store.create()
    return store


def names_in(directory) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


def failing(error_number: int):
    """Stand in for a system call of a machine with a fault."""

    def fail(*_args, **_kwargs):
        raise OSError(error_number, os.strerror(error_number))

    return fail


class TestLocalObjectStore(ObjectStoreContract):
    def test_another_instance_sees_what_was_written(self, objects):
        objects.put("job/a", b"1")
        assert LocalObjectStore(objects.uri).get("job/a") == b"1"

    def test_a_relative_root_stays_where_it_was(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        objects = LocalObjectStore("store")
        monkeypatch.chdir("/")
        objects.create()
        objects.put("a", b"1")
        assert (tmp_path / "store" / "a").read_bytes() == b"1"

    def test_no_temporary_file_stays_behind(self, objects):
        objects.put("job/a", b"1")
        objects.put_if_absent("job/a", b"2")
        objects.put_if_absent("job/b", b"2")
        assert names_in(f"{objects.uri}/job") == ["a", "b"]

    def test_objects_are_readable_by_others_as_the_umask_says(self, objects):
        umask = os.umask(0o022)
        try:
            objects.put("a", b"1")
            objects.put_if_absent("b", b"1")
        finally:
            os.umask(umask)
        modes = [(Path(objects.uri) / key).stat().st_mode & 0o777 for key in "ab"]
        assert modes == [0o644, 0o644]

    def test_the_leftover_of_a_crash_is_not_shown(self, objects):
        objects.put("job/a", b"1")
        (Path(objects.uri) / "job" / ".host-1-1").write_bytes(b"half")
        assert objects.list("") == ["job/a"]
        assert objects.children("job/") == ["a"]

    def test_a_writer_killed_at_any_moment_leaves_whole_objects_or_none(self, tmp_path):
        """Goal: no torn object. Method: kill a process that creates large objects in a loop."""
        objects = LocalObjectStore(tmp_path)
        context = multiprocessing.get_context("fork")
        for round_number in range(3):
            process = context.Process(target=_write_for_ever, args=(tmp_path, round_number))
            process.start()
            while not objects.list(f"r{round_number}/"):
                assert process.is_alive()
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        assert {objects.size(key) for key in objects.list("")} == {1_000_000}

    def test_a_removed_folder_is_made_again(self, objects):
        """Its name counts as durable from before; it is not any more."""
        objects.put("job/deep/a", b"1")
        objects.delete("job/deep/a")
        assert names_in(objects.uri) == []
        objects.put("job/deep/a", b"2")
        assert objects.get("job/deep/a") == b"2"

    def test_a_folder_that_vanishes_while_it_is_made_is_made_again(self, objects, monkeypatch):
        made = Path.mkdir
        attempts = []

        def mkdir_that_lost_a_race(path: Path) -> None:
            attempts.append(path)
            if path.name == "shared" and attempts.count(path) == 1:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            made(path)

        monkeypatch.setattr(Path, "mkdir", mkdir_that_lost_a_race)
        objects.put("job/shared/a", b"x")
        assert objects.get("job/shared/a") == b"x"

    def test_a_file_where_a_folder_should_be_is_named(self, objects):
        objects.put("job/shared", b"a file")
        with pytest.raises(StorageUnavailable, match="shared"):
            objects.put("job/shared/a", b"x")

    def test_the_root_itself_is_never_removed(self, objects):
        objects.put("a", b"1")
        objects.delete("a")
        assert Path(objects.uri).is_dir()


class TestDurability:
    @pytest.fixture
    def synced(self, monkeypatch):
        """Paths in the order in which they were synced."""
        order: list[str] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            order.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        return order

    def test_new_folders_the_file_and_its_name_are_synced(self, tmp_path, synced):
        LocalObjectStore(tmp_path).put_if_absent("job/deep/a", b"1")
        names = [Path(path).relative_to(tmp_path.parent) for path in synced]
        here = Path(tmp_path.name)
        assert [names[0].parent, *names[1:]] == [
            here / "job" / "deep",
            here / "job" / "deep",
            here / "job",
            here,
        ]

    def test_the_file_is_synced_before_it_has_its_name(self, tmp_path, monkeypatch):
        named: list[bool] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            named.append((tmp_path / "job" / "a").exists())
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        LocalObjectStore(tmp_path).put_if_absent("job/a", b"1")
        assert named == [False, True, True]

    def test_in_a_known_folder_two_syncs_are_enough(self, tmp_path, synced):
        objects = LocalObjectStore(tmp_path)
        objects.put("job/a", b"1")
        synced.clear()
        objects.put("job/b", b"1")
        objects.put_if_absent("job/c", b"1")
        assert len(synced) == 4

    def test_a_folder_that_another_process_made_is_synced_once(self, tmp_path, synced):
        (tmp_path / "job").mkdir()
        objects = LocalObjectStore(tmp_path)
        objects.put("job/a", b"1")
        assert str(tmp_path) in synced

    def test_folders_of_an_object_that_is_already_there_are_synced(self, tmp_path, synced):
        """Its writer may have died before it synced them."""
        (tmp_path / "job" / "deep").mkdir(parents=True)
        (tmp_path / "job" / "deep" / "a").write_bytes(b"1")
        assert not LocalObjectStore(tmp_path).put_if_absent("job/deep/a", b"1")
        names = [Path(path).relative_to(tmp_path) for path in synced]
        assert names == [Path("job/deep"), Path("job"), Path()]

    def test_a_folder_that_vanished_is_synced_again(self, tmp_path, synced):
        objects = LocalObjectStore(tmp_path)
        objects.put("job/deep/a", b"1")
        rmtree(tmp_path / "job")
        synced.clear()
        objects.put("job/deep/a", b"1")
        assert str(tmp_path) in synced

    def test_what_failed_to_be_synced_is_synced_by_the_next_write(self, objects, monkeypatch):
        with monkeypatch.context() as patched:
            patched.setattr("laminar_core.objectstore.local._sync_directory", failing(errno.EIO))
            with pytest.raises(StorageUnavailable):
                objects.put("job/a", b"1")
        synced: list[Path] = []
        monkeypatch.setattr("laminar_core.objectstore.local._sync_directory", synced.append)
        objects.put("job/b", b"1")
        assert synced == [Path(objects.uri) / "job", Path(objects.uri)]

    def test_what_is_remembered_of_synced_folders_is_bounded(self, tmp_path, monkeypatch):
        monkeypatch.setattr("laminar_core.objectstore.local._SYNCED_MAX", 3)
        objects = LocalObjectStore(tmp_path)
        for number in range(10):
            objects.put(f"job/{number}/a", b"1")
            assert len(objects._synced) <= 3


class TestLostAnswers:
    def test_a_link_that_happened_and_was_reported_as_existing_is_won(self, objects, monkeypatch):
        """NFS: the request is executed, the reply is lost, the retry finds the name taken."""
        real = os.link

        def link(*args, **kwargs):
            real(*args, **kwargs)
            raise FileExistsError(errno.EEXIST, "File exists")

        monkeypatch.setattr(os, "link", link)
        assert objects.put_if_absent("a", b"mine")
        assert objects.get("a") == b"mine"

    def test_a_link_that_lost_against_another_writer_is_lost(self, objects, monkeypatch):
        real = os.link

        def link(source, target, **kwargs):
            Path(target).write_bytes(b"theirs")
            real(source, target, **kwargs)

        monkeypatch.setattr(os, "link", link)
        assert not objects.put_if_absent("a", b"mine")
        assert objects.get("a") == b"theirs"


class TestErrors:
    @pytest.mark.parametrize(
        ("number", "code", "advice"),
        [
            (errno.ENOSPC, ErrorCode.STORE_FULL, "free some space"),
            (errno.EDQUOT, ErrorCode.STORE_FULL, "free some space"),
            (errno.EROFS, ErrorCode.STORE_READ_ONLY, "give this user access"),
            (errno.EACCES, ErrorCode.STORE_READ_ONLY, "give this user access"),
            (errno.EIO, ErrorCode.STORE_IO, "check the disk"),
            (errno.ESTALE, ErrorCode.STORE_IO, "check the disk"),
        ],
    )
    @pytest.mark.parametrize("verb", ["put", "put_if_absent"])
    def test_trouble_becomes_one_line_with_path_and_advice(
        self, objects, monkeypatch, verb, number, code, advice
    ):
        monkeypatch.setattr(os, "fsync", failing(number))
        with pytest.raises(StorageUnavailable, match=advice) as caught:
            getattr(objects, verb)("job/a", b"1")
        assert caught.value.code is code
        assert objects.uri in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_full_disk_leaves_no_temporary_file(self, objects, monkeypatch):
        objects.put("job/a", b"1")
        monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
        for verb in (objects.put, objects.put_if_absent):
            with pytest.raises(StorageUnavailable):
                verb("job/b", b"1")
        assert names_in(f"{objects.uri}/job") == ["a"]

    def test_a_file_system_without_hard_links_is_refused(self, objects, monkeypatch):
        monkeypatch.setattr(os, "link", failing(errno.EPERM))
        with pytest.raises(ConfigurationError, match="without hard links") as caught:
            objects.put_if_absent("a", b"1")
        assert caught.value.code is ErrorCode.STORE_IGNORES_CONDITIONS
        assert names_in(objects.uri) == []

    def test_a_file_where_the_root_should_be_is_named(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(StorageUnavailable, match="file"):
            LocalObjectStore(tmp_path / "file").put("a", b"1")

    def test_an_unreadable_object_is_not_an_absent_one(self, objects, monkeypatch):
        objects.put("a", b"1")
        monkeypatch.setattr(os, "open", failing(errno.EIO))
        with pytest.raises(StorageUnavailable, match="cannot read"):
            objects.get("a")


def _write_for_ever(root: Path, round_number: int) -> None:
    objects = LocalObjectStore(root)
    number = 0
    while True:
        objects.put_if_absent(f"r{round_number}/{number}", bytes(1_000_000))
        objects.put(f"r{round_number}/overwritten", bytes(1_000_000))
        number += 1


CALLS = {
    "put": lambda s: s.put("job/b", b"2"),
    "put_if_absent": lambda s: s.put_if_absent("job/b", b"2"),
    "get": lambda s: s.get("job/a"),
    "size": lambda s: s.size("job/a"),
    "sizes": lambda s: s.sizes("job/"),
    "list": lambda s: s.list("job/"),
    "children": lambda s: s.children("job/"),
    "delete": lambda s: s.delete("job/a"),
}
WRITES = ["put", "put_if_absent"]
READS = [verb for verb in CALLS if verb not in WRITES]


class TestRoot:
    """Whoever made a lost root anew would go on in an empty directory and hide the loss."""

    @pytest.fixture
    def root(self, tmp_path) -> Path:
        return tmp_path / "root"

    @pytest.fixture
    def begun(self, root) -> LocalObjectStore:
        store = LocalObjectStore(root)
        store.create()
        store.put("job/a", b"1")
        return store

    @pytest.mark.parametrize("verb", [*WRITES, *READS])
    def test_one_that_went_away_is_missed_and_not_made_anew(self, begun, root, verb):
        root.rename(root.with_name("elsewhere"))
        with pytest.raises(StorageUnavailable, match="mount it or put it back") as caught:
            CALLS[verb](begun)
        assert caught.value.code is ErrorCode.STORE_GONE
        assert not root.exists()
        root.with_name("elsewhere").rename(root)
        CALLS[verb](begun)

    @pytest.mark.parametrize("verb", WRITES)
    def test_a_write_does_not_begin_a_store(self, root, verb):
        with pytest.raises(StorageUnavailable, match="is not there"):
            CALLS[verb](LocalObjectStore(root))
        assert not root.exists()

    @pytest.mark.parametrize("verb", READS)
    def test_one_that_nobody_has_begun_is_empty(self, root, verb):
        assert not CALLS[verb](LocalObjectStore(root))

    @pytest.mark.parametrize("verb", READS)
    def test_one_that_was_begun_after_it_was_opened_is_missed_too(self, root, verb):
        early = LocalObjectStore(root)
        assert early.list("") == []
        LocalObjectStore(root).create()
        assert early.list("") == []
        root.rmdir()
        with pytest.raises(StorageUnavailable):
            CALLS[verb](early)

    def test_to_create_it_again_changes_nothing(self, begun):
        begun.create()
        assert begun.list("") == ["job/a"]
