"""A worker: one long-lived Spark task that hosts a subtask of every vertex.

Its loop never blocks: it takes arrived messages, does one unit of work per task, and sends what
credit allows. It keeps receiving while it cannot send; otherwise workers that wait for each other
in a ring would wait for ever.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from functools import partial

import pyarrow as pa

from laminar_core.errors import ErrorCode, FencedError
from laminar_core.host.clock import Clock
from laminar_core.link.messages import (
    Abort,
    AddSplits,
    AlignmentTimeout,
    Announce,
    Begin,
    Cancel,
    CheckpointMessage,
    Completed,
    FileUnreadable,
    Finish,
    GreetingsMissing,
    Hold,
    LoopMessage,
    LoopReport,
    LoopsOver,
    LoopWave,
    OperatorWork,
    Peers,
    Ping,
    Register,
    Renew,
    Restoring,
    Resume,
    SnapshotAck,
    SnapshotDecline,
    SourceMessage,
    StartMessage,
    ToCoordinator,
    ToWorker,
    Trigger,
    WaitingCheckpoint,
    WatermarkTarget,
    decode_splits,
    decode_to_worker,
)
from laminar_core.link.reliable_delivery import ControlEnd
from laminar_core.link.sockets import open_files_max
from laminar_core.link.transport import WorkerTransport
from laminar_core.link.versions import own_versions, require_same
from laminar_core.objectstore.contract import counts_of
from laminar_core.protocol.types import CheckpointId, DeclineCause
from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.records.record import FileRef
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.worker.backends import open_backend
from laminar_core.worker.changelog import Changelog
from laminar_core.worker.cuts import Cut
from laminar_core.worker.deployment import Deployment, RestoredState
from laminar_core.worker.failures import failure
from laminar_core.worker.inflight import Captured
from laminar_core.worker.inflight_writing import (
    InflightComplete,
    InflightWritten,
    NotFinished,
    NotWritten,
)
from laminar_core.worker.life import Activity, SignsOfLife
from laminar_core.worker.loops import HeadTask, loop_counts
from laminar_core.worker.operator_work import work_of
from laminar_core.worker.progress import progress_of
from laminar_core.worker.restoring import RestoreMeter, RestoreSize
from laminar_core.worker.segments import SegmentWriter
from laminar_core.worker.snapshots import (
    INFLIGHT_FILES,
    BackgroundThreads,
    Outstanding,
    SnapshotWriter,
    WorkerPart,
    Written,
    channels_of,
    state_of,
)
from laminar_core.worker.urgency import Urgency
from laminar_core.worker.waits import WaitClock, waits_of
from laminar_core.worker.wiring import Wiring, wire

PROGRESS_INTERVAL_MS = 200
WORK_INTERVAL_MS = 1_000
"""Time between two reports about operators, which are part of a report of progress."""
WAIT_MAX_MS = 20
"""Longest sleep of an idle worker; arrivals and finished snapshots end it early."""


def without_aborted(messages: Sequence[ToWorker]) -> list[ToWorker]:
    """Leave out what begins or switches checkpoints that are aborted later in ``messages``.

    A worker that a user's function kept busy finds many such checkpoints at once. To begin each of
    them, and then to finish and drop its parts, would hold up the next checkpoint.
    """
    aborted = {message.checkpoint_id for message in messages if isinstance(message, Abort)}
    return [
        message
        for message in messages
        if not isinstance(message, Trigger | AlignmentTimeout)
        or message.checkpoint_id not in aborted
    ]


class Phase(Enum):
    """The phases of a worker's life."""

    REGISTERING = auto()
    GREETING = auto()
    """It knows the others' addresses, and does not work before all of them reach each other."""
    RUNNING = auto()
    FINISHED = auto()
    CANCELLED = auto()


class Worker:
    """The loop and what it listens to. ``run_once`` is one turn; the simulator calls it itself."""

    def __init__(
        self,
        deployment: Deployment,
        subtask_index: int,
        transport: WorkerTransport,
        store: CheckpointStore,
        threads: BackgroundThreads,
        clock: Clock,
    ) -> None:
        self.phase = Phase.REGISTERING
        self._deployment = deployment
        self._me = subtask_index
        self._transport = transport
        self._control = ControlEnd[ToWorker, ToCoordinator](
            deployment.generation, transport.send_control, clock
        )
        self._clock = clock
        segments = SegmentWriter(
            store,
            deployment.generation,
            subtask_index,
            deployment.state,
            threads.compactions,
            deployment.keyed,
        )
        self._snapshots = SnapshotWriter(
            segments, threads, clock, transport.wake, deployment.inflight_compression
        )
        self._changelog = Changelog(self._snapshots, deployment.state, clock)
        self._parts: dict[CheckpointId, WorkerPart] = {}
        self._urgency = Urgency(lambda: [task.unit for task in self.wiring.tasks])
        self._next_progress_ms = self._next_work_ms = 0.0
        self._heard_ms = clock.monotonic_ms()
        self._data_flowed = self._drained = False
        self._wait_clock = WaitClock()
        self._store = store
        self._files = threads.files
        self.wiring = Wiring(
            subtask_index,
            deployment.generation,
            calls=threads.calls,
            link_down_max_ms=deployment.link_down_max_ms,
        )
        threads.calls.on_done = transport.wake
        self.activity = Activity(clock)

    # --- life -----------------------------------------------------------------------------------

    @property
    def signs(self) -> SignsOfLife:
        """Return the heartbeats for a second thread to send while the loop runs."""
        send = self._transport.send_alive
        return SignsOfLife(self._deployment.generation, self._me, self.activity, send)

    def start(self, host: str) -> None:
        """Build the tasks and restore their state, if the host has the driver's versions and store.

        Raises:
            ConfigurationError: it has not.
            CorruptCheckpointError: a file contradicts the manifest.
            DataError: a source cannot be opened.
        """
        require_same(self._deployment.versions, own_versions(), host)
        proof = self._deployment.claim_sha256
        self._store.claims.check_shared(self._deployment.generation, proof, host)
        self.wiring.backend = open_backend(self._deployment, self._me)
        restored = RestoredState(self._deployment, self._me, self._store, self._files)
        total = restored.size()
        restored.on_read = RestoreMeter(total, partial(self._report_restore, total)).read
        wire(self.wiring, self._deployment, restored, self._transport, self, self._clock)
        self._changelog.follow(self.wiring.tasks, restored)
        restored.verify_rest()

    def _report_restore(self, total: RestoreSize, read: RestoreSize) -> None:
        self._send(
            Restoring(
                generation=self._deployment.generation,
                worker=self._me,
                files=read.files,
                files_total=total.files,
                size_bytes=read.size_bytes,
                bytes_total=total.size_bytes,
            )
        )

    def register(self, pid: int, host: str) -> None:
        """Register at the coordinator with the address where this worker receives data."""
        self._heard_ms = self._clock.monotonic_ms()  # Restoring may have taken longer than silence.
        self._send(
            Register(
                generation=self._deployment.generation,
                worker=self._me,
                pid=pid,
                host=host,
                endpoint=self._transport.endpoint,
                public_key=self._transport.public_key,
                near=self._transport.near,
                claim_sha256=self._store.claims.sha256(self._deployment.generation),
                versions=own_versions(),
                open_files_max=open_files_max(),
            )
        )

    def run(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Work until the coordinator ends it; then yield the collected rows as (sink, batch)."""
        while self.working:
            if not self.run_once():
                self._transport.wait(self.wait_ms())
        yield from self.collected()

    @property
    def working(self) -> bool:
        """Whether the coordinator has not ended it yet."""
        return self.phase in (Phase.REGISTERING, Phase.GREETING, Phase.RUNNING)

    def collected(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the collected rows as (sink, batch), if the job has finished."""
        if self.phase is Phase.FINISHED:
            yield from self.wiring.collected()

    def run_once(self) -> bool:
        """Run one turn of the loop; return whether it did anything."""
        self.activity.begin_step()
        busy = self._receive_control()
        if self.phase is Phase.GREETING:
            # What comes besides greetings is of workers that have begun: so will this one.
            busy |= self._receive_data()
            self.wiring.greeter.turn(self._clock.monotonic_ms())
        elif self.phase is Phase.RUNNING:
            busy |= self._receive_data()
            self.wiring.links.turn(self._clock.monotonic_ms())
            busy |= self._work()
            self.activity.begin_step()
            busy |= self._take_results()
            self._changelog.turn()
        self._report_progress()
        self.activity.rest()
        return busy

    def _work(self) -> bool:
        """Let each task do one unit, as long as the coordinator does not end the worker."""
        busy = False
        for task in self.wiring.tasks:
            self.activity.begin_step()
            if self._urgency.rest_ms(self._clock.monotonic_ms()):
                return self._serve() or busy
            busy |= task.work()
            busy |= task.flush()
            if self._urgency.is_urgent:
                self.activity.begin_step()
                busy |= self._serve()
                if self.phase is not Phase.RUNNING:
                    break
        return busy

    def _serve(self) -> bool:
        """Receive, and acknowledge what is written, between the units of two tasks.

        Each step of a checkpoint that overtakes waits for one of them, in one worker or another.
        """
        served = self._receive_control()
        served |= self._receive_data()
        served |= self._take_results()
        for task in self.wiring.tasks:
            served |= task.flush()
        return served

    def close(self) -> None:
        """Release files, and discard staged rows that are not pre-committed."""
        for task in self.wiring.tasks:
            task.close()
        for channel in self.wiring.outputs.values():
            channel.close()
        self.wiring.backend.close()

    def failed(self, error: Exception) -> None:
        """Report to the coordinator why this worker ends."""
        at_work = self.activity.shown()
        self._send(failure(self._deployment.generation, self._me, error, at_work))

    def wait_ms(self) -> float:
        """Return the longest sleep before the next turn, if no message arrives meanwhile."""
        waits = [t.parts.source.wait_ms() for t in self.wiring.tasks if t.parts.source is not None]
        waits += [t.timed.wait_ms() or 0.0 for t in self.wiring.tasks]
        waits.append(self._urgency.rest_ms(self._clock.monotonic_ms()))
        return min([w for w in waits if w > 0], default=WAIT_MAX_MS)

    # --- the coordinator ------------------------------------------------------------------------

    def _receive_control(self) -> bool:
        heard = False
        due: list[ToWorker] = []
        for data in self._transport.receive_control():
            heard = True
            message = decode_to_worker(data)
            if message.generation == self._deployment.generation:
                due.extend(self._control.receive(message))
        for message in without_aborted(due):
            self._on_message(message)
        self._control.tick()
        now_ms = self._clock.monotonic_ms()
        if heard:
            self._heard_ms = now_ms
        elif now_ms - self._heard_ms > self._deployment.coordinator_silence_max_ms:
            raise FencedError(
                ErrorCode.FENCED,
                f"no message from the coordinator for "
                f"{self._deployment.coordinator_silence_max_ms:g} ms, "
                f"generation {self._deployment.generation} ends",
            )
        return heard

    def _on_message(self, message: ToWorker) -> None:
        self._urgency.heard(message)
        match message:
            case Peers() | Begin():
                self._on_start_message(message)
            case Trigger() | AlignmentTimeout() | Abort() | Completed() | Hold() | Resume():
                self._on_checkpoint_message(message)
            case Renew():
                for task in self.wiring.tasks:
                    task.renew(message.operators_at(self._me))
            case AddSplits() | WatermarkTarget():
                self._on_source_message(message)
            case LoopWave() | LoopsOver():
                self._on_loop_message(message)
            case Announce() | Ping():
                pass
            case Finish():
                self.phase = Phase.FINISHED
            case Cancel():
                self.phase = Phase.CANCELLED

    def _on_start_message(self, message: StartMessage) -> None:
        match message:
            case Peers(peers=peers):
                self._transport.connect_peers(peers)
                self.wiring.links.begin(self._transport, [peer.host for peer in peers])
                self.phase = Phase.GREETING
                self.wiring.greeter.begin(
                    self._transport,
                    len(peers),
                    self._clock.monotonic_ms(),
                    self._report_greetings,
                )
            case Begin():
                self.wiring.greeter.end()
                self.phase = Phase.RUNNING

    def _report_greetings(self, senders: tuple[int, ...]) -> None:
        self._send(
            GreetingsMissing(
                generation=self._deployment.generation, worker=self._me, senders=senders
            )
        )

    def _on_source_message(self, message: SourceMessage) -> None:
        match message:
            case AddSplits(operator_id=operator_id, complete=complete):
                splits = decode_splits(message.splits)
                for task in self.wiring.tasks:
                    if task.parts.source_id == operator_id:
                        task.add_splits(splits, complete=complete)
            case WatermarkTarget(time_us=time_us):
                for task in self.wiring.tasks:
                    if task.parts.source is not None:
                        task.parts.source.follow(time_us)

    def _on_loop_message(self, message: LoopMessage) -> None:
        match message:
            case LoopWave(round_number=n):
                self._send(
                    LoopReport(
                        generation=self._deployment.generation,
                        worker=self._me,
                        round_number=n,
                        loops=loop_counts(self.wiring.tasks),
                    )
                )
            case LoopsOver():
                for task in self.wiring.tasks:
                    if isinstance(task, HeadTask) and task.parts.loop in message.loops:
                        task.end_loop()

    def _on_checkpoint_message(self, message: CheckpointMessage) -> None:
        for task in self.wiring.tasks:
            match message:
                case Trigger():
                    task.trigger(message.barrier())
                case AlignmentTimeout():
                    task.time_out(message.checkpoint_id)
                case Abort():
                    task.abort(message.checkpoint_id)
                case Completed():
                    task.committed(message.checkpoint_id)
                case Hold():
                    task.hold(held=message.held)
                case Resume():
                    task.resume()
        if isinstance(message, Abort):
            self.on_discard(message.checkpoint_id)

    def _report_progress(self) -> None:
        now_ms = self._clock.monotonic_ms()
        due = now_ms >= self._next_progress_ms
        first_rows = not self._data_flowed and self.wiring.flowing()
        # The last checkpoint of a bounded job waits for this report of every worker.
        at_the_end = not self._drained and self.wiring.drained()
        if not (due or first_rows or at_the_end):
            return
        requests = counts_of(self._store.objects)
        report = progress_of(
            self._deployment.generation,
            self.wiring,
            self._snapshots.given_up,
            requests,
            self._work_of_operators(now_ms),
            now_ms,
        )
        self._data_flowed = self._data_flowed or report.flowing
        self._drained = report.drained
        self._next_progress_ms = now_ms + PROGRESS_INTERVAL_MS
        self._send(report)
        self._report_waits(now_ms)

    def _work_of_operators(self, now_ms: float) -> dict[str, OperatorWork]:
        """Return the work of each operator, once a second: it is most of a report."""
        if now_ms < self._next_work_ms:
            return {}
        self._next_work_ms = now_ms + WORK_INTERVAL_MS
        return work_of(self.wiring.tasks, self.activity.busy_ms)

    def _report_waits(self, now_ms: float) -> None:
        """Report what a slow checkpoint waits for here."""
        waits = waits_of(self.wiring.tasks, self._parts)
        if self._wait_clock.is_due(None if waits is None else waits.checkpoint_id, now_ms):
            assert waits is not None, "what is due is there"
            self._send(
                WaitingCheckpoint(
                    generation=self._deployment.generation,
                    worker=self._me,
                    checkpoint_id=waits.checkpoint_id,
                    vertices=waits.vertices,
                )
            )

    def _send(self, message: ToCoordinator) -> None:
        self._control.send(message)

    # --- data -----------------------------------------------------------------------------------

    def _receive_data(self) -> bool:
        received = False
        for header, payload in self._transport.receive():
            received = True
            self.wiring.on_frame(header, payload)
        return received

    # --- checkpoints: what the tasks tell -------------------------------------------------------

    def on_operator(self, operator_id: str) -> None:
        """Note the working operator for the heartbeats."""
        self.activity.enter(operator_id)

    def on_cut(self, cut: Cut) -> None:
        """Finish the snapshot in the background."""
        vertices = (task.parts.vertex_id for task in self.wiring.tasks)
        part = self._parts.setdefault(cut.checkpoint_id, WorkerPart.of(vertices))
        part.uncut.discard(cut.vertex_id)
        if not part.uncut:
            self._urgency.all_cut(cut.checkpoint_id, self._clock.monotonic_ms())
        self._snapshots.submit(cut)

    def on_captured(self, vertex_id: str, captured: Captured) -> None:
        """Write in-flight data in the background."""
        part = self._parts.get(captured.checkpoint_id)
        if part is not None and captured.events:
            queue = self.wiring.queues[vertex_id, captured.queue]
            part.missing.add(INFLIGHT_FILES)
            self._snapshots.capture(vertex_id, queue, captured)

    def on_complete(self, checkpoint_id: CheckpointId, alignment: AlignmentEntry) -> None:
        """Note that one vertex has nothing to add."""
        part = self._parts.get(checkpoint_id)
        if part is not None:
            part.alignment.append(alignment)
        self._settle(checkpoint_id, channels_of(alignment.vertex_id))
        if part is not None and part.can_be_packed:
            self._snapshots.complete_inflight(checkpoint_id)

    def on_discard(self, checkpoint_id: CheckpointId) -> None:
        """Drop the checkpoint's parts, if any were begun since it was last dropped."""
        if self._parts.pop(checkpoint_id, None) is not None:
            self._snapshots.discard(checkpoint_id)

    def on_decline(self, checkpoint_id: CheckpointId, cause: DeclineCause, reason: str) -> None:
        """Send the decline to the coordinator."""
        self._send(
            SnapshotDecline(
                generation=self._deployment.generation,
                worker=self._me,
                checkpoint_id=checkpoint_id,
                cause=cause,
                reason=reason,
            )
        )

    def _take_results(self) -> bool:
        for operator_id, segment in self._snapshots.segments.take_unreadable():
            self._send(
                FileUnreadable(
                    generation=self._deployment.generation,
                    worker=self._me,
                    operator_id=operator_id,
                    file=FileRef(**segment.model_dump(include=set(FileRef.model_fields))),
                )
            )
        results = self._snapshots.results()
        for result in results:
            match result:
                case Written(cut, entries):
                    part = self._parts.get(cut.checkpoint_id)
                    if part is not None:  # Else given up meanwhile.
                        part.entries.extend(entries)
                    self._settle(cut.checkpoint_id, state_of(cut.vertex_id))
                case InflightWritten(checkpoint_id, file, entries):
                    part = self._parts.get(checkpoint_id)
                    if part is not None:
                        part.inflight_files.append(file)
                        part.inflight.extend(entries)
                    self._settle_inflight(checkpoint_id)
                case InflightComplete(checkpoint_id, file_count):
                    part = self._parts.get(checkpoint_id)
                    if part is not None:
                        part.file_count = file_count
                    self._settle_inflight(checkpoint_id)
                case NotWritten(checkpoint_id, vertex_id, reason):
                    task = next(t for t in self.wiring.tasks if t.parts.vertex_id == vertex_id)
                    if checkpoint_id in self._parts:
                        task.snapshot_failed(checkpoint_id, reason)
                case NotFinished(error):
                    raise error
        return bool(results)

    def _settle_inflight(self, checkpoint_id: CheckpointId) -> None:
        part = self._parts.get(checkpoint_id)
        if part is not None and part.has_inflight_files:
            self._settle(checkpoint_id, INFLIGHT_FILES)

    def _settle(self, checkpoint_id: CheckpointId, what: Outstanding) -> None:
        """One more piece is there; acknowledge if it was the last."""
        part = self._parts.get(checkpoint_id)
        if part is None:
            return
        part.missing.discard(what)
        if part.missing:
            return
        del self._parts[checkpoint_id]
        self._urgency.over(checkpoint_id)
        self._send(
            SnapshotAck(
                generation=self._deployment.generation,
                worker=self._me,
                checkpoint_id=checkpoint_id,
                entries=tuple(part.entries),
                alignment=tuple(part.alignment),
                inflight_files=tuple(part.inflight_files),
                inflight=tuple(part.inflight),
            )
        )
