"""One partition as it is read: what was decoded and not returned yet, and the position behind it.

Pure: chunks of decoded rows go in, slices of rows come out, and ``position`` is always exactly
behind the rows that came out. No client is needed here.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows and letters between two positions, and the number of messages there."""

    rows: pa.RecordBatch
    letters: pa.RecordBatch | None
    messages: int


@dataclass(slots=True)
class Chunk:
    """Rows and letters of consecutive messages, decoded.

    Shapes: ``origins`` has the index of the message of each row; it never decreases. ``offsets``
    has the offset of each message. ``letters`` has the columns of ``letters_schema``.
    """

    rows: pa.RecordBatch
    origins: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    letters: pa.RecordBatch
    next_offset: int
    """Behind the last message, also if that was no row."""
    leader_epoch: int | None
    time_ms: int
    """The timestamp of the first message, to read partitions side by side."""
    first_row: int = 0
    """How many rows of the first message were returned before a restart."""
    taken: int = field(default=0, init=False)
    messages_taken: int = field(default=0, init=False)
    letters_taken: int = field(default=0, init=False)

    @property
    def is_spent(self) -> bool:
        """Whether all rows and letters were taken."""
        rows_left = self.rows.num_rows - self.taken
        return rows_left == 0 and self.letters_taken == self.letters.num_rows

    def take(self, rows_max: int) -> Taken:
        """Return the next rows, and the letters before the message that the rows end in."""
        rows = self.rows.slice(self.taken, rows_max)
        self.taken += rows.num_rows
        first = self.messages_taken
        is_all = self.taken == self.rows.num_rows
        self.messages_taken = len(self.offsets) if is_all else int(self.origins[self.taken])
        return Taken(rows, self._letters(first), self.messages_taken - first)

    def _letters(self, first: int) -> pa.RecordBatch | None:
        """Return the letters up to the messages that were taken, counted from ``first``."""
        if self.letters_taken == self.letters.num_rows:
            return None
        indexes = np.asarray(self.letters.column("index"))
        end = int(np.searchsorted(indexes, self.messages_taken))
        letters = self.letters.slice(self.letters_taken, end - self.letters_taken)
        counted = pa.array(indexes[self.letters_taken : end] - first)
        self.letters_taken = end
        return letters.set_column(0, letters.schema.field("index"), counted)


class SplitReading:
    """A split between the client and ``poll``."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.row = dict(row)
        self.split_id: int = row["split_id"]
        self.split: str = row["split"]
        self.topic: str = row["topic"]
        self.partition: int = row["partition"]
        self.end_offset: int | None = row["end_offset"]
        self.offset = int(row["offset"])
        """Where the returned rows end: the next message, or the one that ``next_row`` is in."""
        self.next_row: int = row["row"]
        """How many rows of the message at ``offset`` were returned."""
        self.leader_epoch: int | None = row["leader_epoch"]
        self.rows_read: int = row["rows_read"]
        self.done: bool = row["done"]
        self.caught_up = False
        """Whether the client has returned all that a reader can see now."""
        self.last_time_ms: int | None = None
        """The timestamp of the messages that were returned last, in milliseconds since 1970."""
        self.moved = False
        """Whether rows were returned between the last two calls of ``look``."""
        self._looked_at = (self.offset, self.next_row)
        self._pending: deque[Chunk] = deque()
        self._skip = (self.offset, self.next_row)

    @property
    def is_waiting(self) -> bool:
        """Whether rows may come at any moment, and none are here."""
        return not (self._pending or self.done or self.caught_up)

    @property
    def next_time_ms(self) -> int | None:
        """The timestamp of the next message that is here; None: none is."""
        return self._pending[0].time_ms if self._pending else None

    def look(self) -> None:
        """Note whether the split stands where it stood at the last call."""
        place = (self.offset, self.next_row)
        self.moved, self._looked_at = place != self._looked_at, place

    def add(self, chunk: Chunk) -> None:
        """Take decoded rows, behind those that are here."""
        offset, rows = self._skip
        if rows and len(chunk.offsets) and chunk.offsets[0] == offset:
            # Returned before a restart. If the message is gone meanwhile, so are its other rows.
            chunk.rows = chunk.rows.slice(rows)
            chunk.origins = chunk.origins[rows:]
            chunk.first_row = rows
        self._skip = (0, 0)
        self.caught_up = False
        self._pending.append(chunk)
        self._settle()

    def reach_end(self, offset: int) -> None:
        """Note that there is nothing more to see before ``offset`` now."""
        self.caught_up = True
        if self._pending:
            last = self._pending[-1]
            last.next_offset = max(last.next_offset, offset)
        else:
            self._pass(offset)

    def take(self, rows_max: int) -> Taken:
        """Return what comes next, a row or a letter at least.

        Only if ``next_time_ms`` says that there is something.
        """
        chunk = self._pending[0]
        self.last_time_ms = chunk.time_ms
        taken = chunk.take(rows_max)
        self.rows_read += taken.rows.num_rows
        if chunk.taken < chunk.rows.num_rows:
            self._stand_within(chunk)
        self._settle()
        return taken

    def position(self) -> dict[str, Any]:
        """Return the split's row of the table, behind the rows that were taken."""
        return self.row | {
            "offset": str(self.offset),
            "row": self.next_row,
            "rows_read": self.rows_read,
            "leader_epoch": self.leader_epoch,
            "done": self.done,
        }

    def _stand_within(self, chunk: Chunk) -> None:
        message = int(chunk.origins[chunk.taken])
        self.offset = int(chunk.offsets[message])
        first = int(np.searchsorted(chunk.origins, message))
        before = chunk.first_row if message == 0 else 0
        self.next_row = before + chunk.taken - first

    def _settle(self) -> None:
        """Go behind the chunks that have nothing left."""
        while self._pending and self._pending[0].is_spent:
            chunk = self._pending.popleft()
            if chunk.leader_epoch is not None:
                self.leader_epoch = chunk.leader_epoch
            self._pass(chunk.next_offset)

    def _pass(self, offset: int) -> None:
        if offset > self.offset:
            self.offset, self.next_row = offset, 0
        if self.end_offset is not None and self.offset >= self.end_offset:
            self.done = True
