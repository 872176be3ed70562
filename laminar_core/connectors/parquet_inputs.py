"""Where a Parquet source finds its files: a path or a pattern, or a prefix of a bucket.

A file of a bucket is named ``s3://bucket/key``, without the parameters of the URI, so that these
may change between runs.
"""

import re
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from laminar_core.connectors.files.arrow_file import ArrowFile
from laminar_core.connectors.files.places import FileStat, Place, counts, place_at
from laminar_core.connectors.locations import is_bucket
from laminar_core.connectors.parquet_files import is_of_input, list_files, name_below
from laminar_core.errors import ConfigurationError, ErrorCode

_PART = re.compile(r"(?!\.{1,2}(/|$))[^/]+")


class ParquetInput(Protocol):
    """Files of one source, by the name that a checkpoint has of them."""

    def files(self) -> list[str]:
        """Return the files, sorted by name.

        Raises:
            ConfigurationError: there are none.
            StorageUnavailable: a bucket does not answer.
        """
        ...

    def is_of_input(self, file: str) -> bool:
        """Return whether ``files`` could have returned this name."""
        ...

    def name_below(self, file: str) -> str:
        """Return the name without the path of the source."""
        ...

    def size_bytes(self, file: str) -> int:
        """Return the length of a file.

        Raises:
            FileNotFoundError: it is gone.
            StorageUnavailable: a bucket does not answer.
        """
        ...

    def readable(self, file: str) -> Path | pa.PythonFile:
        """Return a file for Arrow; all reads are of one version of it.

        Raises:
            FileNotFoundError: it is gone.
            StorageUnavailable: a bucket does not answer.
        """
        ...


class LocalInput:
    """See ``ParquetInput``: one file, a directory or a pattern."""

    def __init__(self, path: str) -> None:
        self._path = path

    def files(self) -> list[str]:
        """See ``ParquetInput.files``."""
        return [str(file) for file in list_files(self._path)]

    def is_of_input(self, file: str) -> bool:
        """See ``ParquetInput.is_of_input``."""
        return is_of_input(self._path, file)

    def name_below(self, file: str) -> str:
        """See ``ParquetInput.name_below``."""
        return name_below(self._path, file)

    def size_bytes(self, file: str) -> int:
        """See ``ParquetInput.size_bytes``."""
        return Path(file).stat().st_size

    def readable(self, file: str) -> Path:
        """See ``ParquetInput.readable``."""
        return Path(file)


class BucketInput:
    """See ``ParquetInput``: all ``*.parquet`` below a prefix, or one object."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._prefix = uri.partition("?")[0].rstrip("/")
        self._place: Place | None = None
        self._found: dict[str, FileStat] = {}
        """Each file as it was found, by its name in checkpoints."""

    def files(self) -> list[str]:
        """See ``ParquetInput.files``."""
        self._found = {
            f"{self._prefix}/{found.name}": found
            for found in self._opened().files()
            if counts(found.name, "*.parquet")
        }
        if not self._found:
            raise ConfigurationError(
                ErrorCode.NO_SUCH_PATH,
                f"no *.parquet file below {self._prefix}: is it the right prefix?",
            )
        return sorted(self._found)

    def is_of_input(self, file: str) -> bool:
        """See ``ParquetInput.is_of_input``."""
        name = file.removeprefix(f"{self._prefix}/")
        return name != file and all(map(_PART.fullmatch, name.split("/")))

    def name_below(self, file: str) -> str:
        """See ``ParquetInput.name_below``."""
        return file.removeprefix(f"{self._prefix}/")

    def size_bytes(self, file: str) -> int:
        """See ``ParquetInput.size_bytes``."""
        return self._stat(file).size_bytes

    def readable(self, file: str) -> pa.PythonFile:
        """See ``ParquetInput.readable``. Each request asks for the version that was found."""
        found = self._stat(file)
        return pa.PythonFile(ArrowFile(self._opened().open(found), found.size_bytes), "r")

    def _stat(self, file: str) -> FileStat:
        """Return a file as it was when it was first looked at: it is verified, and then read."""
        if file not in self._found:
            found = self._opened().stat(self.name_below(file))
            if found is None:
                raise FileNotFoundError(file)
            self._found[file] = found
        return self._found[file]

    def _opened(self) -> Place:
        if self._place is None:
            self._place = place_at(self._uri)
        return self._place


def parquet_input(path: str) -> ParquetInput:
    """Return the files at a path, or below an ``s3://bucket/prefix?region=…`` URI.

    Raises:
        MissingExtraError: an ``s3://`` URI, and boto3 is not installed.
    """
    return BucketInput(path) if is_bucket(path) else LocalInput(path)
