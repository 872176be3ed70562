"""The last row at or before a time, for many rows at once: the heart of an as-of join.

Rows of both sides are sorted together by key and time, and the newest right row so far is carried
along. So no row looks for its partner, and a hot key costs as much as many cold ones. Keys are
numbered by comparing them, not by their hash, because neighbours decide here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import Reduction, group
from laminar_core.aggregates.row_groups import Integers, RowGroups
from laminar_core.aggregates.row_order import stable_order, without_ties
from laminar_core.state.keyed_rows import MISSING


class Numbered(NamedTuple):
    """The keys and times of rows. ``keys``: a number for each row, equal if its key is."""

    keys: Integers
    times_us: Integers


class Closest(NamedTuple):
    """Which rows of the right side are partners, and which are the last of their key."""

    partner: Integers
    """For each left row the position of its partner, or ``MISSING``."""
    last: Integers
    """The positions of the newest right row of each key."""


def closest(left: Numbered, right: Numbered, rows: pa.Table) -> Closest:
    """Find the last right row at or before each left row.

    ``rows``: the right rows themselves. Of several at one time the greatest is taken, compared
    column by column in this order; null is least, and NaN is greatest.
    """
    right_count = len(right.keys)
    partner = np.full(len(left.keys), MISSING)
    # The order is stable, so right rows come before left ones of their time.
    merged = stable_order(
        [np.concatenate([theirs, mine]) for theirs, mine in zip(right, left, strict=True)]
    )
    is_right = merged < right_count
    order = without_ties(merged[is_right], right, rows)
    lefts = merged[~is_right] - right_count
    before = np.cumsum(is_right)[~is_right]
    lefts, before = lefts[before > 0], before[before > 0]
    found = order[before - 1]
    is_same = right.keys[found] == left.keys[lefts]
    partner[lefts[is_same]] = found[is_same]
    ends = np.flatnonzero(np.diff(right.keys[order], append=MISSING))
    return Closest(partner, order[ends])


def numbered(
    left: Sequence[pa.ChunkedArray], right: Sequence[pa.ChunkedArray]
) -> tuple[Integers, Integers]:
    """Return a number from 0 on for the key of each row, equal for equal keys of both sides.

    Shapes: a column for each part of the key; none has nulls.
    """
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
