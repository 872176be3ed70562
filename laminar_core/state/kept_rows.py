"""Rows of state as operators see them: a table in memory, or the same rows on a shelf in blocks.

Most operators hold rows in a few immutable parts, and beside them arrays of numbers by which rows
are found: hashes, times, marks. The arrays stay in memory. With a backend on disk, the rows go to
its shelf once too many bytes of them are in memory, the largest part first; small and new parts,
which are looked at most and merged soon, stay. Nothing else differs between backends: which parts
there are and when they are merged is decided by their sizes alone. So results and checkpoints are
the same.

A part on the shelf is read by block: only those that have one of the wanted rows, one at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.codec.arrow import empty_table
from laminar_core.codec.stable_hash import UInt64Array
from laminar_core.state.chunks import Chunk, MemoryShelf, Shelf

Halves = npt.NDArray[np.uint32]
"""The upper half of each row's hash."""

_SHORT_BITS, _HALF_BITS = 16, 32
TABLE_BYTES_MAX = 16 * 1024 * 1024
"""About the size of the tables of a snapshot."""
BLOCK_BYTES = 256 * 1024
"""About the size of a block: what is read for one row, if no other row is near."""


class Rows(Protocol):
    """Rows in a fixed order; a ``pa.Table`` is one."""

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take in memory, or would take."""
        ...

    def select(self, names: Sequence[str]) -> "Rows":
        """Return the rows with these columns only."""
        ...

    def take(self, positions: pa.Array) -> pa.Table:
        """Return the rows at these positions, in this order."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RowsOnShelf:
    """Rows in blocks on a shelf. ``starts``: the position of each block's first row, and the end.

    ``names``: the columns that are read; None: all.
    """

    blocks: Sequence[Chunk]
    starts: Integers
    nbytes: int
    schema: pa.Schema
    names: Sequence[str] | None = None

    def select(self, names: Sequence[str]) -> "RowsOnShelf":
        """Return the rows with these columns only; nothing is read yet."""
        return replace(self, names=names)

    def take(self, positions: pa.Array) -> pa.Table:
        """Read the blocks of these rows, each once, and return the rows in the order asked for."""
        empty = self._selected(empty_table(self.schema))
        return taken(positions.to_numpy(), self.starts, self._read, empty)

    def _read(self, number: int) -> pa.Table:
        return self._selected(self.blocks[number].read())

    def _selected(self, rows: pa.Table) -> pa.Table:
        return rows if self.names is None else rows.select(self.names)


def taken(
    wanted: Integers, starts: Integers, part: Callable[[int], Rows], empty: pa.Table
) -> pa.Table:
    """Return rows of several parts by their position in all of them, in the order asked for.

    ``starts``: the position of the first row of each part. ``part`` returns one of
    them. It is called once for each part that has a wanted row, and not for the others.
    """
    part_of = starts.searchsorted(wanted, "right") - 1
    order = part_of.argsort(kind="stable")
    part_of, ordered = part_of[order], wanted[order]
    changes = np.flatnonzero(part_of[1:] != part_of[:-1]) + 1
    tables = [empty]
    for first, stop in pairwise([0, *changes.tolist(), len(ordered)]):
        if first < stop:
            number = int(part_of[first])
            tables.append(part(number).take(pa.array(ordered[first:stop] - starts[number])))
    together = pa.concat_tables(tables)
    if (order[1:] > order[:-1]).all():
        return together
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return together.take(pa.array(place))


def hash_order(upper: Halves) -> Integers:
    """Return the order of rows by the upper half of their hash; equal ones keep their order.

    These are two passes over 16 bits each, which numpy does by counting.
    """
    low = np.argsort(upper.astype(np.uint16), kind="stable")
    high = (upper >> np.uint32(_SHORT_BITS)).astype(np.uint16)[low]
    return low[np.argsort(high, kind="stable")]


def merged_order(older: Halves, newer: Halves) -> Integers:
    """Return the order of ``older`` and then ``newer`` together, if each of them is sorted.

    Equal ones keep their order, as in ``hash_order``.
    """
    place = np.searchsorted(older, newer, "right") + np.arange(len(newer))
    is_older = np.ones(len(older) + len(newer), np.bool_)
    is_older[place] = False
    order = np.empty(len(is_older), np.int64)
    order[place] = np.arange(len(older), len(order))
    order[is_older] = np.arange(len(older))
    return order


def hash_ranges(size_bytes: int, max_parallelism: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of key groups for tables of about ``TABLE_BYTES_MAX``, as ranges of hashes.

    Shapes: the first upper half of a hash that is in the range, and the first one after it.
    """
    ranges = min(max(1, -(-size_bytes // TABLE_BYTES_MAX)), max_parallelism)
    bounds = [-(-max_parallelism * n // ranges) for n in range(ranges + 1)]
    return pairwise(-(-(bound << _HALF_BITS) // max_parallelism) for bound in bounds)


def groups_of(upper: Halves, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the key group of each upper half of a hash."""
    groups = (upper.astype(np.uint64) * np.uint64(max_parallelism)) >> np.uint64(_HALF_BITS)
    return groups.astype(np.int32)


class Room:
    """Where one table of state keeps the rows of its parts: in memory, or on the shelf."""

    def __init__(self, schema: pa.Schema, shelf: Shelf | None = None) -> None:
        self._schema = schema
        self._shelf: Shelf = MemoryShelf() if shelf is None else shelf

    def overfull(self, parts: Sequence[Rows]) -> list[int]:
        """Return the positions of the parts to put on the shelf, because memory has too many."""
        if self._shelf.in_memory:
            return []
        held = [(rows.nbytes, at) for at, rows in enumerate(parts) if is_held(rows)]
        total, most = sum(size for size, _ in held), self._shelf.gathered_bytes_max
        if total <= most:
            return []
        chosen: list[int] = []
        for size, at in sorted(held, reverse=True):
            if 2 * total <= most:
                break
            total -= size
            chosen.append(at)
        return chosen

    def put(self, rows: pa.Table, start_us: int, upper: Halves | None = None) -> list[Chunk]:
        """Put rows on the shelf in blocks, near others with such a time and such hashes.

        ``upper``: the upper half of the hash of each row, by which they are sorted.
        """
        size = rows_per_block([rows], rows.num_rows)
        return [
            self._shelf.put(
                start_us,
                0 if upper is None else int(upper[first]) >> _SHORT_BITS,
                rows.slice(first, size),
            )
            for first in range(0, rows.num_rows, size)
        ]

    def rows_in(self, blocks: Sequence[Chunk]) -> RowsOnShelf:
        """Return the rows that were put in these blocks."""
        starts = np.cumsum([0, *(block.row_count for block in blocks)], dtype=np.int64)
        size_bytes = sum(block.size_bytes for block in blocks)
        return RowsOnShelf(blocks, starts, size_bytes, self._schema)


def upper_halves(hashes: UInt64Array) -> Halves:
    """Return the upper half of each hash."""
    return (hashes >> np.uint64(_HALF_BITS)).astype(np.uint32)


def in_pieces(rows: Rows, positions: Integers, row_count: int) -> Iterator[pa.Table]:
    """Yield some of ``row_count`` rows: at once from memory, or about a block at a time."""
    size = max(1, len(positions)) if is_held(rows) else rows_per_block([rows], row_count)
    for start in range(0, len(positions), size):
        yield rows.take(pa.array(positions[start : start + size]))


def common_cuts(ordered: Sequence[np.ndarray], size: int) -> Iterator[list[slice]]:
    """Cut sorted arrays where the same value begins in all of them, about ``size`` values apart."""
    every = np.sort(np.concatenate(ordered))
    firsts = np.unique(every[::size])
    bounds = [np.append(np.searchsorted(one, firsts), len(one)) for one in ordered]
    for at in range(len(firsts)):
        yield [slice(bound[at], bound[at + 1]) for bound in bounds]


def is_held(rows: Rows) -> bool:
    """Whether the rows are a table in memory."""
    return isinstance(rows, pa.Table)


def all_or(rows: Rows, positions: Integers, count: int) -> pa.Table:
    """Return the rows at ascending positions out of ``count``: the table itself, if it is all."""
    if is_held(rows) and len(positions) == count:
        return rows
    return rows.take(pa.array(positions))


def rows_per_block(parts: Sequence[Rows], row_count: int) -> int:
    """Return how many of these rows fill a block; at least 1."""
    row_bytes = max(1, sum(rows.nbytes for rows in parts) // max(1, row_count))
    return max(1, BLOCK_BYTES // row_bytes)
