"""The settings of a worker, complete before it starts; sent inside Spark's task."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat

import pyarrow as pa
from pyarrow.compute import SetLookupOptions, call_function

from laminar_core.codec.envelope import Compression
from laminar_core.codec.inflight import InflightElement
from laminar_core.codec.key_groups import key_group_range
from laminar_core.connectors.formats.bad_rows import SkippedMessage
from laminar_core.link.transport import CoordinatorAddress
from laminar_core.link.versions import Versions, own_versions
from laminar_core.operators.base import Snapshot, StateTable, SubtaskContext, redistribution_of
from laminar_core.plan.evolving import rules_of_edge, state_tables_of
from laminar_core.plan.plan import Edge, Plan
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.links import LINK_DOWN_MAX_MS
from laminar_core.protocol.types import NO_CHECKPOINT, Batch, CheckpointId, Generation
from laminar_core.protocol.unaligned import Direction
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.segment import SegmentRef
from laminar_core.state.evolving import evolved, evolved_batch
from laminar_core.state.expiry import unexpired
from laminar_core.state.rescaling import Redistribution, Rescaling, deal
from laminar_core.state.splits import current, in_reading_order, unread
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.file_scrub import naming_damage
from laminar_core.store.staging import StagingArea
from laminar_core.store.verification import verify_file
from laminar_core.worker.channels import RECEIVE_BYTES_MAX
from laminar_core.worker.inflight import SnapshotLimits
from laminar_core.worker.outputs import edge_ref
from laminar_core.worker.read_ahead import read_ahead
from laminar_core.worker.restored_edges import (
    EventTimes,
    RestoredEdge,
    exchange_of,
    rescaled_edge,
    same_edge,
)
from laminar_core.worker.restored_part import Division, RestoredPart
from laminar_core.worker.restoring import RestoreSize

COORDINATOR_SILENCE_MS = 15_000.0
"""After this time without a message from the coordinator at the earliest, the driver counts as
dead."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One generation of a job, as its workers see it."""

    job: str
    generation: Generation
    parallelism: int
    plan: Plan
    store_uri: str
    address: CoordinatorAddress
    restored: RestoredPart | None
    """The checkpoint to continue from, or one worker's part of it; None is a fresh start."""
    claim_sha256: str | None
    """Digest of the generation's claim: a worker that does not find it sees another store."""
    splits: dict[str, pa.Table] = field(default_factory=dict[str, pa.Table])
    """Per source, all splits of all subtasks."""
    growing: frozenset[str] = frozenset()
    """Sources that may get more splits while the workers run."""
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    inflight_compression: Compression | None = None
    state: StateOptions = field(default_factory=StateOptions)
    skip_bad: tuple[SkippedMessage, ...] = ()
    """Messages that a person decided to leave out."""
    column_names: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]]
    )
    """Per operator: new names of columns, by those that the checkpoint may have."""
    versions: Versions = field(default_factory=own_versions)
    """The versions of the driver."""
    receive_bytes: int = RECEIVE_BYTES_MAX
    """Bytes that may be under way to a worker or queued there, of all its channels together."""
    link_down_max_ms: float = LINK_DOWN_MAX_MS
    """Time for which a connection between two workers may be away."""
    coordinator_silence_max_ms: float = COORDINATOR_SILENCE_MS
    """Time without a message from the coordinator after which a worker leaves. At least as long as
    the coordinator waits for a worker: else a cut that it tolerates would end its workers."""

    def of_workers(self) -> Iterator["Deployment"]:
        """Yield the deployment of each worker, with its part of the checkpoint."""
        if self.restored is None:
            yield from repeat(self, self.parallelism)
            return
        division = Division(self.restored, self.plan, self.parallelism)
        for worker in range(self.parallelism):
            yield replace(self, restored=division.of_worker(worker))

    def context(self, operator_id: str, subtask_index: int) -> SubtaskContext:
        """Return the context of a subtask of this generation."""
        return SubtaskContext(
            operator_id, subtask_index, self.parallelism, self.plan.max_parallelism, self.generation
        )

    @property
    def keyed(self) -> frozenset[str]:
        """The operators whose state is divided by key groups."""
        operators = (operator for vertex in self.plan.vertices for operator in vertex.operators)
        return frozenset(o.operator_id for o in operators if redistribution_of(o) == "keyed")

    @property
    def newest_id(self) -> CheckpointId:
        """The restored checkpoint id, or 0; barriers up to it are stale."""
        return NO_CHECKPOINT if self.restored is None else self.restored.checkpoint_id

    @property
    def rescaling(self) -> Rescaling | None:
        """The change of parallelism; None if the number of workers is unchanged."""
        return None if self.restored is None else self._rescaled(self.restored.workers)

    def rescaling_of(self, operator_id: str) -> Rescaling | None:
        """Return the change of parallelism of one operator; None if there is none.

        A source that returns, and what is chained to it, had the number of workers of the
        checkpoint in which they last took part.
        """
        if self.restored is None or operator_id not in self.restored.parallelism:
            return self.rescaling
        return self._rescaled(self.restored.parallelism[operator_id])

    def _rescaled(self, before: int) -> Rescaling | None:
        if before == self.parallelism:
            return None
        return Rescaling(before, self.parallelism, self.plan.max_parallelism)


class RestoredState:
    """One worker's part of the checkpoint that its generation continues from.

    On a fresh start it is empty. Files are read on demand; every method that reads raises
    CorruptCheckpointError for a file that contradicts the manifest.
    """

    def __init__(
        self,
        deployment: Deployment,
        subtask_index: int,
        store: CheckpointStore,
        reads: Executor | None = None,
    ) -> None:
        """``reads``: where files are read ahead; None: one after the other."""
        self._reads = reads
        self.on_read: Callable[[int], None] = lambda _: None
        """Called with the length of each file of state that was read."""
        self._deployment = deployment
        self._me = subtask_index
        self._store = store
        self._rescaling = deployment.rescaling
        part = deployment.restored
        alignment = () if part is None else part.alignment
        before = deployment.parallelism if part is None else part.workers
        self._state_tables = state_tables_of(deployment.plan) if part else {}
        self._evolved: set[str] = set()
        """Operators whose state had other columns, which the driver has allowed."""
        self._times = EventTimes(deployment.plan, before, alignment)
        self._finished = {(a.vertex_id, a.subtask_index): a.finished for a in alignment}
        subtasks = () if part is None else part.subtasks
        self._subtasks = {(s.operator_id, s.subtask_index): s for s in subtasks}
        inflight = () if part is None else part.inflight_data
        self._inflight = {(e.edge, e.sender, e.receiver, e.direction): e for e in inflight}
        self._verified: set[str] = set()
        """Paths of the files of state that were read and are what was written."""
        self._inflight_files = store.parts.inflight(part.inflight_files if part else ())
        if self._rescaling is None:  # Every channel continues here, and all of it is read.
            self._inflight_files.expect(e for e in inflight if e.subtask_index == subtask_index)

    def staging(self, operator_id: str) -> StagingArea:
        """Return the space in the store for rows of one sink."""
        return StagingArea(self._store.objects, self._store.paths, operator_id)

    # --- what has to be whole -------------------------------------------------------------------

    def verify_rest(self) -> None:
        """Verify those files of this worker that restoring its tasks did not read.

        Together the workers so verify every file of the checkpoint, also one that an operator or a
        sink did not ask for.

        Raises:
            DamagedFileError: a file is not what was written.
        """
        part = self._deployment.restored
        if part is None or self._rescaling is not None:
            return  # The driver has read all.
        read = self._verified | self._inflight_files.read_whole
        for ref in part.files_of_worker(self._me, self._deployment.parallelism):
            if ref.path not in read:
                with naming_damage(ref.path):
                    verify_file(self._store.objects, self._store.paths.absolute(ref.path), ref)

    def _read_state(self, segment: SegmentRef) -> pa.Table:
        with naming_damage(segment.path):
            table = self._store.parts.read_state(segment)
        self._verified.add(segment.path)
        return table

    # --- what operators kept --------------------------------------------------------------------

    def snapshots(
        self, operator_id: str, redistribution: Redistribution | None = None
    ) -> list[Snapshot]:
        """Return the snapshots that the operator continues from.

        After a change of parallelism ``redistribution`` selects them. An operator without one has
        no state, which the driver verified before the start.
        """
        entries = self._entries(operator_id, redistribution)
        return [self._snapshot(entry, redistribution) for entry in entries]

    def _entries(
        self, operator_id: str, redistribution: Redistribution | None
    ) -> list[SubtaskEntry]:
        rescaling = self._deployment.rescaling_of(operator_id)
        if rescaling is None:
            origins = [self._me]
        elif redistribution is None:
            return []
        else:
            origins = rescaling.origins(redistribution, self._me)
        entries = [self._subtasks.get((operator_id, origin)) for origin in origins]
        return [entry for entry in entries if entry is not None]

    def size(self) -> RestoreSize:
        """Return how much state this worker reads; in-flight data is not counted."""
        size = RestoreSize()
        for vertex in self._deployment.plan.vertices:
            pairs: list[tuple[str, Redistribution | None]] = [
                (o.operator_id, redistribution_of(o)) for o in vertex.operators
            ]
            if vertex.sink is not None:
                pairs.append((vertex.sink.operator_id, "split"))
            if (node := vertex.source) is not None and self._kept_parallelism(node.operator_id):
                pairs.append((node.operator_id, None))
            for operator_id, redistribution in pairs:
                for entry in self._entries(operator_id, redistribution):
                    for segment in self._mine(entry, redistribution):
                        size = size.plus(segment.size_bytes)
        return size

    def own_segments(self, operator_id: str) -> tuple[SegmentRef, ...] | None:
        """Return the chains, of all tables, that changes can be added to.

        None if there is none, after rescaling, or if it was read with other columns. Call it when
        the operator has its state.
        """
        if operator_id in self._evolved:
            return None  # Rows with other columns are another chain.
        entry = self._subtasks.get((operator_id, self._me))
        return entry.segments if entry and self._kept_parallelism(operator_id) else None

    def _kept_parallelism(self, operator_id: str) -> bool:
        return self._deployment.rescaling_of(operator_id) is None

    def _snapshot(self, entry: SubtaskEntry, redistribution: Redistribution | None) -> Snapshot:
        read = read_ahead(self._mine(entry, redistribution), self._read_state, self._reads)
        tables = (self._table(segment, table, entry) for segment, table in read)  # They are large.
        return Snapshot(tables, dict(entry.properties), entry.committables, entry.expired_us)

    def _table(self, segment: SegmentRef, read: pa.Table, entry: SubtaskEntry) -> StateTable:
        """Return the rows of a segment that had not expired in the subtask that wrote them."""
        self.on_read(segment.size_bytes)
        name, operator_id = segment.table, entry.operator_id
        rows = unexpired(name, read, entry.expired_us.get(name))
        wanted = self._state_tables.get(operator_id, {}).get(name)
        if wanted is None or rows.schema.equals(wanted.schema):
            return StateTable(name, rows)
        self._evolved.add(operator_id)
        names = self._deployment.column_names.get(operator_id)
        return StateTable(name, evolved(rows, wanted.schema, wanted.first, names))

    def _read(self, segment: SegmentRef) -> pa.Table:
        table = self._read_state(segment)
        self.on_read(segment.size_bytes)
        return table

    def _mine(self, entry: SubtaskEntry, redistribution: Redistribution | None) -> list[SegmentRef]:
        """Return the segments that may have rows of this subtask."""
        if self._rescaling is None or redistribution != "keyed":
            return list(entry.segments)
        mine = key_group_range(
            self._me, self._rescaling.max_parallelism, self._deployment.parallelism
        )
        return [
            segment
            for segment in entry.segments
            if segment.key_groups is None
            or (segment.key_groups[0] < mine.stop and mine.start < segment.key_groups[1])
        ]

    def splits(self, operator_id: str) -> pa.Table:
        """Return this subtask's splits with their offsets."""
        every = self._deployment.splits[operator_id]
        entry = self._subtasks.get((operator_id, self._me))
        if entry is not None and self._kept_parallelism(operator_id):
            mine = [current(self._read(s)).column("split_id") for s in entry.segments]
            ids = pa.chunked_array([c for m in mine for c in m.chunks], pa.int64())
            # With the driver's offsets: they may be behind a gap that was accepted.
            is_mine = call_function(
                "is_in", [every.column("split_id")], SetLookupOptions(value_set=ids)
            )
            return every.filter(is_mine)
        ordered = in_reading_order(every)
        dealt = deal(unread(ordered), self._deployment.parallelism, self._me)
        return ordered.take(pa.array(dealt, pa.int64()))

    def finished(self, vertex_id: str) -> bool:
        """Return whether the source of this vertex had ended, wherever its splits come from now."""
        origins = [self._me] if self._rescaling is None else range(self._rescaling.before)
        return all(self._finished.get((vertex_id, origin), False) for origin in origins)

    # --- what was on its way --------------------------------------------------------------------

    def edge(self, edge: Edge) -> RestoredEdge:
        """Return the elements at this end of an input edge, and the event time of its channels."""
        if self._deployment.restored is None:
            return RestoredEdge()
        if self._rescaling is None:
            read = partial(self._queued, edge, ("input",))
            return same_edge(edge, self._me, self._deployment.parallelism, self._times, read)
        read = partial(self._queued, edge, ("input", "output"))
        return rescaled_edge(edge, self._me, self._rescaling, self._times, read)

    def outgoing(self, edge: Edge, receiver: int) -> list[InflightElement]:
        """Return the elements waiting to be sent; none after rescaling: receivers get them."""
        if self._rescaling is not None:
            return []
        return list(self._queued(edge, ("output",), self._me, receiver))

    def has_new_receiver(self, vertex_id: str) -> bool:
        """Return whether an edge out of the vertex leads where none led in the checkpoint."""
        part, plan = self._deployment.restored, self._deployment.plan
        if part is None or not part.edges:
            return False
        there = {(e.upstream, e.downstream, e.input_index) for e in part.edges}
        edges = plan.outputs_of(vertex_id)
        return any((e.upstream, e.downstream, plan.input_index(e)) not in there for e in edges)

    def event_time_us(self, vertex_id: str) -> int | None:
        """Return the vertex's combined watermark: the minimum over the old subtasks.

        A receiver of several edges can take over from other subtasks on each of them.
        """
        edges = self._deployment.plan.inputs_of(vertex_id)
        if self._rescaling is None or not edges:
            return self._times.of_subtasks(vertex_id, [self._me])
        origins_of = self._rescaling.origins_of_receiver
        origins = {o for edge in edges for o in origins_of(exchange_of(edge), self._me)}
        return self._times.of_subtasks(vertex_id, origins)

    def _queued(
        self, edge: Edge, ends: tuple[Direction, ...], sender: int, receiver: int
    ) -> Iterator[InflightElement]:
        ref = edge_ref(self._deployment.plan, edge)
        for direction in ends:
            entry = self._inflight.get((ref, sender, receiver, direction))
            if entry is not None:
                with naming_damage(entry.path):
                    elements = self._inflight_files.read(entry)
                for element in elements:
                    yield self._as_now(edge, element)

    def _as_now(self, edge: Edge, element: InflightElement) -> InflightElement:
        """Return the element with the columns that the edge has now, which the driver allowed."""
        if not isinstance(element, Batch) or element.data.schema.equals(edge.schema):
            return element
        first = rules_of_edge(self._deployment.plan, edge).first
        names = self._deployment.column_names.get(edge.downstream)
        return Batch(evolved_batch(element.data, edge.schema, first, names))
