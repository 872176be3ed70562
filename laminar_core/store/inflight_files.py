"""In-flight data of one checkpoint, read from files in which many channels have a part.

A part is read with one request for its bytes, and compared with its digest in the manifest. The
length of the whole file comes with the answer, so a file that was cut off or continued is found,
too. Who needs all parts of a file reads it once, and then the digest of the whole is compared.
"""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections import Counter
from collections.abc import Iterable
from threading import Lock

import pyarrow as pa

from laminar_core.codec.digest import sha256_hex
from laminar_core.codec.inflight import Expected, InflightElement, decode, schema_of
from laminar_core.errors import CorruptCheckpointError, ErrorCode, IncompatibleStateError
from laminar_core.objectstore.opening import ObjectStore, address
from laminar_core.records.channel_entries import InflightEntry
from laminar_core.records.paths import JobPaths
from laminar_core.records.record import FileRef
from laminar_core.store.verification import read_verified

KEPT_BYTES_MAX = 128 << 20
"""Bytes of files that were read whole and are kept until their last part was asked for."""


class InflightFiles:
    """Reads parts of in-flight files. Safe to use from several threads."""

    def __init__(self, objects: ObjectStore, paths: JobPaths, files: Iterable[FileRef]) -> None:
        self._objects = objects
        self._paths = paths
        self._files = {file.path: file for file in files}
        self._lock = Lock()
        self._due: Counter[str] = Counter()
        """Parts that will still be asked for, of files that are read whole."""
        self._kept: dict[str, bytes] = {}
        self.read_whole: set[str] = set()
        """Paths of the files that were read as a whole and are what was written."""

    def expect(self, entries: Iterable[InflightEntry]) -> None:
        """Say which parts will be read, each once: files that they fill are read as a whole."""
        wanted: Counter[str] = Counter()
        parts: Counter[str] = Counter()
        for entry in entries:
            wanted[entry.path] += entry.size_bytes
            parts[entry.path] += 1
        room = KEPT_BYTES_MAX
        for path, size_bytes in wanted.items():
            if size_bytes == self._files[path].size_bytes <= room:
                room -= size_bytes
                self._due[path] = parts[path]

    def read(self, entry: InflightEntry, schema: pa.Schema | None = None) -> list[InflightElement]:
        """Read the captured elements of one queue in order.

        Nothing is decoded before all is verified.

        Raises:
            CorruptCheckpointError: missing, not the bytes that were written, or not what the
                manifest says of it. Only the part that is asked for matters.
            IncompatibleStateError: its rows do not have ``schema``.
        """
        data = self._part(entry)
        expected = Expected(entry.input_id, entry.event_count, entry.row_count)
        try:
            return decode(data, schema, expected)
        except (CorruptCheckpointError, IncompatibleStateError) as error:
            raise type(error)(error.code, f"{self._where(entry)}: {error}") from error

    def schema(self, entry: InflightEntry) -> pa.Schema:
        """Return the columns of the rows that were captured in one queue.

        Raises:
            CorruptCheckpointError: missing, or not the bytes that were written.
        """
        return schema_of(self._part(entry))

    def _part(self, entry: InflightEntry) -> bytes | memoryview:
        """Return the bytes of a part, verified."""
        whole = self._whole(entry.path)
        data = self._range(entry) if whole is None else memoryview(whole)[entry.offset : entry.end]
        if sha256_hex(data) != entry.sha256:
            raise CorruptCheckpointError(
                ErrorCode.DIGEST_DIFFERS,
                f"{self._where(entry)}: not what was written (its sha256 differs)",
            )
        return data

    def _range(self, entry: InflightEntry) -> bytes:
        key, file = self._paths.absolute(entry.path), self._files[entry.path]
        data = self._objects.get_range(key, entry.offset, entry.end, file.size_bytes)
        if data is None:
            where = address(self._objects, key)
            raise CorruptCheckpointError(ErrorCode.OBJECT_MISSING, f"{where} is missing")
        return data

    def _whole(self, path: str) -> bytes | None:
        """Return the whole file if all of its parts are due, else None."""
        with self._lock:
            if not self._due[path]:
                return None
            self._due[path] -= 1
            if path not in self._kept:
                self._kept[path] = read_verified(self._objects, self._paths, self._files[path])
                self.read_whole.add(path)
            return self._kept[path] if self._due[path] else self._kept.pop(path)

    def _where(self, entry: InflightEntry) -> str:
        """Name the part: its file, and the channel that it is of."""
        where = address(self._objects, self._paths.absolute(entry.path))
        return f"{where}, bytes {entry.offset} to {entry.end} ({entry.channel})"
