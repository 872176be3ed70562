"""The data of a small world: records that name their path and their number on it.

A record is ``Record("ab", 1)``: the second one from source ``a`` through operator ``b``. Channels
are FIFO, so the receiver of a path must see its numbers in order, each of them once. A gap is a
loss, a repeated number is a duplicate, and both show at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from laminar_core.connectors.base import SourceBatch, SourceReader
from laminar_core.link.wire import ArrowElement
from laminar_core.operators.base import Emitted, JsonValue, PendingSnapshot, Snapshot
from laminar_core.protocol.types import (
    Batch,
    CancelMarker,
    CheckpointBarrier,
    CheckpointId,
    EndOfInput,
    Idle,
    Watermark,
)
from laminar_core.state.splits import at_rows, numbered_splits

_SCHEMA = pa.schema([("path", pa.string()), ("number", pa.int64())])


_RECORDS: dict[int, "Record"] = {}
"""By the batch's address; ``batch_of`` keeps it alive."""


class ViolationError(Exception):
    """Something happened that must not happen in any order of events."""


class Record(NamedTuple):
    """One row."""

    path: str
    number: int

    def __str__(self) -> str:
        return f"{self.path}{self.number}"


@cache
def batch_of(record: Record) -> pa.RecordBatch:
    """Return the record as a batch of one row; equal records share one batch."""
    batch = pa.record_batch([[record.path], [record.number]], schema=_SCHEMA)
    _RECORDS[id(batch)] = record
    return batch


def record_of(batch: pa.RecordBatch) -> Record:
    """Return the record of such a batch."""
    known = _RECORDS.get(id(batch))
    return known or Record(batch.column(0)[0].as_py(), batch.column(1)[0].as_py())


def render(element: ArrowElement) -> str:
    """Return an element as text for a trace."""
    match element:
        case Batch(batch):
            return str(record_of(batch))
        case Watermark():
            return "watermark"
        case Idle():
            return "idle"
        case CheckpointBarrier():
            urgent = "unaligned " if element.unaligned else ""
            return f"{urgent}barrier {element.checkpoint_id}"
        case CancelMarker(checkpoint_id):
            return f"cancel {checkpoint_id}"
        case EndOfInput():
            return "end"
    return type(element).__name__.lower()


class CountingOperator:
    """Passes records on under a new path; its state is how many of each path it has seen."""

    def __init__(self, name: str, rename: Callable[[str], str]) -> None:
        self.counts: dict[str, int] = {}
        self._name = name
        self._rename = rename

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Count one record; the next of its path must follow.

        Raises:
            ViolationError: one is missing, or comes again.
        """
        path, number = record_of(batch)
        expected = self.counts.get(path, 0)
        if number != expected:
            what = "a duplicate" if number < expected else "a loss"
            raise ViolationError(
                f"{self._name} processes {path}{number}, expected was {path}{expected}: {what}"
            )
        self.counts[path] = expected + 1
        yield batch_of(Record(self._rename(path), number))

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: results do not depend on event time."""
        del watermark_us
        return ()

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the counts."""
        del checkpoint_id
        counts: dict[str, JsonValue] = {path: self.counts[path] for path in sorted(self.counts)}
        return lambda: Snapshot(properties=counts)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Continue from the counts."""
        for path, count in snapshots[0].properties.items():
            assert isinstance(count, int)
            self.counts[path] = count


class TimingOperator:
    """Passes records on, each followed by event time: the number of the next one."""

    def process(self, batch: pa.RecordBatch) -> Iterator[Emitted]:
        """Yield the record and the time."""
        yield batch
        yield Watermark(record_of(batch).number + 1)

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: no records are kept."""
        del watermark_us
        return ()

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Return an empty snapshot."""
        del checkpoint_id
        return Snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing."""


class MeetingOperator:
    """Counts what comes on several inputs, each with paths of its own, and no record is late."""

    def __init__(self, counting: CountingOperator, input_names: Sequence[str]) -> None:
        self.counting = counting
        self.watermark_us = 0
        self._input_names = input_names

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Count one record.

        Raises:
            ViolationError: it belongs to another input, or event time has passed it.
        """
        record = record_of(batch)
        if not record.path.startswith(self._input_names[index]):
            raise ViolationError(f"{record} is processed as if it came on input {index}")
        if record.number < self.watermark_us:
            raise ViolationError(f"{record} is late: event time is {self.watermark_us}")
        yield from self.counting.process(batch)

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Take the time."""
        self.watermark_us = watermark_us
        return ()

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the counts; time comes again with the first watermark."""
        return self.counting.snapshot(checkpoint_id)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Continue from the counts."""
        self.counting.restore(snapshots)


class NumberedReader(SourceReader):
    """A source of so many records, in order."""

    def __init__(self, path: str, row_count: int, next_row: int, *, ends: bool) -> None:
        self.next_row = next_row
        self._path = path
        self._row_count = row_count
        self._ends = ends

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next record."""
        del rows_max
        if self.next_row == self._row_count:
            return None
        self.next_row += 1
        return SourceBatch(batch_of(Record(self._path, self.next_row - 1)), split_id=0)

    @property
    def finished(self) -> bool:
        """Whether all records have been read."""
        return self._ends and self.next_row == self._row_count

    def position(self) -> pa.Table:
        """Return the one split."""
        return _position(self.next_row, self._row_count)

    def close(self) -> None:
        """Do nothing: no resources are open."""


@cache
def _position(next_row: int, row_count: int) -> pa.Table:
    return at_rows(numbered_splits(["0"], [row_count]), np.array([next_row]))


class StagingWriter:
    """A sink that pre-commits what came since the last cut."""

    def __init__(self) -> None:
        self.staged: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a record."""
        self.staged.append(str(record_of(batch)))

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Turn the staged records into a committable."""
        rows: list[JsonValue] = list[JsonValue](sorted(self.staged))
        self.staged = []
        staged: dict[str, JsonValue] = {"checkpoint": int(checkpoint_id), "rows": rows}
        committables = (staged,) if rows else ()
        return lambda: Snapshot(committables=committables)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: the committer handles pre-committed records."""

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return nothing."""
        return ()

    def close(self) -> None:
        """Do nothing: no resources are open."""
