"""Sink writers whose committables survive a failed checkpoint.

Rows pre-committed for checkpoint *n* are before the cut of every later one too. If *n* is declined,
they have to become visible with the next one that completes, so a snapshot contains all
committables whose commit has not been announced. Commits are idempotent, so repeating one is
harmless; dropping one would lose rows. Source: PROTOCOL section 7, rule 5.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from laminar_core.connectors.base import CommitListener, SinkWriter
from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.sink_outputs import COLUMNS, ROWS_WRITTEN, Columns
from laminar_core.worker.output_time import OutputTime


class CommittingSink:
    """A sink's writer, together with the committables that are not committed yet.

    ``columns`` are recorded with each snapshot, if there are any: of one subtask is enough.
    """

    def __init__(self, writer: SinkWriter, columns: Columns = ()) -> None:
        self.writer = writer
        self.rows_written = 0
        self.time = OutputTime()
        self._of_the_sink: JsonObject = {COLUMNS: [list(c) for c in columns]} if columns else {}
        self._lock = threading.Lock()  # Snapshots finish in a background thread.
        self._uncommitted: dict[CheckpointId, tuple[JsonObject, ...]] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows."""
        self.time.become_active()
        self.rows_written += batch.num_rows
        self.writer.write(batch)

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pre-commit; the snapshots of one sink must be finished in the order they were taken."""
        pending = self.writer.snapshot(checkpoint_id)
        now = {ROWS_WRITTEN: self.rows_written, **self.time.properties(), **self._of_the_sink}

        def finish() -> Snapshot:
            snapshot = pending()
            with self._lock:
                self._uncommitted[checkpoint_id] = snapshot.committables
                carried = [c for _, cs in sorted(self._uncommitted.items()) for c in cs]
            return replace(
                snapshot,
                properties={**snapshot.properties, **now},
                committables=tuple(carried),
            )

        return finish

    def committed(self, checkpoint_id: CheckpointId) -> None:
        """Drop the committables up to this checkpoint, because its output is visible."""
        with self._lock:
            for known in [n for n in self._uncommitted if n <= checkpoint_id]:
                del self._uncommitted[known]
        if isinstance(self.writer, CommitListener):
            self.writer.committed(checkpoint_id)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Continue; what the restored checkpoint pre-committed has been committed by now."""
        for snapshot in snapshots:
            rows = snapshot.properties.get(ROWS_WRITTEN, 0)
            assert isinstance(rows, int)
            self.rows_written += rows
        self.time.restore([snapshot.properties for snapshot in snapshots])
        self.writer.restore(snapshots)
