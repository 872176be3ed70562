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
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from queue import Empty, SimpleQueue

import numpy as np
import pyarrow as pa

from laminar_core.errors import CheckpointDeclined, CorruptCheckpointError, ErrorCode
from laminar_core.operators.base import Snapshot
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.segment import SegmentRef, total_bytes
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

MergeTables = Callable[[Iterable[pa.Table], int | None], Iterable[pa.Table]]
"""``IncrementalSubtask.merge_tables``."""

ReadSegment = Callable[[SegmentRef], pa.Table]


class NotMadeError(Exception):
    """The tables of a snapshot could not be computed; the cause has the reason.

    Unlike a failed write this cannot be retried: the changes are lost with the snapshot.
    """


@dataclass(slots=True)
class _Chain:
    """The segments and pending changes of one operator's state."""

    segments: tuple[SegmentRef, ...] = ()
    unmade: deque[Iterator[pa.Table]] = field(default_factory=deque[Iterator[pa.Table]])
    """Changes whose tables are not all computed."""
    unwritten: deque[pa.Table] = field(default_factory=deque[pa.Table])
    """Tables to be written, older than ``unmade``."""
    written_bytes: int = 0
    """Bytes written since the last reported checkpoint."""
    compacting: bool = False
    problem: str = ""
    """The reason why the last merge failed."""


@dataclass(frozen=True, slots=True)
class _Compacted:
    operator_id: str
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
    ) -> None:
        self.store = store
        self._generation = generation
        self.subtask_index = subtask_index
        self._options = options
        self._compactions = compactions
        self._chains: dict[str, _Chain] = {}
        self._sequence = count()
        self._compacted: SimpleQueue[_Compacted] = SimpleQueue()
        self._unreadable: SimpleQueue[tuple[str, SegmentRef]] = SimpleQueue()
        """Operators, and files of theirs that were to be merged and are not what was written."""

    def adopt(self, operator_id: str, segments: Iterable[SegmentRef]) -> None:
        """Continue the chain of a restored checkpoint."""
        self._chains[operator_id] = _Chain(tuple(segments))

    def write_all(
        self, checkpoint_id: CheckpointId, operator_id: str, tables: Iterable[pa.Table]
    ) -> tuple[SegmentRef, ...]:
        """Write a state whose files belong to this checkpoint alone.

        Raises:
            LaminarError: the store did not accept a file.
            NotMadeError: a table could not be computed.
        """
        return tuple(
            self.store.parts.write_state(
                checkpoint_id,
                operator_id,
                self.subtask_index,
                table,
                part=part,
                compression=self._options.compression,
            )
            for part, table in enumerate(_made(tables))
        )

    def add_changes(self, operator_id: str, snapshot: Snapshot, *, renews: bool = False) -> None:
        """Remember what changed; ``write_changes`` writes it.

        ``renews``: it is everything, and what was written or remembered before counts no more.
        """
        chain = self._chains.setdefault(operator_id, _Chain())
        if renews:
            chain.segments, chain.problem = (), ""
            chain.unmade.clear()
            chain.unwritten.clear()
        chain.unmade.append(_made(snapshot.tables))
        chain.segments = open_segments(chain.segments, snapshot.finished_window_us)

    def write_changes(
        self, operator_id: str, finished_window_us: int | None, merge: MergeTables
    ) -> tuple[SegmentRef, ...]:
        """Write what is not written yet; returns the whole chain.

        Raises:
            LaminarError: the store did not take it; it is still remembered.
            NotMadeError: what changed is lost.
        """
        self._take_compacted()
        chain = self._chains.setdefault(operator_id, _Chain())
        if len(chain.unmade) + len(chain.unwritten) > 1:
            _merge_small(chain, finished_window_us, merge)
        while _make_one(chain):
            segment = self._write_shared(operator_id, chain.unwritten[0])
            chain.unwritten.popleft()
            chain.segments += (segment,)
            chain.written_bytes += segment.size_bytes
        self._compact_if_long(operator_id, chain, finished_window_us, merge)
        return chain.segments

    def take_unreadable(self) -> Iterator[tuple[str, SegmentRef]]:
        """Yield operators, and files of theirs that cannot be read; for the worker's thread."""
        with suppress(Empty):
            while True:
                yield self._unreadable.get_nowait()

    def take_written_bytes(self, operator_id: str) -> int:
        """Return the bytes uploaded for this operator since the last call, including merges."""
        chain = self._chains[operator_id]
        written_bytes, chain.written_bytes = chain.written_bytes, 0
        return written_bytes

    def _write_shared(self, operator_id: str, table: pa.Table) -> SegmentRef:
        return self.store.parts.write_shared(
            operator_id,
            self._generation,
            self.subtask_index,
            next(self._sequence),
            table,
            compression=self._options.compression,
        )

    # --- merging --------------------------------------------------------------------------------

    def _compact_if_long(
        self, operator_id: str, chain: _Chain, finished_us: int | None, merge: MergeTables
    ) -> None:
        runs = runs_of(chain.segments)
        sizes = [total_bytes(chain.segments[run.start : run.stop]) for run in runs]
        planned = plan_compaction(sizes, self._options.segments_max)
        if planned is None:
            return
        if not chain.compacting:  # Before the chain is refused: nothing else can shorten it.
            chain.compacting = True
            merged = chain.segments[runs[planned.start].start :]
            self._compactions.submit(self._compact, operator_id, merged, finished_us, merge)
        if len(sizes) > CHAIN_FACTOR_MAX * self._options.segments_max:
            slow = "as fast as new ones come: checkpoint less often, or raise segments_max"
            raise CheckpointDeclined(
                ErrorCode.SNAPSHOT_FAILED,
                f"the state of {operator_id} is in {len(sizes)} parts, which are not merged "
                + (f"because that failed: {chain.problem}" if chain.problem else slow),
            )

    def _compact(
        self,
        operator_id: str,
        merged: Sequence[SegmentRef],
        finished_us: int | None,
        merge: MergeTables,
    ) -> None:
        """Runs in a thread of its own; the chain learns of it with the next checkpoint."""
        try:
            read = partial(self._read, operator_id)
            tables = self._merged(merged, finished_us, merge, read)
            by = tuple(self._write_shared(operator_id, t) for t in tables if t.num_rows)
            done = _Compacted(operator_id, tuple(merged), by)
        except Exception as error:  # noqa: BLE001 - told, once the chain is too long without it
            done = _Compacted(operator_id, tuple(merged), None, str(error) or repr(error))
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
        finished_us: int | None,
        merge: MergeTables,
        read: ReadSegment,
    ) -> Iterator[pa.Table]:
        """Merge range by range, if it is much; a segment is in memory as long as ranges meet it."""
        ranges = merging_ranges(segments)
        if ranges is None:
            yield from merge(map(read, segments), finished_us)
            return
        opened: dict[str, pa.Table] = {}
        for groups in ranges:
            yield from merge(_rows_of(groups, segments, opened, read), finished_us)

    def _take_compacted(self) -> None:
        while True:
            try:
                done = self._compacted.get_nowait()
            except Empty:
                return
            chain = self._chains[done.operator_id]
            chain.compacting, chain.problem = False, done.problem
            if done.by is not None:
                chain.segments = replaced(chain.segments, done.merged, done.by)
                chain.written_bytes += total_bytes(done.by)


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


def _made(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Make tables, one at a time, those with rows; a large one is cut at key groups."""
    source = iter(tables)
    while True:
        try:
            table = next(source, None)
        except Exception as error:
            raise NotMadeError(str(error)) from error
        if table is None:
            return
        if table.num_rows:
            yield from _cut(table)


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


def _make_one(chain: _Chain) -> bool:
    """See to it that a table waits to be written; False: there is none."""
    while chain.unmade and not chain.unwritten:
        table = next(chain.unmade[0], None)
        if table is None:
            chain.unmade.popleft()
        else:
            chain.unwritten.append(table)
    return bool(chain.unwritten)


def _merge_small(chain: _Chain, finished_us: int | None, merge: MergeTables) -> None:
    """Make one run of several changes, if together they are no more than is well merged."""
    size_bytes = sum(table.nbytes for table in chain.unwritten)
    while chain.unmade and size_bytes <= MERGED_BYTES_MAX:
        table = next(chain.unmade[0], None)
        if table is None:
            chain.unmade.popleft()
        else:
            chain.unwritten.append(table)
            size_bytes += table.nbytes
    if not chain.unmade and len(chain.unwritten) > 1:
        merged = merge(list(chain.unwritten), finished_us)
        chain.unwritten = deque(table for table in merged if table.num_rows)
