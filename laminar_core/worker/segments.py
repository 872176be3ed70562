"""Write the state of one worker's operators as segments, and merge long chains.

Everything but the merging is called from the one background thread that writes snapshots. Tables
are computed one at a time, as they are written. Changes that could not be written are kept, and
written with the next ones, because the operator no longer counts them as new. A segment that was
attempted once gets a new name the next time, because the first attempt may have succeeded with
other bytes.

Source: PROTOCOL section 12; O'Neil et al. 1996, "The log-structured merge-tree", for the merging.
"""

# What Arrow hands to numpy is Any, and what numpy makes of it is unknown.
# pyright: reportUnknownArgumentType=false

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from queue import Empty, SimpleQueue

import numpy as np
import pyarrow as pa

from laminar_core.errors import CheckpointDeclined, CorruptCheckpointError, ErrorCode
from laminar_core.operators.base import Snapshot, StateTable
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.segment import SegmentRef, by_table, total_bytes
from laminar_core.state.segment_chain import (
    MERGED_BYTES_MAX,
    merging_ranges,
    open_segments,
    plan_compaction,
    replaced,
    runs_of,
)
from laminar_core.state.window_layout import KEY_GROUP
from laminar_core.store.checkpoint_store import CheckpointStore

CHAIN_FACTOR_MAX = 4
"""Merging may lag behind; a chain so many times too long costs checkpoints."""

MergeTables = Callable[[str, Iterable[pa.Table], int | None], Iterable[pa.Table]]
"""``IncrementalSubtask.merge_tables``."""

_MergeOne = Callable[[Iterable[pa.Table], int | None], Iterable[pa.Table]]
ReadSegment = Callable[[SegmentRef], pa.Table]

_Place = tuple[str, str]
"""An operator, and one of its tables."""


class NotMadeError(Exception):
    """The tables of a snapshot could not be computed; the cause has the reason.

    Unlike a failed write this cannot be retried: the changes are lost with the snapshot.
    """


@dataclass(slots=True)
class _Chain:
    """The segments of one table."""

    segments: tuple[SegmentRef, ...] = ()
    compacting: bool = False
    problem: str = ""
    """The reason why the last merge failed."""


@dataclass(slots=True)
class _Operator:
    """The chains of one operator's state, a table each, and its pending changes."""

    chains: dict[str, _Chain] = field(default_factory=dict[str, _Chain])
    unmade: deque[Iterator[StateTable]] = field(default_factory=deque[Iterator[StateTable]])
    """Changes whose tables are not all computed."""
    unwritten: deque[StateTable] = field(default_factory=deque[StateTable])
    """Tables to be written, older than ``unmade``."""
    written_bytes: int = 0
    """Bytes written since the last reported checkpoint."""

    def chain(self, table: str) -> _Chain:
        return self.chains.setdefault(table, _Chain())

    @property
    def segments(self) -> tuple[SegmentRef, ...]:
        return tuple(s for name in sorted(self.chains) for s in self.chains[name].segments)


@dataclass(frozen=True, slots=True)
class _Compacted:
    operator_id: str
    table: str
    merged: tuple[SegmentRef, ...]
    by: tuple[SegmentRef, ...] | None
    """None: it failed, and the chain stays as it is."""
    problem: str = ""


class SegmentWriter:
    """The segments of all operators of one worker."""

    def __init__(
        self,
        store: CheckpointStore,
        generation: Generation,
        subtask_index: int,
        options: StateOptions,
        compactions: Executor,
        keyed: Collection[str],
    ) -> None:
        """``keyed``: operators whose column of key groups is their own, and not one of a user."""
        self.store = store
        self._generation = generation
        self.subtask_index = subtask_index
        self._options = options
        self._compactions = compactions
        self._keyed = keyed
        self._operators: dict[str, _Operator] = {}
        self._sequence = count()
        self._compacted: SimpleQueue[_Compacted] = SimpleQueue()
        self._unreadable: SimpleQueue[tuple[str, SegmentRef]] = SimpleQueue()
        """Operators, and files of theirs that were to be merged and are not what was written."""

    def adopt(self, operator_id: str, segments: Iterable[SegmentRef]) -> None:
        """Continue the chains of a restored checkpoint."""
        chains = {table: _Chain(chain) for table, chain in by_table(segments).items()}
        self._operators[operator_id] = _Operator(chains)

    def write_all(
        self, checkpoint_id: CheckpointId, operator_id: str, tables: Iterable[StateTable]
    ) -> tuple[SegmentRef, ...]:
        """Write a state whose files belong to this checkpoint alone.

        Raises:
            LaminarError: the store did not accept a file.
            NotMadeError: a table could not be computed.
        """
        is_keyed = operator_id in self._keyed
        return tuple(
            self.store.parts.write_state(
                checkpoint_id,
                operator_id,
                self.subtask_index,
                table.rows,
                name=table.name,
                part=part,
                compression=self._options.compression,
                is_keyed=is_keyed,
            )
            for part, table in enumerate(_made(tables, is_keyed=is_keyed))
        )

    def add_changes(self, operator_id: str, snapshot: Snapshot, *, renews: bool = False) -> None:
        """Remember what changed; ``write_changes`` writes it.

        ``renews``: it is everything, and what was written or remembered before counts no more.
        """
        operator = self._operators.setdefault(operator_id, _Operator())
        if renews:
            for chain in operator.chains.values():
                chain.segments, chain.problem = (), ""
            operator.unmade.clear()
            operator.unwritten.clear()
        operator.unmade.append(_made(snapshot.tables))
        for name, chain in operator.chains.items():
            chain.segments = open_segments(chain.segments, snapshot.expired_us.get(name))

    def write_changes(
        self, operator_id: str, expired_us: Mapping[str, int], merge: MergeTables
    ) -> tuple[SegmentRef, ...]:
        """Write what is not written yet; returns the whole chains, table by table.

        ``expired_us``: as in a snapshot.

        Raises:
            LaminarError: the store did not take it; it is still remembered.
            NotMadeError: what changed is lost.
        """
        self._take_compacted()
        operator = self._operators.setdefault(operator_id, _Operator())
        if len(operator.unmade) + len(operator.unwritten) > 1:
            _merge_small(operator, expired_us, merge)
        while _make_one(operator):
            table = operator.unwritten[0]
            segment = self._write_shared(operator_id, table.name, table.rows)
            operator.unwritten.popleft()
            operator.chain(table.name).segments += (segment,)
            operator.written_bytes += segment.size_bytes
        for name, chain in operator.chains.items():
            self._compact_if_long((operator_id, name), chain, expired_us.get(name), merge)
        for name, chain in operator.chains.items():
            self._require_short((operator_id, name), chain)
        return operator.segments

    def take_unreadable(self) -> Iterator[tuple[str, SegmentRef]]:
        """Yield operators, and files of theirs that cannot be read; for the worker's thread."""
        with suppress(Empty):
            while True:
                yield self._unreadable.get_nowait()

    def take_written_bytes(self, operator_id: str) -> int:
        """Return the bytes uploaded for this operator since the last call, including merges."""
        operator = self._operators[operator_id]
        written_bytes, operator.written_bytes = operator.written_bytes, 0
        return written_bytes

    def _write_shared(self, operator_id: str, name: str, table: pa.Table) -> SegmentRef:
        return self.store.parts.write_shared(
            operator_id,
            self._generation,
            self.subtask_index,
            next(self._sequence),
            table,
            name=name,
            compression=self._options.compression,
        )

    # --- merging --------------------------------------------------------------------------------

    def _compact_if_long(
        self, place: _Place, chain: _Chain, expired_us: int | None, merge: MergeTables
    ) -> None:
        runs = runs_of(chain.segments)
        sizes = [total_bytes(chain.segments[run.start : run.stop]) for run in runs]
        planned = plan_compaction(sizes, self._options.segments_max)
        if planned is None or chain.compacting:
            return
        chain.compacting = True
        merged = chain.segments[runs[planned.start].start :]
        self._compactions.submit(self._compact, place, merged, expired_us, merge)

    def _require_short(self, place: _Place, chain: _Chain) -> None:
        """Refuse a checkpoint with a chain too long, once all that can be merged is on its way."""
        count_now = len(runs_of(chain.segments))
        if count_now > CHAIN_FACTOR_MAX * self._options.segments_max:
            slow = "as fast as new ones come: checkpoint less often, or raise segments_max"
            operator_id, table = place
            which = f"table {table} of {operator_id}" if table else f"the state of {operator_id}"
            raise CheckpointDeclined(
                ErrorCode.SNAPSHOT_FAILED,
                f"{which} is in {count_now} parts, which are not merged "
                + (f"because that failed: {chain.problem}" if chain.problem else slow),
            )

    def _compact(
        self,
        place: _Place,
        merged: Sequence[SegmentRef],
        expired_us: int | None,
        merge: MergeTables,
    ) -> None:
        """Runs in a thread of its own; the chain learns of it with the next checkpoint."""
        operator_id, table = place
        try:
            read = partial(self._read, operator_id)
            tables = self._merged(merged, expired_us, partial(merge, table), read)
            by = tuple(self._write_shared(*place, rows) for rows in tables if rows.num_rows)
            done = _Compacted(operator_id, table, tuple(merged), by)
        except Exception as error:  # noqa: BLE001 - told, once the chain is too long without it
            done = _Compacted(operator_id, table, tuple(merged), None, str(error) or repr(error))
        self._compacted.put(done)

    def _read(self, operator_id: str, segment: SegmentRef) -> pa.Table:
        try:
            return self.store.parts.read_state(segment)
        except CorruptCheckpointError:
            self._unreadable.put((operator_id, segment))
            raise

    def _merged(
        self,
        segments: Sequence[SegmentRef],
        expired_us: int | None,
        merge: _MergeOne,
        read: ReadSegment,
    ) -> Iterator[pa.Table]:
        """Merge range by range, if it is much; a segment is in memory as long as ranges meet it."""
        ranges = merging_ranges(segments)
        if ranges is None:
            yield from merge(map(read, segments), expired_us)
            return
        opened: dict[str, pa.Table] = {}
        for groups in ranges:
            yield from merge(_rows_of(groups, segments, opened, read), expired_us)

    def _take_compacted(self) -> None:
        while True:
            try:
                done = self._compacted.get_nowait()
            except Empty:
                return
            operator = self._operators[done.operator_id]
            chain = operator.chain(done.table)
            chain.compacting, chain.problem = False, done.problem
            if done.by is not None:
                chain.segments = replaced(chain.segments, done.merged, done.by)
                operator.written_bytes += total_bytes(done.by)


def _rows_of(
    groups: range,
    segments: Sequence[SegmentRef],
    opened: dict[str, pa.Table],
    read: ReadSegment,
) -> Iterator[pa.Table]:
    for segment in segments:
        assert segment.key_groups is not None, "or all is merged at once"
        start, stop = segment.key_groups
        if start < groups.stop and groups.start < stop:
            table = opened.pop(segment.path, None)
            table = read(segment) if table is None else table
            if stop > groups.stop:
                opened[segment.path] = table
            of_row = table.column(KEY_GROUP).to_numpy()
            inside = (of_row >= groups.start) & (of_row < groups.stop)
            yield table.filter(pa.array(inside))


# --- tables that wait to be written -------------------------------------------------------------


def _made(tables: Iterable[StateTable], *, is_keyed: bool = True) -> Iterator[StateTable]:
    """Make tables, one at a time, those with rows; a large one is cut at key groups."""
    source = iter(tables)
    while True:
        try:
            table = next(source, None)
        except Exception as error:
            raise NotMadeError(str(error)) from error
        if table is None:
            return
        if table.rows.num_rows:
            for rows in _cut(table.rows) if is_keyed else (table.rows,):
                yield StateTable(table.name, rows)


def _cut(table: pa.Table) -> Iterator[pa.Table]:
    """Cut a table that is sorted by key group into disjoint ones of a size that merges well."""
    parts = -(-table.nbytes // (2 * MERGED_BYTES_MAX))
    if parts == 1 or KEY_GROUP not in table.schema.names:
        yield table
        return
    of_row = table.column(KEY_GROUP).to_numpy()
    wanted = of_row[np.arange(1, parts) * len(of_row) // parts]
    bounds = np.unique([0, *np.searchsorted(of_row, wanted), len(of_row)]).tolist()
    for start, stop in pairwise(bounds):
        yield table.slice(start, stop - start)


def _make_one(operator: _Operator) -> bool:
    """See to it that a table waits to be written; False: there is none."""
    while operator.unmade and not operator.unwritten:
        table = next(operator.unmade[0], None)
        if table is None:
            operator.unmade.popleft()
        else:
            operator.unwritten.append(table)
    return bool(operator.unwritten)


def _merge_small(operator: _Operator, expired_us: Mapping[str, int], merge: MergeTables) -> None:
    """Make one run per table of several changes, if together they are no more than merges well."""
    size_bytes = sum(table.rows.nbytes for table in operator.unwritten)
    while operator.unmade and size_bytes <= MERGED_BYTES_MAX:
        table = next(operator.unmade[0], None)
        if table is None:
            operator.unmade.popleft()
        else:
            operator.unwritten.append(table)
            size_bytes += table.rows.nbytes
    if operator.unmade:
        return
    waiting: dict[str, list[pa.Table]] = {}
    for table in operator.unwritten:
        waiting.setdefault(table.name, []).append(table.rows)
    operator.unwritten = deque(
        StateTable(name, rows)
        for name, tables in waiting.items()
        for rows in (merge(name, tables, expired_us.get(name)) if len(tables) > 1 else tables)
        if rows.num_rows
    )
