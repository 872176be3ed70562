"""Where tables of state are put: a shelf takes a table and gives a chunk, which reads it back.

A *state backend* is a kind of shelf and nothing more. Which tables there are, when they are merged
and what belongs to a snapshot is decided in one place for all backends (``panes``), so they cannot
differ in their results. A chunk never changes; it goes when nothing refers to it any more, so that
whoever pins it, a snapshot in the background for example, keeps it by holding on to it.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


class Chunk(Protocol):
    """A table that was put on a shelf."""

    @property
    def row_count(self) -> int:
        """Rows."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that it takes when it is read."""
        ...

    def read(self) -> pa.Table:
        """Return the table; safe to call from any thread.

        Raises:
            StorageUnavailable: it cannot be read back (WORKING_STATE).
        """
        ...


class Shelf(Protocol):
    """Where one operator subtask puts tables. Tables may be put from several threads."""

    @property
    def in_memory(self) -> bool:
        """Chunks are the tables themselves: nothing is gained by gathering rows first."""
        ...

    @property
    def gathered_bytes_max(self) -> int:
        """New rows that may wait in memory before they are put here, in bytes."""
        ...

    def put(self, start_us: int, first_key_group: int, table: pa.Table) -> Chunk:
        """Keep ``table``; neighbours in time and key groups are kept close to each other.

        Raises:
            StorageUnavailable: there is no room (WORKING_STATE).
        """
        ...


class StateBackend(Protocol):
    """The shelves of one worker."""

    def shelf(self, schema: pa.Schema) -> Shelf:
        """Make room for tables of ``schema``.

        Raises:
            StorageUnavailable: the working files cannot be created (WORKING_STATE).
        """
        ...

    def close(self) -> None:
        """Drop everything; chunks cannot be read any more."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class HeldTable:
    """A chunk in memory."""

    table: pa.Table

    @property
    def row_count(self) -> int:
        """Rows."""
        return self.table.num_rows

    @property
    def size_bytes(self) -> int:
        """Bytes, of slices only their part."""
        return self.table.nbytes

    def read(self) -> pa.Table:
        """Return it."""
        return self.table


class MemoryShelf:
    """Holds on to the tables."""

    in_memory = True
    gathered_bytes_max = 0

    def put(self, start_us: int, first_key_group: int, table: pa.Table) -> Chunk:
        """Nothing to do."""
        del start_us, first_key_group
        return HeldTable(table)


class MemoryBackend:
    """State in the memory of the worker, as columns: fast, and lost with it."""

    def shelf(self, schema: pa.Schema) -> Shelf:
        """One for everybody."""
        del schema
        return MemoryShelf()

    def close(self) -> None:
        """Nothing to do."""
