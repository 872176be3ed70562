"""An unbounded queue: the newest batches wait on disk when memory has enough of them.

The output queue of a feedback edge must never hold its sender back, or the loop would wait for
itself (ERRATA 2.7). Batches go to disk in runs, one Arrow IPC stream each, and are read run by run,
so memory holds about two runs and the first ``memory_bytes``. Markers stay in memory, in their
places. The files have no name, so a killed worker leaves none behind.
"""

import tempfile
from collections import deque
from dataclasses import dataclass
from io import RawIOBase

import pyarrow as pa

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.link.wire import ArrowElement
from laminar_core.protocol.types import Batch

SPILL_MEMORY_BYTES = 16 * 1024 * 1024
"""Bytes of one channel's batches that wait in memory before any goes to disk."""

RUN_BYTES = 4 * 1024 * 1024
"""Written, and read back, in one piece."""

FILE_BYTES = 256 * 1024 * 1024
"""Then another file is begun; one that has been read to its end is given back to the disk."""


@dataclass(slots=True)
class _SpillFile:
    """A file of runs, one after the other."""

    file: RawIOBase
    size_bytes: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class _Run:
    """Elements on disk; None stands for the next batch of the stream."""

    elements: tuple[ArrowElement | None, ...]
    where: _SpillFile
    offset: int
    length: int


class SpillQueue:
    """FIFO of elements. ``close`` gives the disk back; nothing is taken after it."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        memory_bytes: int = SPILL_MEMORY_BYTES,
        run_bytes: int = RUN_BYTES,
        file_bytes: int = FILE_BYTES,
        folder: str | None = None,
    ) -> None:
        self._schema = schema
        self._memory_bytes = memory_bytes
        self._run_bytes = run_bytes
        self._file_bytes = file_bytes
        self._folder = folder
        self._front: deque[ArrowElement] = deque()
        self._front_bytes = 0
        self._runs: deque[_Run] = deque()
        self._back: list[ArrowElement] = []
        self._back_bytes = 0
        self._newest: _SpillFile | None = None
        self._length = 0
        self.spilled_bytes = 0
        """Bytes written to disk so far."""

    def __len__(self) -> int:
        return self._length

    @property
    def first(self) -> ArrowElement:
        """The element that ``take`` would return.

        Raises:
            StorageUnavailable: it cannot be read back.
        """
        self._refill()
        return self._front[0]

    def put(self, element: ArrowElement) -> None:
        """Append.

        Raises:
            StorageUnavailable: the disk is full.
        """
        self._length += 1
        size_bytes = element.data.nbytes if isinstance(element, Batch) else 0
        waits_behind = self._runs or self._back
        if not waits_behind and self._front_bytes + size_bytes <= self._memory_bytes:
            self._front.append(element)
            self._front_bytes += size_bytes
            return
        self._back.append(element)
        self._back_bytes += size_bytes
        if self._back_bytes >= self._run_bytes:
            self._spill()

    def take(self) -> ArrowElement:
        """Remove the first element.

        Raises:
            StorageUnavailable: it cannot be read back.
        """
        self._refill()
        element = self._front.popleft()
        if isinstance(element, Batch):
            self._front_bytes -= element.data.nbytes
        self._length -= 1
        return element

    def close(self) -> None:
        """Drop all elements."""
        for file in {id(run.where): run.where for run in self._runs}.values():
            file.file.close()
        if self._newest is not None:
            self._newest.file.close()
        self._front.clear()
        self._runs.clear()
        self._back.clear()
        self._newest = None
        self._length = self._front_bytes = self._back_bytes = 0

    # --- memory and disk ------------------------------------------------------------------------

    def _refill(self) -> None:
        """Make sure that the first element is in memory."""
        if self._front:
            return
        if self._runs:
            self._front.extend(self._read(self._runs.popleft()))
        else:
            self._front.extend(self._back)
            self._back.clear()
            self._back_bytes = 0
        batches = [element for element in self._front if isinstance(element, Batch)]
        self._front_bytes = sum(batch.data.nbytes for batch in batches)

    def _spill(self) -> None:
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, self._schema) as writer:
            for element in self._back:
                if isinstance(element, Batch):
                    writer.write_batch(element.data)
        data = stream.getvalue()
        try:
            where = self._file_with_room()
            _write_at(where.file, where.size_bytes, data)
        except OSError as error:
            raise self._failed("write", error) from error
        elements = tuple(None if isinstance(e, Batch) else e for e in self._back)
        self._runs.append(_Run(elements, where, where.size_bytes, data.size))
        where.size_bytes += data.size
        where.unread += 1
        self.spilled_bytes += data.size
        self._back.clear()
        self._back_bytes = 0

    def _file_with_room(self) -> _SpillFile:
        newest = self._newest
        if newest is None or newest.size_bytes >= self._file_bytes:
            opened = tempfile.TemporaryFile(  # noqa: SIM115 - as long as it has unread runs
                buffering=0, prefix="laminar-spill-", dir=self._folder
            )
            newest = self._newest = _SpillFile(opened)
        return newest

    def _read(self, run: _Run) -> list[ArrowElement]:
        where = run.where
        try:
            where.file.seek(run.offset)
            data = where.file.read(run.length) or b""
            batches = iter(pa.ipc.open_stream(data))
            found: list[ArrowElement] = [
                Batch(next(batches)) if e is None else e for e in run.elements
            ]
        except (OSError, pa.ArrowException, StopIteration) as error:
            raise self._failed("read", error) from error
        where.unread -= 1
        if not where.unread:
            self._give_back(where)
        return found

    def _give_back(self, where: _SpillFile) -> None:
        """A file that has been read to its end; the newest one is begun anew."""
        if where is self._newest:
            self._newest = None
        where.file.close()

    def _failed(self, what: str, error: Exception) -> StorageUnavailable:
        folder = self._folder or tempfile.gettempdir()
        reason = str(error).partition("\n")[0]
        return StorageUnavailable(
            ErrorCode.SPILL_FAILED,
            f"feedback of a loop could not be {'written to' if what == 'write' else 'read from'} "
            f"{folder} ({reason}): make room there, or set TMPDIR to a larger disk",
        )


def _write_at(file: RawIOBase, offset: int, data: pa.Buffer) -> None:
    """Write all of it; a disk that is nearly full takes a part, and refuses the next one."""
    file.seek(offset)
    left = memoryview(data)
    while left:
        left = left[file.write(left) or 0 :]
