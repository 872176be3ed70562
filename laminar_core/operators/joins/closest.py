"""The last row at or before a time, for many rows at once: the heart of an as-of join.

Rows of both sides are sorted by key and time, and the newest right row so far is carried along. So
no row looks for its partner, and a hot key costs as much as many cold ones. Keys are numbered by
comparing them, not by their hash, because neighbours decide here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import Reduction, group
from laminar_core.aggregates.row_groups import Integers, RowGroups
from laminar_core.aggregates.row_order import total_order
from laminar_core.state.keyed_rows import MISSING


class Keyed(NamedTuple):
    """The keys and times of rows. ``keys`` has a column for each key; none is null."""

    keys: Sequence[pa.ChunkedArray]
    times_us: Integers


class Closest(NamedTuple):
    """Which rows of the right side are partners, and which are the last of their key."""

    partner: Integers
    """For each left row the position of its partner, or ``MISSING``."""
    last: Integers
    """The positions of the newest right row of each key."""


def closest(left: Keyed, right: Keyed, rows: pa.Table) -> Closest:
    """Find the last right row at or before each left row.

    ``rows``: the right rows themselves. Of several at one time the greatest is taken, compared
    column by column in this order; null is least, and NaN is greatest.
    """
    numbers, right_numbers = _numbered(left.keys, right.keys)
    order = total_order([right_numbers, right.times_us], rows)
    all_numbers = np.concatenate([right_numbers[order], numbers])
    times_us = np.concatenate([right.times_us[order], left.times_us])
    merged = np.lexsort((times_us, all_numbers))  # Stable: right rows come before left ones.
    is_right = merged < len(order)
    newest = np.maximum.accumulate(np.where(is_right, np.arange(len(merged)), MISSING))
    has_any = newest != MISSING
    has_any[has_any] = all_numbers[merged[newest[has_any]]] == all_numbers[merged[has_any]]
    found = np.full(len(merged), MISSING)
    found[has_any] = order[merged[newest[has_any]]]
    partner = np.full(len(numbers), MISSING)
    partner[merged[~is_right] - len(order)] = found[~is_right]
    ends = np.flatnonzero(np.diff(right_numbers[order], append=MISSING))
    return Closest(partner, order[ends])


def _numbered(
    left: Sequence[pa.ChunkedArray], right: Sequence[pa.ChunkedArray]
) -> tuple[Integers, Integers]:
    """Return a number for the key of each row, equal for equal keys of both sides."""
    keys = {
        str(n): pa.chunked_array([*mine.chunks, *theirs.chunks], mine.type)
        for n, (mine, theirs) in enumerate(zip(left, right, strict=True))
    }
    count = len(keys["0"])
    numbers = np.empty(count, np.int64)

    def note(groups: RowGroups) -> pa.Array:
        numbers[:] = groups.numbers()
        return pa.nulls(groups.count)

    group(keys, pa.table(keys), [Reduction("numbered", note, None)])
    return numbers[: len(left[0])], numbers[len(left[0]) :]
