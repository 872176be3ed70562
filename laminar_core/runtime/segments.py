"""Writes the state of one worker's operators as segments, and merges chains that become long.

Everything but the merging is called from the one background thread that writes snapshots. Changes
that could not be written are kept, and go with the next ones: the operator has forgotten that they
are new. A segment that was tried once gets a new name the next time, because the first try may have
succeeded with other bytes.

Source: PROTOCOL section 12; O'Neil et al. 1996, "The log-structured merge-tree", for the merging.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue

import pyarrow as pa

from laminar_core.checkpoint.types import CheckpointId, Generation
from laminar_core.errors import CheckpointDeclined, ErrorCode, LaminarError
from laminar_core.operators.base import Snapshot
from laminar_core.runtime.state_options import StateOptions
from laminar_core.state.chain import open_segments, plan_compaction, replaced
from laminar_core.state.segment import SegmentRef, total_bytes
from laminar_core.storage.checkpoint_store import CheckpointStore

CHAIN_FACTOR_MAX = 4
"""Merging may lag behind; a chain so many times too long costs checkpoints."""

MergeTables = Callable[[Iterable[pa.Table], int | None], Iterable[pa.Table]]
"""``IncrementalSubtask.merge_tables``."""


@dataclass(slots=True)
class _Chain:
    """What is known of one operator's state."""

    segments: tuple[SegmentRef, ...] = ()
    unwritten: list[pa.Table] = field(default_factory=list)
    written_bytes: int = 0
    """Since the last checkpoint that was told."""
    compacting: bool = False


@dataclass(frozen=True, slots=True)
class _Compacted:
    operator_id: str
    merged: tuple[SegmentRef, ...]
    by: tuple[SegmentRef, ...] | None
    """None: it failed, and the chain stays as it is."""


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

    def adopt(self, operator_id: str, segments: Iterable[SegmentRef]) -> None:
        """Go on with the chain of a restored checkpoint."""
        self._chains[operator_id] = _Chain(tuple(segments))

    def write_all(
        self, checkpoint_id: CheckpointId, operator_id: str, tables: Iterable[pa.Table]
    ) -> tuple[SegmentRef, ...]:
        """Write a state of which this checkpoint alone has the files.

        Raises:
            LaminarError: the store did not take one of them.
        """
        return tuple(
            self.store.write_state(
                checkpoint_id,
                operator_id,
                self.subtask_index,
                table,
                part=part,
                compression=self._options.compression,
            )
            for part, table in enumerate(table for table in tables if table.num_rows)
        )

    def add_changes(self, operator_id: str, snapshot: Snapshot) -> None:
        """Remember what changed; ``write_changes`` writes it."""
        chain = self._chains.setdefault(operator_id, _Chain())
        chain.unwritten += [table for table in snapshot.tables if table.num_rows]
        chain.segments = open_segments(chain.segments, snapshot.finished_window_us)

    def write_changes(
        self, operator_id: str, finished_window_us: int | None, merge: MergeTables
    ) -> tuple[SegmentRef, ...]:
        """Write what is not written yet; returns the whole chain.

        Raises:
            LaminarError: the store did not take it; it is still remembered.
        """
        self._take_compacted()
        chain = self._chains.setdefault(operator_id, _Chain())
        if len(chain.unwritten) > 1:
            chain.unwritten = [t for t in merge(chain.unwritten, finished_window_us) if t.num_rows]
        while chain.unwritten:
            segment = self._write_shared(operator_id, chain.unwritten[0])
            del chain.unwritten[0]
            chain.segments += (segment,)
            chain.written_bytes += segment.size_bytes
        self._compact_if_long(operator_id, chain, finished_window_us, merge)
        return chain.segments

    def take_written_bytes(self, operator_id: str) -> int:
        """Bytes uploaded for this operator since the last call, merging included."""
        chain = self._chains[operator_id]
        written_bytes, chain.written_bytes = chain.written_bytes, 0
        return written_bytes

    def _write_shared(self, operator_id: str, table: pa.Table) -> SegmentRef:
        return self.store.write_shared(
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
        sizes = [segment.size_bytes for segment in chain.segments]
        run = plan_compaction(sizes, self._options.segments_max)
        if run is None:
            return
        if len(sizes) > CHAIN_FACTOR_MAX * self._options.segments_max:
            raise CheckpointDeclined(
                ErrorCode.SNAPSHOT_FAILED,
                f"the state of {operator_id} is in {len(sizes)} files, which are not merged as "
                "fast as new ones come: checkpoint less often, or raise segments_max",
            )
        if not chain.compacting:
            chain.compacting = True
            merged = chain.segments[run.start : run.stop]
            self._compactions.submit(self._compact, operator_id, merged, finished_us, merge)

    def _compact(
        self,
        operator_id: str,
        merged: Sequence[SegmentRef],
        finished_us: int | None,
        merge: MergeTables,
    ) -> None:
        """Runs in a thread of its own; the chain learns of it with the next checkpoint."""
        by: tuple[SegmentRef, ...] | None = None
        try:
            tables = merge(map(self.store.read_state, merged), finished_us)
            by = tuple(self._write_shared(operator_id, t) for t in tables if t.num_rows)
        except LaminarError:
            pass  # The chain is whole without it, and the next checkpoint tries again.
        finally:
            self._compacted.put(_Compacted(operator_id, tuple(merged), by))

    def _take_compacted(self) -> None:
        while True:
            try:
                done = self._compacted.get_nowait()
            except Empty:
                return
            chain = self._chains[done.operator_id]
            chain.compacting = False
            if done.by is not None:
                chain.segments = replaced(chain.segments, done.merged, done.by)
                chain.written_bytes += total_bytes(done.by)
