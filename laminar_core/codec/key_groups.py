"""The owner of a key: key -> hash -> key group -> subtask.

A key group is the smallest unit of keyed state that moves between subtasks. The number of key
groups, the maximum parallelism, is fixed for the life of a job. Each subtask owns one contiguous
range of them, so changing the parallelism moves whole groups and rehashes nothing.

Invariants, checked by ``tests/codec/test_key_groups.py``:
    I1  the ranges of all subtasks partition ``range(max_parallelism)``
    I2  a key group is in the range of exactly the subtask that ``subtask_of`` names

Source: Carbone et al. 2017 (PVLDB 10:12) on key groups; Flink's ``KeyGroupRangeAssignment`` for
the two formulas that turn groups into ranges.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.codec.stable_hash import UInt64Array, hash_columns
from laminar_core.errors import ConfigurationError, ErrorCode

MAX_PARALLELISM_LIMIT = 32_768

KeyGroupArray = npt.NDArray[np.uint16]

_HALF = np.uint64(32)


def key_groups(hashes: UInt64Array, max_parallelism: int) -> KeyGroupArray:
    """Map hashes evenly to key groups: the upper 32 bits, scaled to ``max_parallelism``.

    Scaling needs no division, and unlike the remainder it is as even for 100 groups as for 128
    (Lemire, "Fast random integer generation in an interval", TOMACS 29:1).

    Shapes: as many as ``hashes``; each is in [0, ``max_parallelism``).
    """
    return (((hashes >> _HALF) * np.uint64(max_parallelism)) >> _HALF).astype(np.uint16)


def subtask_of(key_group: int, max_parallelism: int, parallelism: int) -> int:
    """Name the subtask that owns ``key_group``.

    Raises:
        ConfigurationError: see ``require_parallelism``.
    """
    require_parallelism(parallelism, max_parallelism)
    return key_group * parallelism // max_parallelism


def key_group_range(subtask_index: int, max_parallelism: int, parallelism: int) -> range:
    """Return the half-open range of key groups that a subtask owns; never empty.

    Raises:
        ConfigurationError: see ``require_parallelism``.
    """
    require_parallelism(parallelism, max_parallelism)
    if not 0 <= subtask_index < parallelism:
        raise ConfigurationError(
            ErrorCode.UNSUPPORTED_PARALLELISM,
            f"there is no subtask {subtask_index} at parallelism {parallelism}",
        )
    start, stop = (
        -(-index * max_parallelism // parallelism) for index in (subtask_index, subtask_index + 1)
    )
    return range(start, stop)


def require_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Accept 1 <= ``parallelism`` <= ``max_parallelism`` <= 32,768.

    Raises:
        ConfigurationError: anything else (UNSUPPORTED_PARALLELISM).
    """
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ConfigurationError(
            ErrorCode.UNSUPPORTED_PARALLELISM,
            f"max_parallelism must be in 1..{MAX_PARALLELISM_LIMIT}, not {max_parallelism}",
        )
    if not 1 <= parallelism <= max_parallelism:
        raise ConfigurationError(
            ErrorCode.UNSUPPORTED_PARALLELISM,
            f"parallelism must be in 1..{max_parallelism} (max_parallelism), not {parallelism}",
        )


def key_groups_of(
    batch: pa.RecordBatch, key_columns: Sequence[str], max_parallelism: int
) -> KeyGroupArray:
    """Map every row of ``batch`` to its key group. Without key columns all are in group 0."""
    columns = [batch.column(name) for name in key_columns]
    return key_groups(hash_columns(columns, batch.num_rows), max_parallelism)


def key_group_order(groups: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """Return the positions of rows sorted by key group; rows of one group keep their order.

    numpy sorts numbers of 16 bits by counting: eight times as fast as longer ones.
    """
    return np.argsort(groups.astype(np.uint16), kind="stable")


def partition(
    batch: pa.RecordBatch, key_columns: Sequence[str], max_parallelism: int, parallelism: int
) -> list[tuple[int, pa.RecordBatch]]:
    """Split ``batch`` by the subtask that owns each row's key.

    Rows keep their order inside a part. Subtasks that get no row are left out, and parts come in
    the order of their subtasks. With many subtasks, the parts are slices that share memory, so copy
    a part that is kept for long.

    Raises:
        ConfigurationError: an unsupported parallelism, or a column that cannot be a key.
    """
    require_parallelism(parallelism, max_parallelism)
    if not batch.num_rows:
        return []
    if parallelism == 1:
        return [(0, batch)]
    owners = _owners(max_parallelism, parallelism)
    subtasks = owners[key_groups_of(batch, key_columns, max_parallelism)]
    counts = np.bincount(subtasks, minlength=parallelism)
    found = np.flatnonzero(counts).tolist()
    if len(found) == 1:
        return [(found[0], batch)]
    if len(found) <= _SCANS_MAX:
        return [(s, batch.take(pa.array(np.flatnonzero(subtasks == s)))) for s in found]
    ordered = batch.take(pa.array(np.argsort(subtasks, kind="stable")))
    starts = (np.cumsum(counts) - counts).tolist()
    return [(s, ordered.slice(starts[s], int(counts[s]))) for s in found]


_SCANS_MAX = 4
"""Up to so many receivers, one scan of the rows for each is cheaper than sorting them."""


@lru_cache(maxsize=16)
def _owners(max_parallelism: int, parallelism: int) -> npt.NDArray[np.uint8 | np.uint16]:
    """Return the subtask of each key group. Numbers of one byte are sorted in one pass."""
    fits_a_byte = parallelism <= np.iinfo(np.uint8).max + 1
    owners = np.arange(max_parallelism) * parallelism // max_parallelism
    return owners.astype(np.uint8 if fits_a_byte else np.uint16)
