"""Digests of sets of rows, independent of their order and of their division into tables.

Two sets of tables with the same rows, equally often, have the same content. So a state and its
copy, restored with another number of workers, have equal contents summed over the subtasks. A
digest detects differences, not attackers: it is a sum of 64-bit hashes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from laminar_core.codec.canonical import is_ambiguous
from laminar_core.codec.stable_hash import hash_columns, require_key_type
from laminar_core.errors import ConfigurationError

_MODULUS = 1 << 64
_BITS = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}
"""A number and its negative zero, or two kinds of NaN, are different contents."""


@dataclass(frozen=True, slots=True)
class Content:
    """A number of rows and the sum of their hashes. Addition combines disjoint sets."""

    row_count: int = 0
    digest: int = 0

    def __add__(self, other: "Content") -> "Content":
        """Return the content of both together."""
        digest = (self.digest + other.digest) % _MODULUS
        return Content(self.row_count + other.row_count, digest)

    def __str__(self) -> str:
        """Return rows and digest as text."""
        return f"{self.row_count:,} rows, digest {self.digest:016x}"


def content_of(tables: Iterable[pa.Table], name: str = "") -> Content:
    """Add up all rows; columns count with their names, in any order.

    ``name``: the same rows in a table with another name have another content.

    >>> content_of([pa.table({"n": [1, 2]})]) == content_of(
    ...     pa.table({"n": [n]}) for n in (2, 1)
    ... )
    True
    """
    total = Content()
    for table in tables:
        for batch in table.combine_chunks().to_batches():
            total += _content_of_batch(batch, name)
    return total


def _content_of_batch(batch: pa.RecordBatch, table: str) -> Content:
    names = sorted(batch.schema.names)
    columns = [_hashable(batch.column(name)) for name in names]
    said = f"{table}: {' '.join(names)}" if table else " ".join(names)
    named = pa.repeat(pa.scalar(said), batch.num_rows)
    hashes = hash_columns([named, *columns], batch.num_rows)
    with np.errstate(over="ignore"):
        return Content(batch.num_rows, int(hashes.sum(dtype=np.uint64)))


def _hashable(column: pa.Array) -> pa.Array:
    """The column itself, or hashes in its place if it is of a type that keys cannot have."""
    if column.type in _BITS:
        return column.view(_BITS[column.type])
    if _hashes_exactly(column.type):
        return column
    if pa.types.is_struct(column.type):
        parts = [_hashable(part) for part in column.flatten()]
        valid = column.is_valid().cast(pa.int8())
        return pa.array(hash_columns([valid, *parts], len(column)))
    # Lists and the like: seldom, and few.
    return pa.array([_hash_of(value) for value in column.to_pylist()], pa.uint64())


def _hashes_exactly(data_type: pa.DataType) -> bool:
    """Return whether different values have different hashes as keys, but for accidents."""
    values = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    if is_ambiguous(values) or pa.types.is_struct(values):
        return False
    try:
        require_key_type(data_type)
    except ConfigurationError:
        return False
    return True


def _hash_of(value: object) -> int:
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=8).digest(), "big")
