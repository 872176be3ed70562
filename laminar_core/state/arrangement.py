"""Rows of a key, many or none, that expire: the state of one side of a join.

Rows are kept in immutable *runs*, see ``runs``. Each batch is a new run. Two neighbours become one
when the older has at most twice the rows of the newer, so there are few runs and each row is copied
a logarithmic number of times. With weights that holds for runs of up to 2 GiB in memory and of any
size on a disk, so what was taken back is gone when about as many rows have come as are there. A run
is rewritten when about half of its rows have expired. So at most about as many expired rows are
held as living ones, and no row is looked at for each watermark.

With a backend on disk the rows of large runs are there, see ``kept_rows``.

A snapshot pins the runs, which are never changed but for their marks. The changes since the last
cut are the runs since then, so runs from before and after a cut are not merged until the next cut.
Whether a row has had a partner is a mark in memory: it is looked up with each match. In a
checkpoint a mark that has changed is two rows with weights, see ``RowsLayout.stored_schema``.

Source: the merging of LSM trees; the arrangements of differential dataflow (McSherry et al., CIDR
2013).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.codec.key_groups import key_group_order
from laminar_core.state.chunks import Shelf
from laminar_core.state.kept_rows import Room, groups_of, hash_ranges, is_held
from laminar_core.state.named_tables import WEIGHT, added_up
from laminar_core.state.rows_layout import MATCHED, WEIGHT_TYPE, RowsLayout
from laminar_core.state.runs import (
    Bounds,
    Marks,
    Matches,
    Run,
    arranged,
    first_with,
    joined,
    living,
    matches,
    most_candidates,
    put_away,
    upper_halves,
)
from laminar_core.state.window_layout import KEY_GROUP

_SIZE_RATIO = 2
JOINED_BYTES_MAX = 128 * 1024 * 1024
"""Larger runs are not merged, because that would block the worker; see ``OFFSETS_BYTES_MAX``."""
OFFSETS_BYTES_MAX = 2**31 - 1
"""Limit in memory for rows with weights. Offsets of text have 32 bits, so Arrow cannot take rows
out of more text than this. On a disk, rows are read by block.
"""
UNPROBED_ROWS_MAX = 65_536
"""Larger runs are not merged where nothing is probed: nothing would be faster."""
CANDIDATES_MAX = 2 * 1024 * 1024
"""Candidates of rows that are probed at once: about 0.2 s, if all of them are pairs."""


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """Some rows of a run."""

    run: Run
    positions: Integers

    def table(self) -> pa.Table:
        """Return these rows."""
        return self.run.rows.take(pa.array(self.positions))


@dataclass(frozen=True, slots=True, eq=False)
class _PinnedRun:
    """Rows as they were at a cut. ``marks``: of all rows of the run; ``positions``: only these."""

    run: Run
    marks: Marks
    weight: int
    positions: Integers

    def slice(self, first: int, stop: int) -> "_PinnedRun":
        """Return the rows whose upper half is in this range."""
        upper = self.run.upper[self.positions]
        start, end = np.searchsorted(upper, np.array([first, stop], np.uint64))
        return replace(self, positions=self.positions[start:end])


@dataclass(frozen=True, slots=True, eq=False)
class PinnedRuns:
    """The rows, or the changes, at a cut; reading them changes nothing.

    ``changed``: rows whose mark has changed, once without it and once with it.
    """

    layout: RowsLayout
    runs: Sequence[tuple[Run, Marks]]
    changed: Sequence[_PinnedRun]
    expired_us: int | None

    def stored_tables(self, max_parallelism: int) -> Iterator[pa.Table]:
        """Yield the tables of a checkpoint, one range of key groups after the other.

        Shapes: all have the layout's ``stored_schema`` and are sorted by key group; the key groups
        of each are below the next one's. Tables without rows are left out.
        """
        parts = [
            *self.changed,
            *(_PinnedRun(run, marks, 1, living(run, self.expired_us)) for run, marks in self.runs),
        ]
        row_bytes = max((p.run.rows.nbytes // len(p.run) for p in parts), default=0)
        size_bytes = row_bytes * sum(len(part.positions) for part in parts)
        for first, stop in hash_ranges(size_bytes, max_parallelism):
            slices = [part.slice(first, stop) for part in parts]
            if slices := [part for part in slices if len(part.positions)]:
                stored = self._stored(slices, max_parallelism)
                if stored.num_rows:  # Rows with weights can add up to none.
                    yield stored

    def _stored(self, parts: Sequence[_PinnedRun], max_parallelism: int) -> pa.Table:
        schema = self.layout.stored_schema
        rows = pa.concat_tables([Picked(part.run, part.positions).table() for part in parts])
        upper = np.concatenate([part.run.upper[part.positions] for part in parts])
        columns = [pa.array(groups_of(upper, max_parallelism)), *rows.columns]
        if self.layout.is_marked:
            marks = np.concatenate([part.marks[part.positions] for part in parts])
            weights = np.repeat([part.weight for part in parts], [len(p.positions) for p in parts])
            columns += [pa.array(marks), pa.array(weights, WEIGHT_TYPE)]
        stored = pa.Table.from_arrays(columns, schema=schema)
        if WEIGHT in schema.names:  # One form, so that a state and its copy have equal rows.
            stored = added_up(stored.combine_chunks())
        order = key_group_order(stored.column(KEY_GROUP).to_numpy())
        return stored.take(pa.array(order))


class Arrangement:
    """One table of state of one subtask.

    Several runs can be merged or rewritten at once, but only by ``add`` and ``expire``.

    ``is_probed``: whether ``probe`` is called. If not, large runs are not merged.
    """

    def __init__(
        self, layout: RowsLayout, shelf: Shelf | None = None, *, is_probed: bool = True
    ) -> None:
        self.layout = layout
        self._is_probed = is_probed
        self._room = Room(layout.schema, shelf)
        self._runs: list[Run] = []
        self._settled = 0
        """Number of runs from before the last cut."""
        self._is_tidy = True
        """Whether those runs need no more merging."""
        self._expired_us: int | None = None
        self._dropped_count = 0
        """Number of rows that had expired and are not in memory any more."""

    @property
    def expired_row_count(self) -> int:
        """Number of rows that have expired since the start, whether they are dropped or not.

        It is the same whenever they are dropped. All rows are looked at, so ask now and then, and
        not for each watermark.
        """
        assert not self.layout.has_weights, "rows that cancel each other do not expire"
        gone = self._dropped_count
        if self._expired_us is not None:
            gone += sum(int((run.expires_us <= self._expired_us).sum()) for run in self._runs)
        return gone

    @property
    def row_count(self) -> int:
        """Number of rows held, also of those that have expired and are not yet dropped."""
        return sum(len(run) for run in self._runs)

    @property
    def expired_us(self) -> int | None:
        """Rows that expire at this time or before are gone; None: none are."""
        return self._expired_us

    @property
    def oldest_us(self) -> int | None:
        """No row that is held is older than this time; None without rows."""
        return min((run.oldest_us for run in self._runs), default=None)

    def arranged(self, rows: pa.Table, times_us: Integers) -> Run:
        """Sort rows of the layout's schema to a run, without adding it."""
        return arranged(rows, times_us, self.layout)

    def add(self, run: Run) -> None:
        """Keep the rows of a run."""
        if not len(run):
            return
        if not self._is_tidy:
            self._settled = self._tidy(0)
            self._is_tidy = True
        self._runs.append(run)
        self._tidy(self._settled)
        for at in self._room.overfull([run.rows for run in self._runs]):
            self._runs[at] = put_away(self._runs[at], self._room)

    def probe(
        self,
        probing: Run,
        keys: Sequence[str],
        bounds: Bounds | None = None,
        *,
        null_is_key: bool = False,
    ) -> Iterator[Matches]:
        """Yield all pairs of a row of ``probing`` and a row held, in pieces.

        ``keys``: the columns of ``probing`` that are compared with this layout's keys.
        ``null_is_key``: null equals null; otherwise it equals nothing. Nothing may be added or
        expired meanwhile.
        """
        pairs = list(zip(keys, self.layout.keys, strict=True))
        for run in self._runs:
            yield from matches(probing, run, pairs, bounds, null_is_key=null_is_key)

    def rows_at_once(self, rows: pa.RecordBatch, keys: Sequence[str]) -> int:
        """Return how many rows, from the first one on, to probe at once: at least 1.

        They have at most ``CANDIDATES_MAX`` candidates, unless the first one alone has more.
        """
        if rows.num_rows * self.row_count <= CANDIDATES_MAX:
            return max(1, rows.num_rows)
        upper = upper_halves(rows, keys)
        if most_candidates(upper, self._runs) <= CANDIDATES_MAX:
            return rows.num_rows
        return first_with(upper, self._runs, CANDIDATES_MAX)

    def expiring(self, expired_us: int, *, unmarked: bool = False) -> list[Picked]:
        """Return the rows that ``expire(expired_us)`` takes away; ``unmarked``: only such."""
        picked: list[Picked] = []
        for run in self._runs:
            goes = run.expires_us <= expired_us
            if self._expired_us is not None:
                goes &= run.expires_us > self._expired_us
            if unmarked:
                goes &= ~run.marks
            if goes.any():
                picked.append(Picked(run, np.flatnonzero(goes)))
        return picked

    def waiting(self, first_us: int | None, last_us: int) -> list[Picked]:
        """Return the living rows without mark whose time is in [``first_us``, ``last_us``].

        None: from the oldest one on.
        """
        picked: list[Picked] = []
        for run in self._runs:
            if run.oldest_us > last_us or (first_us is not None and run.newest_us < first_us):
                continue
            waits = self._lives(run) & ~run.marks & (run.times_us <= last_us)
            if first_us is not None:
                waits &= run.times_us >= first_us
            if waits.any():
                picked.append(Picked(run, np.flatnonzero(waits)))
        return picked

    def oldest_living_us(self, *, unmarked: bool = False) -> int | None:
        """Return the time of the oldest row that has not expired; None: there is none.

        ``unmarked``: only rows without mark count. All rows are looked at, unlike in ``oldest_us``.
        """
        oldest_us: int | None = None
        for run in self._runs:
            if oldest_us is not None and run.oldest_us >= oldest_us:
                continue
            lives = self._lives(run)
            if unmarked:
                lives &= ~run.marks
            if lives.any():
                found_us = int(run.times_us[lives].min())
                oldest_us = found_us if oldest_us is None else min(oldest_us, found_us)
        return oldest_us

    def expire(self, expired_us: int) -> None:
        """Drop the rows that expire at this time or before; time never goes back."""
        assert self.layout.expires, "these rows stay"
        if self._expired_us is not None and expired_us <= self._expired_us:
            return
        self._expired_us = expired_us
        settled = self._unexpired(self._runs[: self._settled], expired_us)
        fresh = self._unexpired(self._runs[self._settled :], expired_us)
        self._runs, self._settled = [*settled, *fresh], len(settled)

    def restore(self, rows: pa.Table, times_us: Integers) -> None:
        """Start from rows of the stored schema that were put together, or from one part of them.

        To ``take_changes`` all of it is new.
        """
        assert not self._settled, "restore comes before any cut"
        names = self.layout.schema.names
        if not self.layout.is_marked:
            self.add(self.arranged(rows.select(names), times_us))
            return
        weights: Integers = rows.column(WEIGHT).to_numpy()
        assert (weights > 0).all(), "a row was taken back that was not there"
        repeated = np.repeat(np.arange(len(weights)), weights)
        marks = rows.column(MATCHED).to_numpy()[repeated]
        rows, times_us = rows.take(pa.array(repeated)), times_us[repeated]
        for matched in (False, True):
            chosen = np.flatnonzero(marks == matched)
            some = rows.select(names).take(pa.array(chosen))
            run = self.arranged(some, times_us[chosen])
            run.marks[:] = matched
            self.add(run)

    def pin(self) -> PinnedRuns:
        """Hold on to all rows as they are now."""
        return self._pinned(self._runs, [])

    def take_changes(self) -> PinnedRuns:
        """Hold on to what changed since the last call; added up, it is what is held."""
        changed = [part for run in self._runs[: self._settled] for part in self._changed(run)]
        changes = self._pinned(self._runs[self._settled :], changed)
        if self.layout.is_marked:
            self._runs = [replace(run, stored_marks=run.marks.copy()) for run in self._runs]
        self._settled = len(self._runs)
        self._is_tidy = False  # Not now: rows wait for a snapshot.
        return changes

    def _lives(self, run: Run) -> Marks:
        if self._expired_us is None:
            return np.ones(len(run), np.bool_)
        return run.expires_us > self._expired_us

    def _pinned(self, runs: Sequence[Run], changed: Sequence[_PinnedRun]) -> PinnedRuns:
        is_marked = self.layout.is_marked
        pinned = [(run, run.marks.copy() if is_marked else run.marks) for run in runs]
        return PinnedRuns(self.layout, pinned, changed, self._expired_us)

    def _changed(self, run: Run) -> Iterator[_PinnedRun]:
        rows = np.flatnonzero(run.marks != run.stored_marks)
        if self._expired_us is not None:
            rows = rows[run.expires_us[rows] > self._expired_us]
        if len(rows):
            yield _PinnedRun(run, run.stored_marks, -1, rows)
            yield _PinnedRun(run, run.marks.copy(), 1, rows)

    def _joined(self, runs: Sequence[Run]) -> Run:
        run = joined(runs, self.layout, self._expired_us, self._room)
        self._dropped_count += sum(len(one) for one in runs) - len(run)
        return run

    def _unexpired(self, runs: Sequence[Run], expired_us: int) -> list[Run]:
        """Drop the runs that have expired, and rewrite those that have by half."""
        kept = [run for run in runs if expired_us < run.last_us]
        self._dropped_count += sum(len(run) for run in runs) - sum(len(run) for run in kept)
        rewritten = [run if expired_us < run.half_us else self._joined([run]) for run in kept]
        return [run for run in rewritten if len(run)]

    def _tidy(self, oldest: int) -> int:
        """Let neighbours from ``oldest`` on become one where they are alike; count all runs."""
        for at in range(len(self._runs) - 2, oldest - 1, -1):
            both = self._runs[at : at + 2]
            if len(both) > 1 and self._are_to_join(*both):  # One, if the last two were nothing.
                run = self._joined(both)
                self._runs[at : at + 2] = [run] if len(run) else []
        return len(self._runs)

    def _are_to_join(self, older: Run, newer: Run) -> bool:
        if len(older) > _SIZE_RATIO * len(newer):
            return False
        if not self._is_probed and len(older) + len(newer) > UNPROBED_ROWS_MAX:
            return False
        size_bytes = older.rows.nbytes + newer.rows.nbytes
        if self.layout.has_weights:  # Or rows that were taken back would stay for ever.
            is_in_memory = is_held(older.rows) and is_held(newer.rows)
            return not is_in_memory or size_bytes <= OFFSETS_BYTES_MAX
        return size_bytes <= JOINED_BYTES_MAX
