"""A store in a directory, on one machine or on a file system that all machines share.

Create-if-absent is ``link``: a complete and synced temporary file gets its final name, or does not
because the name is taken. Overwriting is ``rename``. A crash leaves at most a temporary file, which
no listing shows. NFS may perform a link, lose the answer, and report that the name exists; the link
count of the temporary file shows what happened (open(2), "O_EXCL").
"""

import errno
import os
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count, takewhile
from pathlib import Path
from typing import BinaryIO, TypeVar

from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError, StorageUnavailable
from laminar_core.host.durability import flush_to_disk
from laminar_core.objectstore.regular_files import (
    HIDDEN,
    NO_OBJECT,
    digest_of_regular,
    files_below,
    is_folder,
    read_range_of_regular,
    read_regular,
    refuse_links,
    size_of,
    size_of_entry,
    visible,
)
from laminar_core.records.limits import RECORD_BYTES_MAX
from laminar_core.records.paths import check_folder, check_key

T = TypeVar("T")

_TEMPORARY_NUMBERS = count(1)
_VANISHED_RETRIES = 100
_SYNCED_MAX = 4096
_FULL = {errno.ENOSPC, errno.EDQUOT}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
"""Errors of ``link`` on a file system that has none."""


class LocalObjectStore:
    """Objects as files below ``root``, a directory that only ``create`` makes.

    A root that vanished was unmounted, renamed or deleted. A process that recreated it would
    continue in an empty directory and hide that. So writes without a root fail, and so do reads
    once this object has seen the root. Before that, a store without a root is empty.

    Safe to use from several threads and processes. Every write is synced before it returns: the
    file before it gets its name, then the directory with that name, and once per process the
    directories above. These are synced together at the end, because a file system with a journal
    writes all of them out with the first.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).expanduser().resolve()
        self.uri = str(self._root)
        self._seen = self._root.is_dir()
        self._synced: set[Path] = set()
        self._lock = threading.Lock()

    def create(self) -> None:
        """See ``ObjectStore.create``."""
        with translated("create", self._root):
            _make_root(self._root)
        self._seen = True

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``."""
        path = self._path(key)
        with translated("read", path):
            return self._found(read_regular(path, size_max))

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        path = self._path(key)
        with translated("read", path):
            return self._found(read_range_of_regular(path, start, stop, size_bytes))

    def sha256(self, key: str, size_max: int) -> str | None:
        """See ``ObjectStore.sha256``."""
        path = self._path(key)
        with translated("read", path):
            return self._found(digest_of_regular(path, size_max))

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        path = self._path(key)
        with translated("write", path):
            temporary = self._write_temporary(path.parent, data)
            with _removed_on_error(temporary):
                temporary.replace(path)
            self._sync_names(path.parent)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``."""
        path = self._path(key)
        with translated("write", path):
            created = not os.path.lexists(path) and self._link_new(path, data)
            # Also somebody else's object counts only once its name is durable.
            self._sync_names(path.parent)
            return created

    def children(self, folder: str) -> list[str]:
        """See ``ObjectStore.children``."""
        top = self._inside(self._root / check_folder(folder))
        with translated("list", top):
            found = sorted(
                f"{entry.name}/" if is_folder(entry) else entry.name for entry in visible(top)
            )
            return self._found(found)

    def list(self, folder: str) -> list[str]:
        """See ``ObjectStore.list``."""
        top = self._inside(self._root / check_folder(folder))
        with translated("list", top):
            return self._found(sorted(key for key, _entry in files_below(top, folder)))

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        top = self._inside(self._root / check_folder(folder))
        found: dict[str, int] = {}
        with translated("list", top):
            for key, entry in files_below(top, folder):
                if (size_bytes := size_of_entry(entry)) is not None:
                    found[key] = size_bytes
            return self._found(found)

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``. Also removes folders that become empty."""
        path = self._path(key)
        with translated("delete", path):
            try:
                path.unlink()
            except NO_OBJECT:
                self._found(None)
                return
            _sync_if_there(self._remove_empty(path.parent))

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        path = self._path(key)
        with translated("read", path):
            return self._found(size_of(path))

    def _found(self, answer: T) -> T:
        """Return ``answer``; if it is empty, check that the store still exists.

        Raises:
            StorageUnavailable: the store was there, and is gone.
        """
        if answer or self._root.is_dir():
            self._seen = True
        elif self._seen:
            raise _gone(self._root)
        return answer

    def _path(self, key: str) -> Path:
        path = self._root / check_key(key)
        self._inside(path.parent)
        return path

    def _inside(self, folder: Path) -> Path:
        """Return ``folder`` unless a link leads out of the store to it; the root may be a link."""
        with translated("open", folder):
            refuse_links(self._root, folder)
        return folder

    def _link_new(self, path: Path, data: bytes | memoryview) -> bool:
        temporary = self._write_temporary(path.parent, data)
        try:
            return _link(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink()

    def _write_temporary(self, directory: Path, data: bytes | memoryview) -> Path:
        temporary, file = self._open_temporary(directory)
        with _removed_on_error(temporary), file:
            file.write(data)
            file.flush()
            flush_to_disk(file.fileno())
        return temporary

    def _open_temporary(self, directory: Path) -> tuple[Path, BinaryIO]:
        # A directory may be removed, empty, between being made and being used.
        for _ in range(_VANISHED_RETRIES):
            # What a dead process with the same id left is stepped over.
            name = f"{os.uname().nodename}-{os.getpid()}-{next(_TEMPORARY_NUMBERS)}"
            temporary = directory / f"{HIDDEN}{name}"
            with suppress(FileNotFoundError):
                self._make_directory(directory)
                with suppress(FileExistsError):
                    return temporary, temporary.open("xb")
        raise OSError(errno.EAGAIN, "the directory keeps vanishing", str(directory))

    def _make_directory(self, directory: Path) -> None:
        """Make ``directory`` if it is missing; its name is durable after ``_sync_names``."""
        if directory.is_dir():
            self._seen = True
            return
        if directory == self._root:
            raise _gone(directory)
        with self._lock:
            self._synced.discard(directory)
        self._make_directory(directory.parent)
        _mkdir(directory)

    def _sync_names(self, directory: Path) -> None:
        """Make durable the names in ``directory``, and every name from the root down to it.

        Whoever made one of these directories may have died before this step, hence also those that
        were there already.
        """
        above = [directory, *directory.parents]
        above = above[: above.index(self._root)]
        new = list(takewhile(lambda each: each not in self._synced, above))
        for each in (directory, *(made.parent for made in new)):
            _sync_if_there(each)
        with self._lock:
            for each in reversed(new):
                if len(self._synced) >= _SYNCED_MAX:
                    self._synced.clear()
                self._synced.add(each)

    def _remove_empty(self, directory: Path) -> Path:
        """Remove empty directories from here up to the root; returns the first that stays."""
        with suppress(OSError):
            while directory != self._root:
                directory.rmdir()
                with self._lock:
                    self._synced.discard(directory)
                directory = directory.parent
        return directory


def _gone(root: Path) -> StorageUnavailable:
    return StorageUnavailable(
        ErrorCode.STORE_GONE,
        f"the store {root} is not there: mount it or put it back; a job that is started for the "
        "first time makes it",
    )


def _link(temporary: Path, path: Path) -> bool:
    try:
        path.hardlink_to(temporary)
    except OSError as error:
        if temporary.stat().st_nlink > 1:
            return True
        if error.errno == errno.EEXIST:
            return False
        if error.errno in NO_HARD_LINKS:
            raise ConfigurationError(
                ErrorCode.STORE_IGNORES_CONDITIONS,
                f"{path.parent} is on a file system without hard links ({error.strerror}), so two "
                "drivers could own one job: use a local disk or NFS",
            ) from error
        raise
    return True


def _make_root(directory: Path) -> None:
    if not directory.is_dir():
        _make_root(directory.parent)
        _mkdir(directory)
        _sync_directory(directory.parent)


def _mkdir(directory: Path) -> None:
    """Create ``directory`` if it does not exist; its concurrent removal is no error here.

    ``Path.mkdir(exist_ok=True)`` is not enough: it looks a second time, and reports "File exists"
    if the directory that was in its way has vanished before that look.
    """
    try:
        directory.mkdir()
    except FileExistsError:
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(directory.stat().st_mode):
                raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flush_to_disk(descriptor)
    finally:
        os.close(descriptor)


def _sync_if_there(directory: Path) -> None:
    """Sync the directory, unless it was removed as empty after a deletion."""
    with suppress(FileNotFoundError):
        _sync_directory(directory)


@contextmanager
def _removed_on_error(temporary: Path) -> Generator[None]:
    try:
        yield
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def translated(verb: str, path: Path) -> Generator[None]:
    """Turn an error of the system into one with advice."""
    try:
        yield
    except LaminarError:
        raise
    except OSError as error:
        code, advice = _advice(error)
        raise StorageUnavailable(
            code, f"cannot {verb} {path}: {error.strerror or error}; {advice}"
        ) from error


def _advice(error: OSError) -> tuple[ErrorCode, str]:
    if error.errno in _FULL:
        return ErrorCode.STORE_FULL, "free some space or choose another store"
    if error.errno in _READ_ONLY:
        return ErrorCode.STORE_READ_ONLY, "give this user access to it or choose another store"
    return ErrorCode.STORE_IO, "check the disk or the mount, then start again"
