"""Read a directory that others can write to: regular files only, and no links.

A pipe would keep its reader waiting, a device may never end, and a link can name any file of the
machine. Laminar writes none of them. Such a name counts as taken: it is listed and has a length,
but reading it is an error.
"""

import hashlib
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path

from laminar_core.errors import CorruptCheckpointError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.contract import other_length, too_large
from laminar_core.records.paths import is_key_part

HIDDEN = "."
"""Names of unfinished writes begin with it."""
_OF_THE_SYSTEM = "lost+found"
NO_OBJECT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

# Should a pipe or a device take the file's place after the first look, opening it must not wait.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_regular(path: Path, size_max: int) -> bytes | None:
    """Return the bytes of the file at ``path``; None if there is none, or a folder.

    Raises:
        CorruptCheckpointError: it is longer than ``size_max`` or no regular file.
        StorageUnavailable: it does not fit into the memory of this process.
    """
    with _opened(path, size_max) as found:
        if found is None:
            return None
        file, size_bytes = found
        return _read(file, path, size_bytes)


def read_range_of_regular(path: Path, start: int, stop: int, size_bytes: int) -> bytes | None:
    """Return a range of a file that has ``size_bytes`` bytes; None if there is none, or a folder.

    Raises:
        CorruptCheckpointError: it has another length, or is no regular file.
        StorageUnavailable: the range does not fit into the memory of this process.
    """
    with _opened(path, None) as found:
        if found is None:
            return None
        file, found_bytes = found
        if found_bytes != size_bytes:
            raise other_length(str(path), found_bytes, size_bytes)
        file.seek(start)
        return _read(file, path, stop - start)


def _read(file: BufferedReader, path: Path, size_bytes: int) -> bytes:
    try:
        return file.read(size_bytes)
    except MemoryError as error:
        raise StorageUnavailable(
            ErrorCode.STORE_IO,
            f"cannot read {path}: {size_bytes} bytes do not fit into the memory of this "
            "process; give it more",
        ) from error


def digest_of_regular(path: Path, size_max: int) -> str | None:
    """Return the SHA-256 of the file at ``path``, however long; None if there is none.

    Raises:
        CorruptCheckpointError: as ``read_regular``.
    """
    with _opened(path, size_max) as found:
        return None if found is None else hashlib.file_digest(found[0], "sha256").hexdigest()


@contextmanager
def _opened(path: Path, size_max: int | None) -> Generator[tuple[BufferedReader, int] | None]:
    """Open a regular file of at most ``size_max`` bytes; yield it with its length.

    ``size_max``: None leaves it to the caller to compare the length before it reads.
    """
    with ExitStack() as stack:
        try:
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                yield None
                return
            _require_regular(path, status)
            file = stack.enter_context(os.fdopen(os.open(path, _OPEN), "rb"))
        except NO_OBJECT:
            yield None
            return
        status = os.fstat(file.fileno())
        _require_regular(path, status)
        if size_max is not None and status.st_size > size_max:
            raise too_large(str(path), status.st_size, size_max)
        yield file, status.st_size


def size_of(path: Path) -> int | None:
    """Return the length of whatever is at ``path``; None for a folder or nothing."""
    try:
        status = path.lstat()
    except NO_OBJECT:
        return None
    return None if stat.S_ISDIR(status.st_mode) else status.st_size


def refuse_links(root: Path, folder: Path) -> None:
    """Make sure that ``folder`` is below ``root`` without a link in between; ``root`` may be one.

    Raises:
        CorruptCheckpointError: it is a link, or a folder above it is.
    """
    place = root
    for part in folder.relative_to(root).parts:
        place /= part
        try:
            mode = place.lstat().st_mode
        except NO_OBJECT:
            return
        if stat.S_ISLNK(mode):
            raise _no_file(place, "a link")


def is_folder(entry: "os.DirEntry[str]") -> bool:
    """Return whether a listing descends into the entry; a link to a folder does not count."""
    return entry.is_dir(follow_symlinks=False)


def visible(directory: Path | str) -> list["os.DirEntry[str]"]:
    """Return the entries that can be objects or folders; none if the directory does not exist.

    Unfinished writes are left out, and names that cannot be keys.
    """
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if is_key_part(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def names_in(directory: str) -> list[str]:
    """Return the names in the directory, also those that no object can have.

    Hidden ones are left out, such as unfinished writes and what file managers leave, and so is the
    folder that a file system makes in its root. Names of folders end with ``/``, and so do those
    of links to folders.
    """
    try:
        with os.scandir(directory) as entries:
            found = [entry.name for entry in entries]
            names = [n for n in found if not n.startswith(HIDDEN) and n != _OF_THE_SYSTEM]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(f"{n}/" if os.path.isdir(f"{directory}/{n}") else n for n in names)  # noqa: PTH112


def files_below(directory: Path, prefix: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yield everything below ``directory`` that is no folder, with its name after ``prefix``.

    It works on texts: path objects for the files of ten thousand checkpoints would cost more than
    reading their names and lengths.
    """
    folders: list[tuple[Path | str, str]] = [(directory, prefix)]
    while folders:
        folder, name = folders.pop()
        for entry in visible(folder):
            key = name + entry.name
            if is_folder(entry):
                folders.append((entry.path, f"{key}/"))
            else:
                yield key, entry


def size_of_entry(entry: "os.DirEntry[str]") -> int | None:
    """Return the length of a listed file; None if it was deleted since, or is a folder now."""
    try:
        status = entry.stat(follow_symlinks=False)
    except NO_OBJECT:
        return None
    return None if stat.S_ISDIR(status.st_mode) else status.st_size


def _require_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a link" if stat.S_ISLNK(status.st_mode) else "a pipe, a socket or a device"
        raise _no_file(path, kind)


def _no_file(path: Path, kind: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        ErrorCode.NOT_A_FILE,
        f"{path} is {kind}, which no store contains: put the file itself there, or remove it",
    )
