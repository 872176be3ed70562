"""Open sessions of a subtask: partial sessions in sorted runs, merged when needed.

Adding rows appends a run: partial sessions, sorted by the hash of their key. Two neighbouring runs
become one when the older has at most twice the rows of the newer. So there are few runs, and each
row is copied a logarithmic number of times. A session can be in several runs until it fires or is
written: then all rows of its key are found by binary search for the hash, and merged. A hash only
finds rows; keys are compared as they are.

With a backend on disk the rows of large runs are there, see ``kept_rows``; in memory are about 30
bytes a row.

Invariants, checked by ``tests/operators/test_sessions_model.py``:
    I1  a session fires once, when the watermark is past its end plus the allowed lateness
    I2  no row is late that comes before the watermark has passed its time plus that lateness
    I3  each row counts in one session, or as late

``take_changes`` returns whole sessions, not what was added to them. So in a chain of changes the
newest version of a session replaces the earlier ones, its end never goes back, and rows that have
expired can be left out before anything is merged.
"""

# What Arrow hands to numpy is Any, and what numpy makes of it is unknown.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.accumulators import ROW_COUNT, Accumulator, merge
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.arrow import empty_table
from laminar_core.codec.stable_hash import UInt64Array, hash_columns
from laminar_core.state.changed_keys import ChangedKeys
from laminar_core.state.chunks import Chunk, Shelf
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.kept_rows import (
    Room,
    Rows,
    common_cuts,
    groups_of,
    hash_ranges,
    is_held,
    rows_per_block,
    upper_halves,
)
from laminar_core.state.keyed_rows import same_keys
from laminar_core.state.session_rows import (
    Codes,
    Sessions,
    find_sessions,
    joined_lists,
    key_codes,
    times_of,
)
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE, WINDOW_START

FIRED_KEYS_MAX = 262_144
"""Sessions of so many keys are merged together when they fire."""
EMITTED = "_emitted"
"""The column of lists of the early results that were emitted of a session, if it has any."""
_ALL_SESSIONS = 0  # Keys that have changed are noted for no pane in particular.
_SIZE_RATIO = 2
_NUMBER = "session number"  # No accumulator has such a name.

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SessionLayout:
    """``schema``: the keys, ``window_start``, ``_expires`` (the end), the accumulators.

    With early results, ``_emitted`` is the last column.
    """

    keys: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    schema: pa.Schema
    gap_us: int
    lateness_us: int

    @property
    def stored_schema(self) -> pa.Schema:
        """The schema in a checkpoint.

        The key group is int32, because Spark has no unsigned integers.
        """
        return self.schema.insert(0, pa.field(KEY_GROUP, pa.int32()))

    def expired_us(self, watermark_us: int | None) -> int | None:
        """Return up to which end sessions have been emitted; None: no watermark is known."""
        return None if watermark_us is None else watermark_us - self.lateness_us - 1


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Partial sessions, and for each the hash of its key and whether it changed since a cut."""

    rows: Rows
    hashes: UInt64Array
    starts: Integers
    ends: Integers
    changed: Flags

    @classmethod
    def of(cls, rows: pa.Table, keys: Sequence[str]) -> "_Pieces":
        columns = [as_array(rows.column(key)) for key in keys]
        hashes = hash_columns(columns, rows.num_rows)
        starts, ends = times_of(rows, WINDOW_START), times_of(rows, EXPIRES)
        return cls(rows, hashes, starts, ends, np.ones(rows.num_rows, np.bool_))

    @classmethod
    def together(cls, parts: Sequence["_Pieces"], layout: SessionLayout) -> "_Pieces":
        none, rows = np.empty(0, np.int64), [part.table for part in parts]
        return cls(
            pa.concat_tables([empty_table(layout.schema), *rows]) if len(rows) != 1 else rows[0],
            np.concatenate([none.astype(np.uint64), *(part.hashes for part in parts)]),
            np.concatenate([none, *(part.starts for part in parts)]),
            np.concatenate([none, *(part.ends for part in parts)]),
            np.concatenate([none.astype(np.bool_), *(part.changed for part in parts)]),
        )

    @property
    def table(self) -> pa.Table:
        """The rows, which are in memory."""
        assert is_held(self.rows), "the rows are on the shelf"
        return self.rows

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, at: Integers) -> "_Pieces":
        return _Pieces(
            self.rows.take(pa.array(at)),
            self.hashes[at],
            self.starts[at],
            self.ends[at],
            self.changed[at],
        )

    def where(self, wanted: Flags) -> "_Pieces":
        return self if wanted.all() else self.take(np.flatnonzero(wanted))


@dataclass(slots=True, eq=False)
class _Run:
    """Pieces sorted by hash and start, without two that touch; ``dead`` ones are gone."""

    pieces: _Pieces
    dead: Flags

    def alive(self) -> _Pieces:
        return self.pieces.where(~self.dead)

    def alive_count(self) -> int:
        return len(self.dead) - int(np.count_nonzero(self.dead))

    def positions(self, hashes: UInt64Array) -> Integers:
        """Return where the pieces with these hashes are that are alive."""
        first = np.searchsorted(self.pieces.hashes, hashes, "left")
        counts = np.searchsorted(self.pieces.hashes, hashes, "right") - first
        at = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        return at[~self.dead[at]]

    def alive_in(self, some: slice) -> _Pieces:
        """Read the pieces of a range of positions that are alive."""
        return self.pieces.take(some.start + np.flatnonzero(~self.dead[some]))

    def pin(self) -> "_Run":
        return _Run(self.pieces, self.dead.copy())


@dataclass(frozen=True, slots=True, eq=False)
class PinnedSessions:
    """Sessions as they were at a cut; reading them changes nothing."""

    runs: tuple[_Run, ...]
    layout: SessionLayout
    only_changed: bool

    def stored_tables(self, max_parallelism: int) -> Iterator[pa.Table]:
        """Yield the tables of a checkpoint: whole sessions, sorted by key group.

        The key groups of each table are below the next one's. None is empty.
        """
        size_bytes = sum(run.pieces.rows.nbytes for run in self.runs)
        uppers = [upper_halves(run.pieces.hashes) for run in self.runs]
        for first, stop in hash_ranges(size_bytes, max_parallelism):
            slices = [slice(*np.searchsorted(upper, [first, stop])) for upper in uppers]
            whole = self._whole(slices)
            if len(whole):
                groups = pa.array(groups_of(upper_halves(whole.hashes), max_parallelism))
                rows = whole.table.combine_chunks()
                yield rows.add_column(0, self.layout.stored_schema.field(KEY_GROUP), [groups])

    def _whole(self, slices: Sequence[slice]) -> _Pieces:
        """Return the sessions in these ranges of each run."""
        if not self.only_changed:
            parts = [run.alive_in(some) for run, some in zip(self.runs, slices, strict=True)]
            return merged_pieces(_Pieces.together(parts, self.layout), self.layout)
        of_changed = [np.empty(0, np.uint64)]
        for run, some in zip(self.runs, slices, strict=True):
            is_changed = run.pieces.changed[some] & ~run.dead[some]
            of_changed.append(run.pieces.hashes[some][is_changed])
        hashes = np.unique(np.concatenate(of_changed))
        parts = [run.pieces.take(run.positions(hashes)) for run in self.runs]
        whole = merged_pieces(_Pieces.together(parts, self.layout), self.layout)
        return whole.where(whole.changed)


class SessionState:
    """The sessions that one subtask holds open."""

    def __init__(
        self,
        layout: SessionLayout,
        shelf: Shelf | None = None,
        changed: ChangedKeys | None = None,
    ) -> None:
        self.watermark_us: int | None = None
        self.late_row_count = 0
        """Input rows dropped because the watermark had passed them."""
        self._layout = layout
        self._room = Room(layout.schema, shelf)
        self._changed = changed
        self._runs: list[_Run] = []
        self._least_end_us: int | None = None
        """No piece that is alive ends before it; None: there is none."""

    @property
    def row_count(self) -> int:
        """Number of rows that are kept, including dead ones."""
        return sum(len(run.pieces) for run in self._runs)

    @property
    def expired_us(self) -> int | None:
        """Sessions that end then or before have been emitted."""
        return self._layout.expired_us(self.watermark_us)

    def add(self, rows: pa.Table) -> None:
        """Take partial sessions of any keys; drop and count what is late.

        A partial session is as late as its last row. Rows that may be late come one by one, see
        ``operators.sessions``.
        """
        rows = self._without_late(rows)
        if rows.num_rows:
            self._append(_Pieces.of(rows, self._layout.keys))

    def advance(self, watermark_us: int) -> Iterator[pa.Table]:
        """Fire every session whose end, lateness included, is before ``watermark_us``.

        The tables have the layout's schema, one row per session; each is in the order of ends.
        Nothing else may be called before all are consumed.
        """
        if self.watermark_us is not None and watermark_us <= self.watermark_us:
            return
        self.watermark_us = watermark_us
        before_us = watermark_us - self._layout.lateness_us
        if self._least_end_us is None or self._least_end_us >= before_us:
            return
        due = [run.pieces.hashes[(run.pieces.ends < before_us) & ~run.dead] for run in self._runs]
        hashes = np.unique(np.concatenate(due))
        for first in range(0, len(hashes), FIRED_KEYS_MAX):
            fired = self._fire(hashes[first : first + FIRED_KEYS_MAX], before_us)
            if fired.num_rows:
                yield fired
        self._sweep()

    def take_changed(self) -> Iterator[_Pieces]:
        """Take the open sessions out whose keys got rows since the last call, each as a whole.

        Each part has to be ``put_back`` before the next one is taken.
        """
        assert self._changed is not None, "no changed keys are noted"
        hashes = np.unique(self._changed.take().get(_ALL_SESSIONS, np.empty(0, np.uint64)))
        for first in range(0, len(hashes), FIRED_KEYS_MAX):
            some = self._take_out(hashes[first : first + FIRED_KEYS_MAX])
            if len(some):
                yield some
        if len(hashes):
            self._sweep()

    def put_back(self, sessions: _Pieces, emitted: pa.Array, differs: Flags) -> None:
        """Keep sessions with other lists of early results; ``differs``: whether a list is new."""
        at = self._layout.schema.get_field_index(EMITTED)
        rows = sessions.table.set_column(at, self._layout.schema.field(at), emitted)
        changed = sessions.changed | differs
        self._runs.append(_living(replace(sessions, rows=rows, changed=changed)))

    def output_watermark(self, watermark_us: int) -> int:
        """Return what no session that is still to fire ends before; an open one ends after it."""
        reached_us = watermark_us - self._layout.lateness_us
        if self._least_end_us is None:
            return reached_us
        return min(reached_us, self._least_end_us - 1)

    def pin(self) -> PinnedSessions:
        """Hold on to all sessions as they are now, without copying any."""
        return PinnedSessions(
            tuple(run.pin() for run in self._runs), self._layout, only_changed=False
        )

    def take_changes(self) -> PinnedSessions:
        """Hold on to the sessions that changed since the last call, each as a whole."""
        changes = PinnedSessions(
            tuple(run.pin() for run in self._runs), self._layout, only_changed=True
        )
        for run in self._runs:
            at = run.pieces
            unchanged = np.zeros(len(at), np.bool_)
            run.pieces = _Pieces(at.rows, at.hashes, at.starts, at.ends, unchanged)
        return changes

    def restore(
        self, tables: Iterable[pa.Table], watermark_us: int | None, late_row_count: int
    ) -> None:
        """Start from ``tables`` of whole sessions; to ``take_changes`` all of it is new."""
        assert not self._runs, "restore comes before any row"
        self.watermark_us = watermark_us
        self.late_row_count = late_row_count
        for rows in tables:
            if rows.num_rows:
                self._append(_Pieces.of(rows, self._layout.keys))

    def _without_late(self, rows: pa.Table) -> pa.Table:
        if self.watermark_us is None:
            return rows
        last_rows = times_of(rows, EXPIRES) - self._layout.gap_us
        late = last_rows < self.watermark_us - self._layout.lateness_us
        if not late.any():
            return rows
        self.late_row_count += row_count_of(rows, late)
        return rows.filter(pa.array(~late))

    def _fire(self, hashes: UInt64Array, before_us: int) -> pa.Table:
        """Take the sessions with these hashes out; put back those that are still open."""
        whole = self._take_out(hashes)
        ended = whole.ends < before_us
        if not ended.all():
            left = whole.where(~ended)
            self._runs.append(_living(left))
        fired = whole.where(ended)
        return fired.table.take(pa.array(np.argsort(fired.ends, kind="stable")))

    def _take_out(self, hashes: UInt64Array) -> _Pieces:
        """Take the sessions with these hashes out, each as a whole."""
        taken: list[_Pieces] = []
        for run in self._runs:
            at = run.positions(hashes)
            taken.append(run.pieces.take(at))
            run.dead[at] = True
        return merged_pieces(_Pieces.together(taken, self._layout), self._layout)

    def _append(self, pieces: _Pieces) -> None:
        least_us = int(pieces.ends.min())
        if self._least_end_us is None or least_us < self._least_end_us:
            self._least_end_us = least_us
        merged = merged_pieces(pieces, self._layout)
        if self._changed is not None:
            self._changed.note(_ALL_SESSIONS, merged.hashes)
        self._runs.append(_living(merged))
        self._tidy()

    def _sweep(self) -> None:
        """Let go of what has fired, where it is more than half of a run."""
        kept: list[_Run] = []
        for run in self._runs:
            alive = run.alive_count()
            if 2 * alive < len(run.pieces):
                run = self._joined([run])  # noqa: PLW2901 - the same sessions
            if alive:
                kept.append(run)
        self._runs = kept
        self._tidy()
        ends = [run.pieces.ends[~run.dead] for run in self._runs]
        self._least_end_us = min((int(of.min()) for of in ends if len(of)), default=None)

    def _tidy(self) -> None:
        """Let neighbours become one where they are alike."""
        for at in range(len(self._runs) - 2, -1, -1):
            older, newer = self._runs[at : at + 2]
            if len(older.pieces) <= _SIZE_RATIO * len(newer.pieces):
                self._runs[at : at + 2] = [self._joined([older, newer])]
        for at in self._room.overfull([run.pieces.rows for run in self._runs]):
            self._runs[at] = self._put_away([self._runs[at]])

    def _joined(self, runs: Sequence[_Run]) -> _Run:
        """Make one run of those that are alive."""
        if not all(is_held(run.pieces.rows) for run in runs):
            return self._put_away(runs)
        alive = _Pieces.together([run.alive() for run in runs], self._layout)
        return _living(alive if len(runs) == 1 else merged_pieces(alive, self._layout))

    def _put_away(self, runs: Sequence[_Run]) -> _Run:
        """Make one run of those that are alive, with its rows on the shelf."""
        size = rows_per_block([run.pieces.rows for run in runs], sum(len(r.pieces) for r in runs))
        blocks: list[Chunk] = []
        columns: list[_Pieces] = []
        for slices in common_cuts([run.pieces.hashes for run in runs], size):
            parts = [run.alive_in(some) for run, some in zip(runs, slices, strict=True)]
            part = merged_pieces(_Pieces.together(parts, self._layout), self._layout)
            blocks += self._room.put(part.table, 0, upper_halves(part.hashes))
            columns.append(replace(part, rows=part.table.slice(0, 0)))
        whole = _Pieces.together(columns, self._layout)
        return _living(replace(whole, rows=self._room.rows_in(blocks)))


def _living(pieces: _Pieces) -> _Run:
    return _Run(pieces, np.zeros(len(pieces), np.bool_))


def merged_pieces(pieces: _Pieces, layout: SessionLayout) -> _Pieces:
    """Merge pieces that touch; the result is sorted by hash and start.

    Raises:
        DataError: a sum leaves its type (ARITHMETIC_OVERFLOW).
    """
    sessions = find_sessions(pieces.hashes, pieces.starts, pieces.ends)
    if not _are_of_one_key(pieces, sessions, layout.keys):
        sessions = find_sessions(_exact_codes(pieces, layout.keys), pieces.starts, pieces.ends)
    order, firsts = sessions.order, sessions.firsts
    if len(firsts) == len(pieces):
        return pieces.take(order)
    first_rows = order[firsts]
    accumulated = _merged_accumulators(pieces.table, sessions, layout.accumulators)
    starts = pieces.starts[first_rows]
    columns = {key: pieces.table.column(key).take(pa.array(first_rows)) for key in layout.keys}
    columns[WINDOW_START] = pa.chunked_array([pa.array(starts).cast(TIME_TYPE)])
    columns[EXPIRES] = pa.chunked_array([pa.array(sessions.ends).cast(TIME_TYPE)])
    columns |= {name: accumulated.column(name) for name in accumulated.column_names}
    if EMITTED in layout.schema.names:
        lists = joined_lists(as_array(pieces.table.column(EMITTED)), sessions)
        columns[EMITTED] = pa.chunked_array([lists])
    rows = pa.Table.from_arrays(
        [columns[name] for name in layout.schema.names], layout.schema.names
    )
    changed = np.logical_or.reduceat(pieces.changed[order], firsts)
    hashes = pieces.hashes[first_rows]
    return _Pieces(rows.cast(layout.schema), hashes, starts, sessions.ends, changed)


def _merged_accumulators(
    rows: pa.Table, sessions: Sessions, accumulators: Sequence[Accumulator]
) -> pa.Table:
    names = [needs.name for needs in accumulators]
    state = rows.select(names).append_column(_NUMBER, [pa.array(sessions.of_rows())])
    merged = merge(state, [_NUMBER], accumulators)
    numbers = merged.column(_NUMBER).to_numpy()
    if (np.diff(numbers) > 0).all():
        return merged.select(names)
    return merged.select(names).take(pa.array(np.argsort(numbers)))


def _are_of_one_key(pieces: _Pieces, sessions: Sessions, keys: Sequence[str]) -> bool:
    """Return whether all rows with one hash have one key, as is almost always so."""
    sorted_hashes = pieces.hashes[sessions.order]
    same = np.flatnonzero(sorted_hashes[1:] == sorted_hashes[:-1])
    of = pieces.table.select(list(keys))
    left = of.take(pa.array(sessions.order[same]))
    right = of.take(pa.array(sessions.order[same + 1]))
    return bool(same_keys(left, right).all())


def _exact_codes(pieces: _Pieces, keys: Sequence[str]) -> Codes:
    """Number the keys in the order of their hashes."""
    exact = key_codes([pieces.table.column(key) for key in keys], len(pieces))
    order = np.lexsort((exact, pieces.hashes))
    is_new = (np.diff(exact[order]) != 0) | (pieces.hashes[order][1:] != pieces.hashes[order][:-1])
    codes = np.empty(len(pieces), np.int64)
    codes[order] = np.append(0, np.cumsum(is_new))
    return codes


def row_count_of(rows: pa.Table, chosen: Flags) -> int:
    """Return how many input rows the chosen partial sessions have."""
    counts = rows.column(ROW_COUNT.name).filter(pa.array(chosen))
    return call_function("sum", [counts]).as_py() or 0
