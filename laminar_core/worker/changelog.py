"""Incremental operators: continue their chains after a restore, and upload changes ahead.

In the mode ``changelog`` changes are uploaded continuously. A checkpoint then only has to refer to
the uploads, and to write the last changes.
"""

from collections.abc import Iterable, Iterator

from laminar_core.host.clock import Clock
from laminar_core.operators.base import IncrementalSubtask
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.types import CheckpointId
from laminar_core.worker.cuts import PendingPart
from laminar_core.worker.deployment import RestoredState
from laminar_core.worker.snapshots import SnapshotWriter
from laminar_core.worker.task import Task

_BETWEEN_CHECKPOINTS = CheckpointId(0)


class Changelog:
    """The uploads of one worker; called from its loop."""

    def __init__(self, snapshots: SnapshotWriter, options: StateOptions, clock: Clock) -> None:
        self._operators: dict[str, tuple[Task, IncrementalSubtask]] = {}
        self._snapshots = snapshots
        self._options = options
        self._clock = clock
        self._next_ms = clock.monotonic_ms() + options.changelog_interval_ms

    def follow(self, tasks: Iterable[Task], restored: RestoredState) -> None:
        """Continue the chains of the restored checkpoint, whose contents count as unchanged."""
        if not self._options.incremental:
            return
        self._operators = dict(_incremental(tasks))
        for operator_id, (_, operator) in self._operators.items():
            chain = restored.own_segments(operator_id)
            if chain is not None:
                operator.snapshot_changes(_BETWEEN_CHECKPOINTS)
                self._snapshots.segments.adopt(operator_id, chain)

    def turn(self) -> None:
        """Upload the changes if an upload is due.

        Operators in the middle of a batch have their turn at the next upload, or at the cut.
        """
        if self._options.snapshots != "changelog" or self._clock.monotonic_ms() < self._next_ms:
            return
        for operator_id, (task, operator) in self._operators.items():
            if task.midway:
                continue
            pending = operator.snapshot_changes(_BETWEEN_CHECKPOINTS)
            self._snapshots.upload(PendingPart(operator_id, pending, 0.0, operator.merge_tables))
        self._next_ms = self._clock.monotonic_ms() + self._options.changelog_interval_ms


def _incremental(tasks: Iterable[Task]) -> Iterator[tuple[str, tuple[Task, IncrementalSubtask]]]:
    for task in tasks:
        for operator_id, operator in task.parts.operators:
            if isinstance(operator, IncrementalSubtask):
                yield operator_id, (task, operator)
