"""Where files are: a directory, or a prefix of a bucket. Listed, looked at, and opened."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Protocol

from laminar_core.connectors.formats.line_blocks import BinaryFile
from laminar_core.connectors.locations import is_bucket
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.host.extras import needs_extra

_UNFINISHED = (".tmp", "._COPYING_", ".crdownload", ".part")
"""Endings of names that programs give to files while they write them."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file as a listing shows it.

    ``name`` is the path below the place, with ``/`` between its parts. ``version`` changes if the
    file does. ``arrived_us`` is when it came to its place, which ``modified_us`` need not be.
    """

    name: str
    size_bytes: int
    modified_us: int
    arrived_us: int
    version: str


class FileChangedError(Exception):
    """The file is not the one that was found; the message says how it differs."""


class OpenFile(BinaryFile, Protocol):
    """A file that is being read."""

    def check_unchanged(self) -> None:
        """Verify, at its end, that it is still the file that was opened.

        Raises:
            FileChangedError: it was written to.
        """
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Place(Protocol):
    """Files below one path. Every method raises StorageUnavailable if it does not answer."""

    whole_at_once: bool
    """Whether a file is complete as soon as it is listed."""

    def files(self, after: str | None = None) -> Iterator[FileStat]:
        """Yield the files that count, in any order; only names behind ``after``, if it is given.

        Raises:
            ConfigurationError: there is no such place.
        """
        ...

    def stat(self, name: str) -> FileStat | None:
        """Return one file, or None if it is gone."""
        ...

    def open(self, found: FileStat) -> OpenFile:
        """Open a file for reading from its start.

        Raises:
            FileNotFoundError: it is gone.
            FileChangedError: it is another one than ``found``.
        """
        ...


def place_at(path: str) -> Place:
    """Return the place at a path, or at an ``s3://bucket/prefix?region=…`` URI.

    Raises:
        ConfigurationError: a URI that is not supported.
        MissingExtraError: an ``s3://`` URI, and boto3 is not installed.
    """
    if is_bucket(path):
        with needs_extra("s3", "s3:// files"):  # Imported here, because boto3 starts slowly.
            from laminar_core.connectors.files.s3_place import S3Place  # noqa: PLC0415
        return S3Place(path)
    return LocalPlace(Path(path))


def counts(name: str, pattern: str) -> bool:
    """Return whether a file is input: neither hidden nor unfinished, and its name matches.

    The last part of the name is compared, or all parts if the pattern has more than one.

    >>> [counts(n, "*.json") for n in ("day=1/a.json", "_tmp/a.json", "a.json.tmp", "a.csv")]
    [True, False, False, False]
    >>> [counts(n, "day=*/**/*.json") for n in ("a.json", "day=1/a.json", "day=1/x/y/a.json")]
    [False, True, True]
    """
    parts = name.split("/")
    if any(part.startswith(("_", ".")) for part in parts) or name.endswith(_UNFINISHED):
        return False
    wanted = pattern.split("/")
    return fnmatchcase(parts[-1], pattern) if len(wanted) == 1 else _match(parts, wanted)


def is_utf8(name: str) -> bool:
    r"""Return whether a name that the file system gave is text; other bytes become surrogates.

    >>> is_utf8("caf\u00e9"), is_utf8(b"caf\xe9".decode(errors="surrogateescape"))
    (True, False)
    """
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def _match(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether each part matches its pattern; ``**`` takes any number of parts."""
    reached = {0}  # Patterns before which a match can stand, so that no ``**`` is tried twice.
    for part in parts:
        reached = _through(reached, wanted)
        reached = {
            at + (wanted[at] != "**")
            for at in reached
            if at < len(wanted) and (wanted[at] == "**" or fnmatchcase(part, wanted[at]))
        }
    return len(wanted) in _through(reached, wanted)


def _through(reached: set[int], wanted: Sequence[str]) -> set[int]:
    """Add the patterns behind each ``**``, which may also stand for no part."""
    for at, pattern in enumerate(wanted):
        if at in reached and pattern == "**":
            reached = reached | {at + 1}
    return reached


class LocalPlace:
    """A directory of a local or mounted file system, or a single file."""

    whole_at_once = False

    def __init__(self, path: Path) -> None:
        self._path = path

    def files(self, after: str | None = None) -> Iterator[FileStat]:
        """See ``Place.files``."""
        if self._path.is_file():
            found = _stat_of(self._path, self._path.name)
            yield from () if found is None else (found,)
            return
        if not self._path.is_dir():
            raise ConfigurationError(
                ErrorCode.NO_SUCH_PATH, f"no such file or directory: {self._path}"
            )
        for folder, folders, names in os.walk(self._path, onerror=_unavailable):
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
            above = Path(folder).relative_to(self._path)
            for file in names:
                name = (above / file).as_posix()
                if after is not None and name <= after:
                    continue
                found = _stat_of(Path(folder, file), name)
                if found is not None:
                    yield found

    def stat(self, name: str) -> FileStat | None:
        """See ``Place.stat``."""
        try:
            return _stat_of(self._file(name), name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _storage(error) from error

    def open(self, found: FileStat) -> "LocalFile":
        """See ``Place.open``."""
        try:
            path = self._file(found.name)
            return LocalFile(open(path, "rb", opener=_without_waiting), found)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _storage(error) from error

    def _file(self, name: str) -> Path:
        """Names come out of storage: one that leaves the directory is not opened."""
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise FileNotFoundError(name)
        return self._path if self._path.is_file() else self._path / name


class LocalFile:
    """An open file that notices when it is written to."""

    def __init__(self, file: BinaryIO, found: FileStat) -> None:
        self._file = file
        self._found = found
        try:
            self.check_unchanged()
        except FileChangedError:
            file.close()
            raise

    def read(self, size: int, /) -> bytes:
        """See ``BinaryFile.read``; nothing behind the length that was found."""
        return self._file.read(max(min(size, self._found.size_bytes - self._file.tell()), 0))

    def seek(self, position: int, /) -> int:
        """See ``BinaryFile.seek``."""
        return self._file.seek(position)

    def check_unchanged(self) -> None:
        """See ``OpenFile.check_unchanged``."""
        status = os.fstat(self._file.fileno())
        if status.st_size != self._found.size_bytes:
            raise FileChangedError(f"{status.st_size} bytes instead of {self._found.size_bytes}")
        if _version(status) != self._found.version:
            raise FileChangedError("it was written again, with the same length")

    def close(self) -> None:
        """See ``OpenFile.close``."""
        self._file.close()


def _stat_of(path: Path, name: str) -> FileStat | None:
    """Return a regular file, or None if it is something else or has just been deleted."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _storage(error) from error
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileStat(
        name=name,
        size_bytes=status.st_size,
        modified_us=status.st_mtime_ns // 1000,
        arrived_us=status.st_ctime_ns // 1000,
        version=_version(status),
    )


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a named pipe that has come to its place is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"


def _unavailable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # A directory that has just been deleted.
        raise _storage(error) from error


def _storage(error: OSError) -> StorageUnavailable:
    return StorageUnavailable(
        ErrorCode.STORE_IO, f"cannot read {error.filename}: {error.strerror or error}; try again"
    )
