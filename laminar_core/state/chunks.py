"""Shelves and chunks: where tables of state are stored and read back.

A *state backend* is a kind of shelf and nothing more. ``panes`` decides for all backends which
tables exist, when they are merged, and which belong to a snapshot, so backends cannot differ in
their results. A chunk never changes and is deleted when it is no longer referenced. So a snapshot
in the background pins a chunk by holding a reference.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


class Chunk(Protocol):
    """A table that was put on a shelf."""

    @property
    def row_count(self) -> int:
        """Number of rows."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of memory needed to read it."""
        ...

    def read(self) -> pa.Table:
        """Return the table; safe to call from any thread.

        Raises:
            StorageUnavailable: it cannot be read back (WORKING_STATE).
        """
        ...


class Shelf(Protocol):
    """The storage of one operator subtask. Several threads may put tables."""

    @property
    def in_memory(self) -> bool:
        """Whether chunks are the tables themselves, so that gathering rows first gains nothing."""
        ...

    @property
    def gathered_bytes_max(self) -> int:
        """Bytes of new rows that may wait in memory before they are put."""
        ...

    def put(self, start_us: int, first_key_group: int, table: pa.Table) -> Chunk:
        """Keep ``table``; neighbours in time and key groups are kept close to each other.

        Raises:
            StorageUnavailable: there is no room (WORKING_STATE).
        """
        ...


class StateBackend(Protocol):
    """Creates the shelves of one worker."""

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
        """Number of rows."""
        return self.table.num_rows

    @property
    def size_bytes(self) -> int:
        """Bytes in memory; a slice counts only its own part."""
        return self.table.nbytes

    def read(self) -> pa.Table:
        """Return the table."""
        return self.table


class MemoryShelf:
    """A shelf that keeps tables in memory."""

    in_memory = True
    gathered_bytes_max = 0

    def put(self, start_us: int, first_key_group: int, table: pa.Table) -> Chunk:
        """Wrap the table, without copying it."""
        del start_us, first_key_group
        return HeldTable(table)


class MemoryBackend:
    """State in the memory of the worker, as columns: fast, and lost with it."""

    def shelf(self, schema: pa.Schema) -> Shelf:
        """Return a new shelf; all operators use the same kind."""
        del schema
        return MemoryShelf()

    def close(self) -> None:
        """Do nothing: memory needs no clean-up."""
