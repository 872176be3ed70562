"""The checkpoint that workers continue from: as a whole, and divided into one part per worker.

Manifests grow with the square of the workers: each channel between two of them has an event time,
and after an unaligned checkpoint parts of files. A worker continues its own channels, so its part
grows with their number only.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from laminar_core.plan.plan import Plan
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.channel_entries import AlignmentEntry, EdgeEntry, EdgeRef, InflightEntry
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.record import FileRef
from laminar_core.state.rescaling import Rescaling
from laminar_core.worker.outputs import edge_ref
from laminar_core.worker.restored_edges import exchange_of


@dataclass(frozen=True, slots=True)
class RestoredPart:
    """The entries of a manifest from which one worker restores, or all of them."""

    checkpoint_id: CheckpointId
    workers: int
    """The number of workers in the checkpoint."""
    parallelism: Mapping[str, int]
    """The number of subtasks in the checkpoint, by operator."""
    edges: tuple[EdgeEntry, ...]
    subtasks: tuple[SubtaskEntry, ...]
    alignment: tuple[AlignmentEntry, ...]
    inflight_files: tuple[FileRef, ...]
    inflight_data: tuple[InflightEntry, ...]

    @classmethod
    def whole(cls, manifest: CheckpointManifest) -> "RestoredPart":
        """Return all that the manifest lists."""
        return cls(
            manifest.checkpoint_id,
            manifest.workers,
            manifest.parallelism,
            manifest.edges,
            manifest.subtasks,
            manifest.alignment,
            manifest.inflight_files,
            manifest.inflight_data,
        )

    def files_of_worker(self, worker: int, parallelism: int) -> Iterator[FileRef]:
        """Yield the files that this worker verifies; each file of the checkpoint is one worker's.

        With an unchanged number of workers these are the files that it restores from.
        """
        for entry in self.subtasks:
            if entry.subtask_index % parallelism == worker:
                yield from entry.segments
        writers = {queue.path: queue.subtask_index for queue in self.inflight_data}
        for file in self.inflight_files:
            if writers[file.path] % parallelism == worker:
                yield file


class Division:
    """Divides a checkpoint among the workers that continue from it.

    Entries may be part of several workers; together, the workers have all that the plan continues.
    All entries are grouped once, because there are as many as the square of the workers.
    """

    def __init__(self, whole: RestoredPart, plan: Plan, parallelism: int) -> None:
        self._whole = whole
        self._plan = plan
        self._files = {file.path: file for file in whole.inflight_files}
        self._rescaling: Rescaling | None = None
        if whole.workers != parallelism:
            self._rescaling = Rescaling(whole.workers, parallelism, plan.max_parallelism)
        self._subtasks: defaultdict[int, list[SubtaskEntry]] = defaultdict(list)
        self._of_all: list[SubtaskEntry] = []
        """Entries of operators that had another number of subtasks, and are divided anew."""
        for entry in whole.subtasks:
            if whole.parallelism[entry.operator_id] == parallelism:
                self._subtasks[entry.subtask_index].append(entry)
            else:
                self._of_all.append(entry)
        self._by_worker: defaultdict[int, list[InflightEntry]] = defaultdict(list)
        self._by_receiver: defaultdict[tuple[EdgeRef, int], list[InflightEntry]] = defaultdict(list)
        for queue in whole.inflight_data:
            self._by_worker[queue.subtask_index % parallelism].append(queue)
            if self._rescaling is not None:
                self._by_receiver[queue.edge, queue.receiver].append(queue)
        self._alignment: defaultdict[int, list[AlignmentEntry]] = defaultdict(list)
        for aligned in whole.alignment:
            self._alignment[aligned.subtask_index].append(aligned)
        changed = whole.alignment if self._rescaling is not None else ()
        self._without_channels = [
            aligned.model_copy(update={"channels": (), "slowest_channels": ()})
            for aligned in changed
        ]

    def of_worker(self, worker: int) -> RestoredPart:
        """Return what this worker restores from."""
        if self._rescaling is None:
            alignment: Iterable[AlignmentEntry] = self._alignment[worker]
            inflight = self._by_worker[worker]
        else:
            alignment = self._taken_over(worker, self._rescaling)
            inflight = list(self._virtual_channels(worker, self._rescaling))
        paths = dict.fromkeys(queue.path for queue in inflight)
        return replace(
            self._whole,
            subtasks=(*self._subtasks[worker], *self._of_all),
            alignment=tuple(alignment),
            inflight_files=tuple(self._files[path] for path in paths),
            inflight_data=tuple(inflight),
        )

    def _taken_over(self, worker: int, rescaling: Rescaling) -> Iterator[AlignmentEntry]:
        """Yield how all subtasks stood, with the channels of those that the worker takes over."""
        origins = {
            (vertex.vertex_id, origin)
            for vertex in self._plan.vertices
            for edge in self._plan.inputs_of(vertex.vertex_id)
            for origin in rescaling.origins_of_receiver(exchange_of(edge), worker)
        }
        for aligned, short in zip(self._whole.alignment, self._without_channels, strict=True):
            is_mine = (aligned.vertex_id, aligned.subtask_index) in origins
            yield aligned if is_mine else short

    def _virtual_channels(self, worker: int, rescaling: Rescaling) -> Iterator[InflightEntry]:
        for edge in self._plan.edges:
            for origin in rescaling.origins_of_receiver(exchange_of(edge), worker):
                yield from self._by_receiver[edge_ref(self._plan, edge), origin]
