"""A run: rows in the order of their key's hash, with a directory that finds candidates.

The rows are sorted by the upper 32 bits of the hash. That is also the order of key groups, so a
range of key groups is a slice. The directory has the first row of each of ``2**bits`` equal ranges
of hashes, about as many as there are rows, so a key's rows are found without a search. Candidates
have equal upper halves of their hashes and times within bounds; then the keys are compared, because
32 bits are not a key. They are expanded in blocks, so memory is bounded however hot a key is.

Sorting is two passes over 16 bits each, which numpy does by counting.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.stable_hash import hash_columns
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.keyed_rows import same_keys
from laminar_core.state.named_tables import added_up
from laminar_core.state.rows_layout import RowsLayout

Halves = npt.NDArray[np.uint32]
"""The upper half of each row's hash."""
Marks = npt.NDArray[np.bool_]

BLOCK_ROWS_MAX = 65_536
"""Candidates that are looked at together, and so the most matches that come together."""
_HALF_BITS = 32
_LONG_BUCKET = 32
_SAMPLED_ROWS = 1_024
_UPPER, _TIME = "upper half", "row time"
"""Columns for a moment only; no column of a user has such a name with these others."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows of an arrangement; only the marks of a run ever change.

    Shapes: all arrays are as long as ``rows``. ``times_us`` decides which rows of other runs can be
    partners. ``marks``: whether a row has had a partner; ``stored_marks``: at the last cut.
    """

    rows: pa.Table
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
    return _sorted(rows, upper, times_us, _unmarked(rows.num_rows))


def joined(runs: Sequence[Run], layout: RowsLayout, expired_us: int | None) -> Run:
    """Make one run of several, without the rows that expire at ``expired_us`` or before.

    Weights of equal rows are added up, and rows without weight are left out.
    """
    kept = [(run, living(run, expired_us)) for run in runs]
    tables = [
        run.rows if len(rows) == len(run) else run.rows.take(pa.array(rows)) for run, rows in kept
    ]
    rows = pa.concat_tables(tables)
    upper = np.concatenate([run.upper[rows] for run, rows in kept])
    times_us = np.concatenate([run.times_us[rows] for run, rows in kept])
    if layout.has_weights:
        rows = rows.append_column(_UPPER, pa.array(upper)).append_column(_TIME, pa.array(times_us))
        rows = added_up(rows)
        upper, times_us = (rows.column(name).to_numpy() for name in (_UPPER, _TIME))
        rows = rows.drop_columns([_UPPER, _TIME])
        return _sorted(rows, upper, times_us, _unmarked(rows.num_rows))
    marks = np.concatenate([run.marks[rows] for run, rows in kept])
    stored = np.concatenate([run.stored_marks[rows] for run, rows in kept])
    return _sorted(rows, upper, times_us, (marks, stored))


def living(run: Run, expired_us: int | None) -> Integers:
    """Return the positions of the rows that do not expire at ``expired_us`` or before."""
    if expired_us is None:
        return np.arange(len(run))
    return np.flatnonzero(run.expires_us > expired_us)


def _unmarked(row_count: int) -> tuple[Marks, Marks]:
    return np.zeros(row_count, np.bool_), np.zeros(row_count, np.bool_)


def _sorted(rows: pa.Table, upper: Halves, times_us: Integers, marks: tuple[Marks, Marks]) -> Run:
    order = hash_order(upper)
    rows = rows.take(pa.array(order)).combine_chunks()
    upper, times_us = upper[order], times_us[order]
    bits = max(1, min(len(order).bit_length(), _HALF_BITS))
    buckets = (upper >> np.uint32(_HALF_BITS - bits)).astype(np.int64)
    counts = np.bincount(buckets, minlength=1 << bits)
    starts = np.append(0, np.cumsum(counts))
    expires_us = _expiry_of(rows, times_us)
    return Run(
        rows,
        upper,
        times_us,
        expires_us,
        marks[0][order],
        marks[1][order],
        bits,
        starts.astype(np.int32),
        int(np.dot(counts, counts)),
        oldest_us=int(times_us.min()) if len(order) else 0,
        newest_us=int(times_us.max()) if len(order) else 0,
        half_us=_middle(expires_us),
        last_us=int(expires_us.max()) if len(order) else 0,
    )


def _middle(values: Integers) -> int:
    """Return the median of a sample: the values are in the order of hashes, which is random."""
    sampled = values[:: max(1, len(values) // _SAMPLED_ROWS)]
    return int(np.partition(sampled, len(sampled) // 2)[len(sampled) // 2]) if len(values) else 0


def hash_order(upper: Halves) -> Integers:
    """Return the order of rows by the upper half of their hash; equal ones keep their order."""
    low = np.argsort(upper.astype(np.uint16), kind="stable")
    high = (upper >> np.uint32(16)).astype(np.uint16)[low]
    return low[np.argsort(high, kind="stable")]


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
    """Pairs of rows with equal keys: a row of the probing run, and one of ``run``."""

    run: Run
    probing: Integers
    found: Integers


def matches(
    probe: Run, run: Run, keys: Sequence[tuple[str, str]], bounds: Bounds | None
) -> Iterator[Matches]:
    """Yield all pairs, in pieces; null matches nothing.

    ``keys``: the name of each key in ``probe``, and in ``run``.
    """
    if not len(probe) or not len(run) or not _can_meet(probe, run, bounds):
        return
    first, count = candidates(probe.upper, run)
    for block in _blocks(first, count):
        near = _near(probe, run, block, bounds)
        probing, found = block[0][near], block[1][near]
        same = np.flatnonzero(_are_equal(probe.rows, run.rows, keys, probing, found))
        if len(same) == len(near) > 0:
            yield Matches(run, probing, found)
        elif len(same):
            yield Matches(run, probing[same], found[same])


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


def _blocks(first: Integers, count: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield pairs of probing row and candidate, at most ``BLOCK_ROWS_MAX`` at a time."""
    ends = np.cumsum(count)
    total = int(ends[-1])
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
    mine: pa.Table,
    theirs: pa.Table,
    keys: Sequence[tuple[str, str]],
    probing: Integers,
    found: Integers,
) -> Marks:
    """Compare the keys of pairs; null equals nothing."""
    left = mine.select([key for key, _ in keys]).take(pa.array(probing))
    right = theirs.select([key for _, key in keys]).take(pa.array(found))
    same = same_keys(left, right)
    for column in left.columns:
        if column.null_count:
            same &= column.is_valid().to_numpy()
    return same
