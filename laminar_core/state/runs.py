"""A run: rows in the order of their key's hash, with a directory that finds candidates.

The rows are sorted by the upper 32 bits of the hash. That is also the order of key groups, so a
range of key groups is a slice. The directory has the first row of each of ``2**bits`` equal ranges
of hashes, about as many as there are rows, so a key's rows are found without a search. Candidates
have equal upper halves of their hashes and times within bounds; then the keys are compared, because
32 bits are not a key. They are expanded in blocks, so memory is bounded however hot a key is.

The rows may be on a shelf (``kept_rows``); all else of a run is in memory, about 30 bytes a row.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.stable_hash import hash_columns
from laminar_core.state.chunks import Chunk
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.kept_rows import (
    Halves,
    Room,
    Rows,
    all_or,
    common_cuts,
    hash_order,
    is_held,
    merged_order,
    rows_per_block,
)
from laminar_core.state.keyed_rows import same_keys
from laminar_core.state.named_tables import added_up
from laminar_core.state.rows_layout import RowsLayout

Marks = npt.NDArray[np.bool_]

BLOCK_ROWS_MAX = 65_536
"""Candidates that are looked at together, and so the most matches that come together."""
_HALF_BITS = 32
_LONG_BUCKET = 32
_SAMPLED_ROWS = 1_024
_BLOCKS_AT_ONCE = 64
"""About 16 MB of rows in memory whose weights are added up together."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows of an arrangement; only the marks of a run ever change.

    Shapes: all arrays are as long as ``rows``. ``times_us`` decides which rows of other runs can be
    partners. ``marks``: whether a row has had a partner; ``stored_marks``: at the last cut.
    """

    rows: Rows
    upper: Halves
    times_us: Integers
    expires_us: Integers
    marks: Marks
    stored_marks: Marks
    bits: int
    starts: npt.NDArray[np.int32]
    squares: int
    """The sum of the squares of the number of rows in each bucket."""
    oldest_us: int
    """The time of the oldest row; 0 without rows."""
    newest_us: int
    """The time of the newest row; 0 without rows."""
    half_us: int
    """When about half of the rows have expired, by a sample; 0 without rows."""
    last_us: int
    """When the last row expires; 0 without rows."""

    def __len__(self) -> int:
        return len(self.upper)


def arranged(rows: pa.Table, times_us: Integers, layout: RowsLayout) -> Run:
    """Sort rows to a run; none has had a partner yet.

    Shapes: ``rows`` has the layout's schema, and ``times_us`` a time for each row.
    """
    upper = upper_halves(rows, layout.keys)
    return _indexed(_columns(rows, upper, times_us).sorted())


def joined(
    runs: Sequence[Run], layout: RowsLayout, expired_us: int | None, room: Room | None = None
) -> Run:
    """Make one run of several, without the rows that expire at ``expired_us`` or before.

    Weights of equal rows are added up, a part of the rows at a time, and rows without weight are
    left out. If a run is on the shelf of ``room``, the new one is put there too, block by block.
    """
    kept = [(run, living(run, expired_us)) for run in runs]
    if room is None or all(is_held(run.rows) for run in runs):
        slices = _by_hashes(kept, _BLOCKS_AT_ONCE) if layout.has_weights else [kept]
        whole = _concatenated([_together(some, layout) for some in slices])
        return _indexed(replace(whole, rows=whole.rows.combine_chunks()))
    columns = [_chosen(run, rows[:0]) for run, rows in kept]
    blocks: list[Chunk] = []
    start_us = min(run.oldest_us for run in runs)
    for some in _by_hashes(kept):
        part = _together(some, layout)
        blocks += room.put(part.rows, start_us, part.upper)
        columns.append(replace(part, rows=part.rows.slice(0, 0)))
    return _indexed(_concatenated(columns), room.rows_in(blocks))


def put_away(run: Run, room: Room) -> Run:
    """Put the rows of a run on the shelf; return the run with what it is found by in memory."""
    assert is_held(run.rows), "the rows are on the shelf"
    return replace(run, rows=room.rows_in(room.put(run.rows, run.oldest_us, run.upper)))


def living(run: Run, expired_us: int | None) -> Integers:
    """Return the positions of the rows that do not expire at ``expired_us`` or before."""
    if expired_us is None:
        return np.arange(len(run))
    return np.flatnonzero(run.expires_us > expired_us)


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Rows and what is known of each. Shapes: all arrays are as long as ``rows``."""

    rows: pa.Table
    upper: Halves
    times_us: Integers
    expires_us: Integers
    marks: Marks
    stored_marks: Marks

    def sorted(self) -> "_Columns":
        """Sort by the upper half of the hash."""
        return self.taken(hash_order(self.upper))

    def merged_with(self, newer: "_Columns") -> "_Columns":
        """Return the rows of both together, sorted; each of them is sorted."""
        return _concatenated([self, newer]).taken(merged_order(self.upper, newer.upper))

    def taken(self, order: Integers) -> "_Columns":
        """Return the rows at these positions, in this order."""
        return _Columns(
            self.rows.take(pa.array(order)).combine_chunks(),
            self.upper[order],
            self.times_us[order],
            self.expires_us[order],
            self.marks[order],
            self.stored_marks[order],
        )


def _together(kept: Sequence[tuple[Run, Integers]], layout: RowsLayout) -> _Columns:
    """Sort these rows of some runs together; weights of equal rows are added up."""
    parts = [_chosen(run, rows) for run, rows in kept]
    if not layout.has_weights:
        return reduce(_Columns.merged_with, parts)
    columns = _concatenated(parts)
    rows = columns.rows.append_column("upper half", pa.array(columns.upper))
    rows = rows.append_column("row time", pa.array(columns.times_us))
    rows = added_up(rows.combine_chunks())  # The order of sums depends on the pieces.
    upper, times_us = (column.to_numpy() for column in rows.columns[-2:])
    own = rows.select(list(range(rows.num_columns - 2)))  # By position: names may repeat.
    return _columns(own, upper, times_us).sorted()


def _chosen(run: Run, rows: Integers) -> _Columns:
    return _Columns(
        all_or(run.rows, rows, len(run)),
        run.upper[rows],
        run.times_us[rows],
        run.expires_us[rows],
        run.marks[rows],
        run.stored_marks[rows],
    )


def _concatenated(parts: Sequence[_Columns]) -> _Columns:
    return _Columns(
        pa.concat_tables([part.rows for part in parts]),
        np.concatenate([part.upper for part in parts]),
        np.concatenate([part.times_us for part in parts]),
        np.concatenate([part.expires_us for part in parts]),
        np.concatenate([part.marks for part in parts]),
        np.concatenate([part.stored_marks for part in parts]),
    )


def _by_hashes(
    kept: Sequence[tuple[Run, Integers]], blocks_at_once: int = 1
) -> Iterator[Sequence[tuple[Run, Integers]]]:
    """Yield the rows in pieces of some blocks, cut where the upper half of the hash changes."""
    row_count = sum(len(run) for run, _ in kept)
    size = blocks_at_once * rows_per_block([run.rows for run, _ in kept], row_count)
    if row_count <= size:
        yield kept
        return
    for slices in common_cuts([run.upper[rows] for run, rows in kept], size):
        yield [(run, rows[some]) for (run, rows), some in zip(kept, slices, strict=True)]


def _columns(rows: pa.Table, upper: Halves, times_us: Integers) -> _Columns:
    unmarked = np.zeros(rows.num_rows, np.bool_)
    return _Columns(rows, upper, times_us, _expiry_of(rows, times_us), unmarked, unmarked)


def _indexed(columns: _Columns, rows: Rows | None = None) -> Run:
    """Make a run of sorted columns. ``rows``: the rows, if those of the columns are none."""
    upper, times_us, expires_us = columns.upper, columns.times_us, columns.expires_us
    bits = max(1, min(len(upper).bit_length(), _HALF_BITS))
    buckets = (upper >> np.uint32(_HALF_BITS - bits)).astype(np.int64)
    counts = np.bincount(buckets, minlength=1 << bits)
    starts = np.append(0, np.cumsum(counts))
    return Run(
        columns.rows if rows is None else rows,
        upper,
        times_us,
        expires_us,
        columns.marks,
        columns.stored_marks,
        bits,
        starts.astype(np.int32),
        int(np.dot(counts, counts)),
        oldest_us=int(times_us.min()) if len(upper) else 0,
        newest_us=int(times_us.max()) if len(upper) else 0,
        half_us=_middle(expires_us),
        last_us=int(expires_us.max()) if len(upper) else 0,
    )


def _middle(values: Integers) -> int:
    """Return the median of a sample: the values are in the order of hashes, which is random."""
    sampled = values[:: max(1, len(values) // _SAMPLED_ROWS)]
    return int(np.partition(sampled, len(sampled) // 2)[len(sampled) // 2]) if len(values) else 0


def _expiry_of(rows: pa.Table, times_us: Integers) -> Integers:
    """Return when each row expires; of rows that never do, their time, which nothing reads."""
    if EXPIRES not in rows.column_names:
        return times_us
    return as_array(rows.column(EXPIRES)).view(pa.int64()).to_numpy()


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """A row of a run is a partner if its time, less the probing row's, is within these."""

    low_us: int
    high_us: int


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Pairs of rows with equal keys: a row of the probing run, and one of ``run``.

    ``read``: the rows of ``found``, if they had to be read from a shelf.
    """

    run: Run
    probing: Integers
    found: Integers
    read: pa.Table | None = None

    def partners(self, names: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of ``run``, one for each pair. ``names``: only these columns."""
        if self.read is not None:
            return self.read if names is None else self.read.select(names)
        rows = self.run.rows if names is None else self.run.rows.select(names)
        return rows.take(pa.array(self.found))

    def where(self, chosen: Marks) -> "Matches":
        """Return the pairs for which a mask is true."""
        if chosen.all():
            return self
        read = None if self.read is None else self.read.filter(pa.array(chosen))
        return Matches(self.run, self.probing[chosen], self.found[chosen], read)


def matches(
    probe: Run,
    run: Run,
    keys: Sequence[tuple[str, str]],
    bounds: Bounds | None,
    *,
    null_is_key: bool = False,
) -> Iterator[Matches]:
    """Yield all pairs, in pieces; null matches nothing, or null if ``null_is_key``.

    ``keys``: the name of each key in ``probe``, and in ``run``.
    """
    if not len(probe) or not len(run) or not _can_meet(probe, run, bounds):
        return
    first, count = candidates(probe.upper, run)
    for block in blocks(first, count):
        near = _near(probe, run, block, bounds)
        if not len(near):
            continue
        read = None if is_held(run.rows) else run.rows.take(pa.array(block[1][near]))
        pairs = Matches(run, block[0][near], block[1][near], read)
        pairs = pairs.where(_are_equal(probe.rows, pairs, keys, null_is_key=null_is_key))
        if len(pairs.found):
            yield pairs


def _near(
    probe: Run, run: Run, block: tuple[Integers, Integers], bounds: Bounds | None
) -> Integers:
    """Return the candidates with equal halves of their hash, and a time within bounds."""
    probing, found = block
    near = np.flatnonzero(run.upper[found] == probe.upper[probing])
    if bounds is None:
        return near
    apart_us = run.times_us[found[near]] - probe.times_us[probing[near]]
    return near[(apart_us >= bounds.low_us) & (apart_us <= bounds.high_us)]


def _can_meet(probe: Run, run: Run, bounds: Bounds | None) -> bool:
    if bounds is None:
        return True
    oldest_us, newest_us = probe.oldest_us + bounds.low_us, probe.newest_us + bounds.high_us
    return run.newest_us >= oldest_us and run.oldest_us <= newest_us


def most_candidates(upper: Halves, runs: Sequence[Run]) -> int:
    """Return a number that rows with these hashes have no more candidates than, in all runs.

    It costs little, because it looks only at how many rows are in each bucket: the scalar product
    of two of such counts is at most the root of the product of their squares.
    """
    bits = max(1, min(len(upper).bit_length(), _HALF_BITS))
    buckets = (upper >> np.uint32(_HALF_BITS - bits)).astype(np.int64)
    counts = np.bincount(buckets, minlength=1 << bits)
    squares = int(np.dot(counts, counts))
    most = 0
    for run in runs:
        if run.bits < bits:
            coarse = counts.reshape(1 << run.bits, -1).sum(axis=1)
            most += int(np.dot(coarse, np.diff(run.starts)))
        else:
            most += math.isqrt(squares * run.squares) + 1
    return most


def first_with(upper: Halves, runs: Sequence[Run], candidates_max: int) -> int:
    """Return how many rows, from the first one on, have at most so many candidates; at least 1."""
    counts = np.zeros(len(upper), np.int64)
    for run in runs:
        counts += candidates(upper, run)[1]
    return max(1, int(np.searchsorted(np.cumsum(counts), candidates_max, "right")))


def upper_halves(rows: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> Halves:
    """Return the upper half of the hash of each row's key."""
    columns = [as_array(rows.column(key)) for key in keys]
    return (hash_columns(columns, rows.num_rows) >> np.uint64(_HALF_BITS)).astype(np.uint32)


def candidates(upper: Halves, run: Run) -> tuple[Integers, Integers]:
    """Return the first row and the number of rows in the bucket of each probing row.

    Others in the bucket of a hot key would have all its rows as candidates; they search.
    """
    bucket = upper >> np.uint32(_HALF_BITS - run.bits)
    first = run.starts[bucket].astype(np.int64)
    count = run.starts[bucket + np.uint32(1)] - first
    long = np.flatnonzero(count > _LONG_BUCKET)
    if len(long):
        first[long] = np.searchsorted(run.upper, upper[long], "left")
        count[long] = np.searchsorted(run.upper, upper[long], "right") - first[long]
    return first, count


def blocks(first: Integers, count: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield pairs of a row and a candidate, at most ``BLOCK_ROWS_MAX`` at a time.

    Shapes: the candidates of each row are ``count`` neighbours from ``first`` on.
    """
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, BLOCK_ROWS_MAX):
        stop = min(start + BLOCK_ROWS_MAX, total)
        rows = slice(
            int(np.searchsorted(ends, start, "right")),
            int(np.searchsorted(ends, stop, "left")) + 1,
        )
        begin = ends[rows] - count[rows]
        since = np.maximum(begin, start)
        parts = np.minimum(ends[rows], stop) - since
        numbers = np.arange(rows.start, rows.stop)
        offsets = np.repeat(first[rows] - begin, parts)
        yield np.repeat(numbers, parts), np.arange(start, stop) + offsets


def _are_equal(
    probing: Rows, pairs: Matches, keys: Sequence[tuple[str, str]], *, null_is_key: bool
) -> Marks:
    """Compare the keys of pairs; null equals nothing, or null if ``null_is_key``."""
    left = probing.select([key for key, _ in keys]).take(pa.array(pairs.probing))
    same = same_keys(left, pairs.partners([key for _, key in keys]))
    for column in () if null_is_key else left.columns:
        if column.null_count:
            same &= column.is_valid().to_numpy()
    return same
