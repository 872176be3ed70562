"""Open sessions of a subtask: partial sessions in sorted runs, merged when needed.

Adding rows appends a run: partial sessions, sorted by the hash of their key. Two neighbouring runs
become one when the older has at most twice the rows of the newer. So there are few runs, and each
row is copied a logarithmic number of times. A session can be in several runs until it fires or is
written: then all rows of its key are found by binary search for the hash, and merged. A hash only
finds rows; keys are compared as they are.

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
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.accumulators import ROW_COUNT, Accumulator, merge
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.key_groups import key_groups
from laminar_core.codec.stable_hash import UInt64Array, hash_columns
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.keyed_rows import same_keys
from laminar_core.state.session_rows import (
    Codes,
    Sessions,
    find_sessions,
    key_codes,
    times_of,
)
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE, WINDOW_START

FIRED_KEYS_MAX = 262_144
"""Sessions of so many keys are merged together when they fire."""
_SIZE_RATIO = 2
_NUMBER = "session number"  # No accumulator has such a name.

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SessionLayout:
    """``schema``: the keys, ``window_start``, ``_expires`` (the end), the accumulators."""

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

    rows: pa.Table
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
    def together(cls, parts: Sequence["_Pieces"]) -> "_Pieces":
        if len(parts) == 1:
            return parts[0]
        return cls(
            pa.concat_tables([part.rows for part in parts]),
            np.concatenate([part.hashes for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.ends for part in parts]),
            np.concatenate([part.changed for part in parts]),
        )

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

    def pin(self) -> "_Run":
        return _Run(self.pieces, self.dead.copy())


@dataclass(frozen=True, slots=True, eq=False)
class PinnedSessions:
    """Sessions as they were at a cut; reading them changes nothing."""

    runs: tuple[_Run, ...]
    layout: SessionLayout
    only_changed: bool

    def stored_table(self, max_parallelism: int) -> pa.Table:
        """Build the table of a checkpoint: whole sessions, sorted by key group."""
        parts = [run.alive() for run in self.runs]
        if self.only_changed and parts:
            hashes = np.unique(np.concatenate([part.hashes[part.changed] for part in parts]))
            parts = [run.pieces.take(run.positions(hashes)) for run in self.runs]
        if not parts:
            return self.layout.stored_schema.empty_table()
        whole = merged_pieces(_Pieces.together(parts), self.layout)
        if self.only_changed:
            whole = whole.where(whole.changed)
        groups = pa.array(key_groups(whole.hashes, max_parallelism).astype(np.int32))
        field = self.layout.stored_schema.field(KEY_GROUP)
        return whole.rows.add_column(0, field, [groups]).combine_chunks()


class SessionState:
    """The sessions that one subtask holds open."""

    def __init__(self, layout: SessionLayout) -> None:
        self.watermark_us: int | None = None
        self.late_row_count = 0
        """Input rows dropped because the watermark had passed them."""
        self._layout = layout
        self._runs: list[_Run] = []
        self._least_end_us: int | None = None
        """No piece that is alive ends before it; None: there is none."""

    @property
    def row_count(self) -> int:
        """Number of rows in memory, including dead ones."""
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
        taken: list[_Pieces] = []
        for run in self._runs:
            at = run.positions(hashes)
            taken.append(run.pieces.take(at))
            run.dead[at] = True
        whole = merged_pieces(_Pieces.together(taken), self._layout)
        ended = whole.ends < before_us
        if not ended.all():
            left = whole.where(~ended)
            self._runs.append(_Run(left, np.zeros(len(left), np.bool_)))
        fired = whole.where(ended)
        return fired.rows.take(pa.array(np.argsort(fired.ends, kind="stable")))

    def _append(self, pieces: _Pieces) -> None:
        least_us = int(pieces.ends.min())
        if self._least_end_us is None or least_us < self._least_end_us:
            self._least_end_us = least_us
        merged = merged_pieces(pieces, self._layout)
        self._runs.append(_Run(merged, np.zeros(len(merged), np.bool_)))
        self._tidy()

    def _sweep(self) -> None:
        """Let go of what has fired, where it is more than half of a run."""
        kept: list[_Run] = []
        for run in self._runs:
            alive = run.alive_count()
            if 2 * alive < len(run.pieces):
                run = _Run(run.alive(), np.zeros(alive, np.bool_))  # noqa: PLW2901
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
                both = _Pieces.together([older.alive(), newer.alive()])
                merged = merged_pieces(both, self._layout)
                self._runs[at : at + 2] = [_Run(merged, np.zeros(len(merged), np.bool_))]


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
    accumulated = _merged_accumulators(pieces.rows, sessions, layout.accumulators)
    starts = pieces.starts[first_rows]
    columns = {key: pieces.rows.column(key).take(pa.array(first_rows)) for key in layout.keys}
    columns[WINDOW_START] = pa.chunked_array([pa.array(starts).cast(TIME_TYPE)])
    columns[EXPIRES] = pa.chunked_array([pa.array(sessions.ends).cast(TIME_TYPE)])
    columns |= {name: accumulated.column(name) for name in accumulated.column_names}
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
    of = pieces.rows.select(list(keys))
    left = of.take(pa.array(sessions.order[same]))
    right = of.take(pa.array(sessions.order[same + 1]))
    return bool(same_keys(left, right).all())


def _exact_codes(pieces: _Pieces, keys: Sequence[str]) -> Codes:
    """Number the keys in the order of their hashes."""
    exact = key_codes([pieces.rows.column(key) for key in keys], len(pieces))
    order = np.lexsort((exact, pieces.hashes))
    is_new = (np.diff(exact[order]) != 0) | (pieces.hashes[order][1:] != pieces.hashes[order][:-1])
    codes = np.empty(len(pieces), np.int64)
    codes[order] = np.append(0, np.cumsum(is_new))
    return codes


def row_count_of(rows: pa.Table, chosen: Flags) -> int:
    """Return how many input rows the chosen partial sessions have."""
    counts = rows.column(ROW_COUNT.name).filter(pa.array(chosen))
    return call_function("sum", [counts]).as_py() or 0
