"""Write the in-flight data of a worker: one file for each checkpoint, with a part for each queue.

Pieces are encoded as they come, and a part is finished when its queue is complete. When all
channels of the worker are, the parts are written one behind the other, while another thread
computes the digest of the file. Where that would be a long file, there are several: a thread copies
the bytes of the file that it writes, and this copy stays small however much is in flight.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain

from laminar_core.codec.envelope import Compression
from laminar_core.codec.inflight import Buffer, InflightEncoder
from laminar_core.errors import LaminarError
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.channel_entries import InflightEntry
from laminar_core.records.record import FileRef
from laminar_core.store.checkpoint_parts import CheckpointParts
from laminar_core.worker.inflight import Captured, Queue

FILE_BYTES_AIM = 64 << 20
"""A part that would make a file longer begins another one; a longer part has its own."""


@dataclass(frozen=True, slots=True)
class InflightWritten:
    """One file is durable, with these parts."""

    checkpoint_id: CheckpointId
    file: FileRef
    entries: tuple[InflightEntry, ...]


@dataclass(frozen=True, slots=True)
class InflightComplete:
    """Nothing more was captured; there are so many files."""

    checkpoint_id: CheckpointId
    file_count: int


@dataclass(frozen=True, slots=True)
class NotWritten:
    """The store did not take a part."""

    checkpoint_id: CheckpointId
    vertex_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotFinished:
    """A part could not be finished."""

    error: Exception


Result = InflightWritten | InflightComplete | NotWritten | NotFinished


@dataclass(slots=True)
class _Part:
    """The elements of one queue, and the vertex that it is of."""

    vertex_id: str
    queue: Queue
    encoder: InflightEncoder
    pieces: Sequence[Buffer] = ()
    sha256: str = ""
    """Both are set once the queue is complete."""

    def finish(self) -> None:
        """Set the bytes and their digest, unless that has been done."""
        if not self.pieces:
            self.pieces = self.encoder.finish()
            self.sha256 = _digest_of(self.pieces)

    def entry(self, file: FileRef, offset: int) -> InflightEntry:
        """Return the manifest entry for the part, which begins at this offset in the file."""
        size_bytes = sum(map(len, self.pieces))
        place = file.model_copy(update={"size_bytes": size_bytes, "sha256": self.sha256})
        return self.queue.entry(place, offset, self.encoder.event_count, self.encoder.row_count)


@dataclass(frozen=True, slots=True)
class _File:
    """Finished parts that are written one behind the other."""

    checkpoint_id: CheckpointId
    number: int
    """Counts the worker's files of the checkpoint from 0."""
    parts: Sequence[_Part]

    @property
    def pieces(self) -> Iterator[Buffer]:
        """The bytes of the file."""
        return chain.from_iterable(part.pieces for part in self.parts)

    def digest(self) -> str:
        """Compute the SHA-256 of the file."""
        return _digest_of(self.pieces)


class InflightWriter:
    """Encodes and writes in-flight data. One thread calls it; ``files`` writes, if there is one."""

    def __init__(
        self,
        parts: CheckpointParts,
        worker: int,
        put: Callable[[Result], None],
        discarded: Collection[CheckpointId],
        compression: Compression | None = None,
        files: Executor | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            parts: Where files are written.
            worker: The number in their names.
            put: Takes results, from any thread.
            discarded: Checkpoints that were given up; others add to it meanwhile.
            compression: Of the rows.
            files: Threads that write files; None: the calling thread does.
        """
        self._parts = parts
        self._worker = worker
        self._put = put
        self._discarded = discarded
        self._compression: Compression | None = compression
        self._files = files
        self._parts_of: dict[CheckpointId, dict[Queue, _Part]] = {}
        self._writing: dict[CheckpointId, list[Future[None]]] = {}

    def capture(self, vertex_id: str, queue: Queue, captured: Captured) -> None:
        """Add a piece to its queue's part."""
        if captured.checkpoint_id in self._discarded:
            return
        try:
            self._encode(vertex_id, queue, captured)
        except Exception as error:  # noqa: BLE001 - it is reported, and may end the generation
            self._put(_failed(captured.checkpoint_id, vertex_id, queue.operator_id, error))

    def complete(self, checkpoint_id: CheckpointId) -> None:
        """Write what was captured, because all channels of the worker are complete."""
        if checkpoint_id in self._discarded:
            return
        captured = self._parts_of.pop(checkpoint_id, {}).values()
        for part in captured:
            try:
                part.finish()
            except Exception as error:  # noqa: BLE001 - it is reported, as in capture
                self._put(_failed(checkpoint_id, part.vertex_id, part.queue.operator_id, error))
                return
        divided = list(_divided(captured))
        self.finish_others(checkpoint_id)
        self._put(InflightComplete(checkpoint_id, len(divided)))
        for number, parts in enumerate(divided):
            file = _File(checkpoint_id, number, parts)
            if self._files is None:
                self._write(file, file.digest)
                continue
            # In this order, or all threads might wait for digests that none of them computes.
            digest = self._files.submit(file.digest)
            writing = self._files.submit(self._write, file, digest.result)
            self._writing.setdefault(checkpoint_id, []).append(writing)

    def finish_others(self, checkpoint_id: CheckpointId) -> None:
        """Wait until no file of another checkpoint is being written; in any thread."""
        for other in [number for number in list(self._writing) if number != checkpoint_id]:
            wait(self._writing.get(other, ()))
            self._writing.pop(other, None)  # Only now: another thread may be about to wait.

    def forget(self, checkpoint_id: CheckpointId) -> None:
        """Drop what was captured for a checkpoint; return when none of it is being written."""
        wait(self._writing.pop(checkpoint_id, ()))
        self._parts_of.pop(checkpoint_id, None)

    def _encode(self, vertex_id: str, queue: Queue, captured: Captured) -> None:
        parts = self._parts_of.setdefault(captured.checkpoint_id, {})
        part = parts.get(queue)
        if part is None:
            encoder = InflightEncoder(queue.schema, queue.queue_id.number, self._compression)
            part = parts[queue] = _Part(vertex_id, queue, encoder)
        assert not part.pieces, "nothing follows the last piece of a queue"
        for element in captured.events:
            part.encoder.add(element)
        if captured.last:
            part.finish()

    def _write(self, file: _File, digest: Callable[[], str]) -> None:
        """Write one file; several may be written at a time."""
        if file.checkpoint_id in self._discarded:
            return
        try:
            written = self._written(file, digest)
        except Exception as error:  # noqa: BLE001 - it is reported, and may end the generation
            first = file.parts[0]
            failed = _failed(file.checkpoint_id, first.vertex_id, first.queue.operator_id, error)
            self._put(failed)
        else:
            self._put(written)

    def _written(self, file: _File, digest: Callable[[], str]) -> InflightWritten:
        whole = self._parts.write_inflight(
            file.checkpoint_id, self._worker, file.pieces, file.number, digest
        )
        entries: list[InflightEntry] = []
        for part in file.parts:
            entries.append(part.entry(whole, entries[-1].end if entries else 0))
        return InflightWritten(file.checkpoint_id, whole, tuple(entries))


def _digest_of(pieces: Iterable[Buffer]) -> str:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _divided(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Divide the parts into files that are no longer than they should be."""
    found: list[_Part] = []
    size_bytes = 0
    for part in parts:
        if found and size_bytes + part.encoder.size_bytes > FILE_BYTES_AIM:
            yield found
            found, size_bytes = [], 0
        found.append(part)
        size_bytes += part.encoder.size_bytes
    if found:
        yield found


def _failed(
    checkpoint_id: CheckpointId, vertex_id: str, operator_id: str, error: Exception
) -> Result:
    """Return what became of a file: the store's errors fail the checkpoint only."""
    if not isinstance(error, LaminarError):
        return NotFinished(error)
    return NotWritten(checkpoint_id, vertex_id, f"in-flight data of {operator_id}: {error}")
