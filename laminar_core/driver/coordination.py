"""The coordinator in the driver, between the workers and the protocol.

It receives messages, tracks which workers are alive, and passes acknowledgements to
``CheckpointDriver``. ``turn`` does the pending work and returns; a thread calls it in a driver, a
scheduler in a simulation. Every cause that can end a generation sets ``outcome``, which is set
once.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Literal, Protocol

from laminar_core.driver.checkpointing import (
    Background,
    CheckpointAnswer,
    CheckpointDriver,
    CoordinatorParts,
)
from laminar_core.driver.commands.dispatcher import CommandDispatcher
from laminar_core.driver.events import (
    DataFlowing,
    JobEvent,
    OperatorAtWork,
    RestoreProgressed,
    UnreachablePair,
    WorkersRunning,
)
from laminar_core.driver.listening import IsolatedListener
from laminar_core.driver.liveness import Liveness
from laminar_core.driver.loop_watch import LoopWatch
from laminar_core.driver.progress import RowTotals, WorkersProgress
from laminar_core.driver.registration import Registration, unreachable_line
from laminar_core.driver.steering import Steering
from laminar_core.errors import BrokenLink, ConfigurationError, ErrorCode, FencedError
from laminar_core.host.clock import Clock
from laminar_core.link.messages import (
    Alive,
    Begin,
    Cancel,
    FileUnreadable,
    Finish,
    GreetingsMissing,
    LoopReport,
    LoopsOver,
    LoopWave,
    Peers,
    Ping,
    Progress,
    Register,
    Restoring,
    SnapshotAck,
    SnapshotDecline,
    ToCoordinator,
    ToWorker,
    WaitingCheckpoint,
    WorkerFailed,
    decode_to_coordinator,
)
from laminar_core.link.reliable_delivery import ControlLines
from laminar_core.protocol.commands import ModeRefused, decide_mode
from laminar_core.protocol.coordinator_events import (
    Acknowledged,
    AlignmentTimeoutChanged,
    Declined,
    Outcome,
    StopRevoked,
    SubtaskId,
)
from laminar_core.protocol.greetings import (
    EndUnreachable,
    GreetingEffect,
    LetBegin,
    SendAddresses,
)
from laminar_core.protocol.types import CheckpointKind
from laminar_core.records.commands import SetMode
from laminar_core.records.damage import DamagedFile
from laminar_core.records.manifest import Heartbeat
from laminar_core.records.record import JsonObject
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.worker.restoring import RestoreProgress

PING_INTERVAL_MS = 1_000
HEARTBEAT_INTERVAL_MS = 1_000
PROGRESS_EVENT_INTERVAL_MS = 500


@dataclass(frozen=True, slots=True)
class GenerationOutcome:
    """How an execution ended, as the coordinator saw it."""

    kind: Literal["finished", "stopped", "failed", "fenced"]
    code: ErrorCode | None = None
    reason: str = ""
    restart_helps: bool = True
    idle_ms: float = 0.0
    """How long it had been inactive before its end; this does not count as running well."""
    counts: RowTotals = field(default_factory=RowTotals)
    unreachable: tuple[UnreachablePair, ...] = ()
    """The first workers that did not reach each other, if it ended for that."""
    unreachable_count: int = 0
    links: tuple[BrokenLink, ...] = ()
    """Connections between workers that stayed away, if that is the reason."""
    damaged_file: DamagedFile | None = None
    """The file of the restored checkpoint that a worker found damaged, if that is the reason."""
    traceback: str = ""
    """The traceback of a worker's error, if that is the reason and it was not Laminar's own."""


class CoordinatorLink(Protocol):
    """The coordinator's connection to its workers."""

    def send(self, worker: int, message: bytes) -> None:
        """Send to one worker; FIFO, never blocks, dropped if it is gone."""
        ...

    def receive(self) -> Iterator[bytes]:
        """Yield messages that have arrived, in order per worker."""
        ...

    def wake(self) -> None:
        """Request a turn, because an action was posted; callable from any thread."""
        ...


class Coordinator:
    """The coordinator of one generation."""

    def __init__(
        self,
        parts: CoordinatorParts,
        link: CoordinatorLink,
        background: Background,
        clock: Clock,
        listener: IsolatedListener,
    ) -> None:
        self.outcome: Future[GenerationOutcome] = Future()
        self.ready: Future[None] = Future()
        """Done when all workers have restored, and verified, their state and reach each other."""
        self._parts = parts
        self._identity = parts.identity
        self._link, self._clock, self._notify = link, clock, listener
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._outcome_lock = threading.Lock()
        self._lines = ControlLines(parts.identity.generation, link.send, clock)
        self._steering = Steering(parts.identity.generation, self.broadcast, clock)
        self._registration = Registration(parts)
        self._liveness = Liveness(parts.deadlines)
        self._started_ms = clock.monotonic_ms()
        self.running_since_ms: float | None = None
        """When all workers began; None: they never did."""
        self._due_ms = {"ping": 0.0, "heartbeat": 0.0, "progress": 0.0}
        self._heartbeats = 0
        self._data_flowed = self._final_requested = False
        self._progress = WorkersProgress(
            parts.identity.parallelism, self._started_ms, parts.store.objects
        )
        self._early: list[tuple[CheckpointKind, bool, Future[CheckpointAnswer]]] = []
        workers, loops = range(parts.identity.parallelism), parts.identity.plan.loops().values()
        self._loops, self._restoring = LoopWatch(workers, loops), RestoreProgress(len(workers))
        self._checkpoints = CheckpointDriver(parts, self, background)
        self._ends_anyway = False
        """Whether the job must end even if a requested savepoint fails."""
        self._dispatcher = CommandDispatcher(
            parts.store,
            self._identity.generation,
            self,
            background,
            savepoints_under=parts.savepoints_under,
        )
        self.mode: SetMode | None = None
        """The alignment mode set by a command; it also applies after a restart."""
        if parts.mode is not None:
            self.set_mode(parts.mode)

    # --- from other threads ---------------------------------------------------------------------

    @property
    def completed_count(self) -> int:
        """The number of checkpoints that this generation completed."""
        return self._checkpoints.completed_count

    @property
    def has_run(self) -> bool:
        """Whether all workers have begun."""
        return self._begun

    def request(self, kind: CheckpointKind) -> "Future[CheckpointAnswer]":
        """Request a checkpoint; it waits until all workers have begun."""
        answer: Future[CheckpointAnswer] = Future()
        self.post(lambda: self._on_request(kind, answer))
        return answer

    def begin(self) -> None:
        """Let the workers begin; they are ``ready``, and the output is settled."""
        self.post(self._begin)

    def cancel(self, reason: str) -> None:
        """End the generation now; workers exit at once."""
        self._end(GenerationOutcome("failed", ErrorCode.CANCELLED, reason, restart_helps=False))
        self.post(lambda: self.broadcast(Cancel(generation=self._identity.generation)))

    def post(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the next turn."""
        self._inbox.put(action)
        self._link.wake()

    def fail(self, code: ErrorCode, reason: str, *, restart_helps: bool = True) -> None:
        """End the generation with a failure."""
        self._end(GenerationOutcome("failed", code, reason, restart_helps))

    def fenced(self, error: FencedError) -> None:
        """End the generation because a newer one is claimed."""
        self._end(GenerationOutcome("fenced", error.code, str(error), restart_helps=False))

    def last_commit_done(self, kind: CheckpointKind) -> None:
        """End the job, because its stop or final checkpoint is committed; savepoints come first."""
        self._dispatcher.before_the_end(kind, lambda: self._let_go(kind))

    def _let_go(self, kind: CheckpointKind) -> None:
        self.broadcast(Finish(generation=self._identity.generation))
        if kind is CheckpointKind.FINAL:
            self._end(GenerationOutcome("finished"))
        else:
            self._end(GenerationOutcome("stopped", reason=self._dispatcher.stopped_by))

    def _end(self, outcome: GenerationOutcome) -> None:
        """Set the outcome, with the rows so far, if none is set; callable from any thread."""
        outcome = replace(outcome, counts=self._progress.totals())
        with self._outcome_lock:
            if not self.outcome.done():
                self.outcome.set_result(outcome)

    # --- for commands from outside, in the coordinator's thread ---------------------------------

    def take(self, kind: CheckpointKind, *, once: bool) -> "Future[CheckpointAnswer]":
        """Request a checkpoint; a stop that fails ``once`` is not tried again."""
        answer: Future[CheckpointAnswer] = Future()
        self._on_request(kind, answer, once=once)
        return answer

    def set_mode(self, mode: SetMode) -> JsonObject | ModeRefused:
        """Change how checkpoints align from the next one on.

        Return the new setting, or the refusal.
        """
        config, edges = self._parts.config, self._identity.plan.edges
        change = decide_mode(mode.mode, config.alignment_timeout_ms, config.max_concurrent)
        if isinstance(change, ModeRefused):
            return change
        self.mode = mode
        self._checkpoints.dispatch(AlignmentTimeoutChanged(change.alignment_timeout_ms))
        always_aligned = sum(not edge.may_overtake for edge in edges)
        return {
            "alignment_timeout_ms": change.alignment_timeout_ms,
            "edges": len(edges),
            "edges_always_aligned": always_aligned,
        }

    def go_on(self, end: Callable[[], None]) -> None:
        """Continue the job after its stop checkpoint; call ``end`` if another request ends it."""
        if self._ends_anyway:
            end()
        else:
            self._checkpoints.dispatch(StopRevoked())

    # --- the loop -------------------------------------------------------------------------------

    def turn(self) -> None:
        """Take what arrived and what was posted, then do what is due. From one thread only."""
        for data in self._link.receive():
            self._receive(decode_to_coordinator(data))
        self._run_posted()
        if self._begun:
            self._checkpoints.tick()
        self._keep_alive()

    def abandon(self, reason: str) -> None:
        """Abort all pending checkpoints and answer all waiting requests: the last turn."""
        self._run_posted()
        self._checkpoints.abort_all(reason)
        for _, _, answer in self._early:
            answer.set_result(CheckpointAnswer(None, Outcome.ABORTED.value, reason))
        ended = self.outcome.result().kind if self.outcome.done() else "failed"
        self._dispatcher.close(reason, ended if ended in ("finished", "stopped") else None)

    def _run_posted(self) -> None:
        while True:
            try:
                action = self._inbox.get_nowait()
            except Empty:
                return
            action()

    def now_ms(self) -> int:
        """Return the wall clock, for records and events; it may step, and decides nothing."""
        return self._clock.now_ms()

    def monotonic_ms(self) -> float:
        """Return the time that everything is decided by."""
        return self._clock.monotonic_ms()

    def wait_ms(self) -> float:
        """Return the time until work is due, if no message arrives and no action is posted."""
        times = [*self._due_ms.values(), self._lines.due_ms]
        if self._begun:
            times.append(self._loops.due_ms)
        waits = [due - self._clock.monotonic_ms() for due in times]
        wakeup = self._checkpoints.next_wakeup_ms() if self._begun else None
        if wakeup is not None:
            waits.append(wakeup - self._clock.monotonic_ms())
        return min(waits)

    def _keep_alive(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._lines.tick()
        wave = self._loops.begin(now_ms) if self._begun else None
        if wave is not None:
            self.broadcast(LoopWave(generation=self._identity.generation, round_number=wave))
        if self._is_due("ping", PING_INTERVAL_MS, now_ms):
            self.broadcast(Ping(generation=self._identity.generation))
            self._check_silence(now_ms)
        if self._is_due("heartbeat", HEARTBEAT_INTERVAL_MS, now_ms):
            self._heartbeats += 1
            progress = self._progress.as_json(now_ms)
            if progress:
                progress |= asdict(self._checkpoints.commit_numbers)
                sources = self._source_numbers()
                progress["sources"] = {name: n.model_dump() for name, n in sources.items()}
                sinks = self._checkpoints.sink_numbers()
                progress["sinks"] = {name: n.model_dump() for name, n in sinks.items()}
                pending = self._checkpoints.under_way()
                progress["pending"] = [each.model_dump(mode="json") for each in pending]
            self._checkpoints.beat(
                Heartbeat(sequence=self._heartbeats, at_ms=self.now_ms(), progress=progress)
            )
            self._dispatcher.tick()
        if self._is_due("progress", PROGRESS_EVENT_INTERVAL_MS, now_ms) and self._progress.complete:
            event = self._progress.event(now_ms, self.now_ms(), self._parts.rows_total)
            more = asdict(self._checkpoints.commit_numbers)
            more |= {"sources": self._source_numbers(), "sinks": self._checkpoints.sink_numbers()}
            more |= {"pending_checkpoints": self._checkpoints.pending_count}
            self.notify(event.model_copy(update=more))

    def _source_numbers(self) -> dict[str, SourceNumbers]:
        return self._checkpoints.completed_numbers(self._progress.sources())

    def _is_due(self, what: str, interval_ms: float, now_ms: float) -> bool:
        if now_ms < self._due_ms[what]:
            return False
        self._due_ms[what] = now_ms + interval_ms
        return True

    def _check_silence(self, now_ms: float) -> None:
        deadlines = self._parts.deadlines
        if not self._registration.everybody_registered:
            if now_ms - self._started_ms > deadlines.register_ms:
                registered = self._registration.workers
                self.fail(*self._restoring.why_late(registered, deadlines.register_ms))
            return
        self._carry_out(self._registration.tick(now_ms))
        lost = self._liveness.lost(now_ms)
        if lost is not None:
            self._end(GenerationOutcome("failed", lost.code, lost.reason, idle_ms=lost.idle_ms))

    @property
    def _begun(self) -> bool:
        return self.running_since_ms is not None

    # --- messages of workers --------------------------------------------------------------------

    def _receive(self, message: ToCoordinator) -> None:
        if message.generation != self._identity.generation:
            return  # A zombie: whatever it says has no meaning here.
        if message.worker not in range(self._identity.parallelism):
            return  # Nobody expects it: nothing of it may stand in a manifest.
        self._liveness.heard(message.worker, self._clock.monotonic_ms())
        for due in self._lines.receive(message):
            self._on_message(due)

    def _on_message(self, message: ToCoordinator) -> None:
        match message:
            case Register():
                self._on_register(message)
            case GreetingsMissing():
                self._carry_out(self._registration.greeted(message))
            case Restoring():
                self._on_restoring(message)
            case Progress():
                self._on_progress(message)
            case Alive():
                self._on_alive(message)
            case SnapshotAck():
                self._on_ack(message)
            case WaitingCheckpoint():
                self._checkpoints.note_waiting(message)
            case SnapshotDecline(checkpoint_id=n, cause=cause, reason=reason):
                reason = f"worker {message.worker}: {reason}"
                self._checkpoints.dispatch(Declined(n, cause, reason))
            case LoopReport():
                self._on_loop_report(message)
            case FileUnreadable(operator_id=operator_id, file=file):
                self._checkpoints.suspect(operator_id, message.worker, file)
            case WorkerFailed(code=code, reason=reason, restart_helps=helps, links=links):
                reason = f"worker {message.worker}: {reason}"
                self._end(
                    GenerationOutcome(
                        "failed",
                        ErrorCode(code),
                        reason,
                        helps,
                        links=links,
                        damaged_file=message.damaged_file,
                        traceback=message.traceback,
                    )
                )

    def _on_loop_report(self, message: LoopReport) -> None:
        now_ms = self._clock.monotonic_ms()
        n, loops = message.round_number, message.loops
        over = self._loops.answered(n, message.worker, loops, now_ms)
        if over:
            self.broadcast(
                LoopsOver(generation=self._identity.generation, loops=tuple(sorted(over)))
            )

    def _on_register(self, message: Register) -> None:
        try:
            effects = self._registration.register(message, self._clock.monotonic_ms())
        except ConfigurationError as error:
            self.fail(error.code, f"worker {message.worker}: {error}", restart_helps=False)
            return
        self._carry_out(effects)

    def _carry_out(self, effects: Iterable[GreetingEffect]) -> None:
        for effect in effects:
            match effect:
                case SendAddresses():
                    peers = self._registration.peers
                    self.broadcast(Peers(generation=self._identity.generation, peers=peers))
                case LetBegin():
                    self.ready.set_result(None)
                    if self._parts.output_is_settled:
                        self._begin()
                case EndUnreachable():
                    self._end_unreachable(effect)

    def _end_unreachable(self, late: EndUnreachable) -> None:
        pairs, count = self._registration.unreachable(late), len(late.pairs)
        self._end(
            GenerationOutcome(
                "failed",
                ErrorCode.WORKERS_UNREACHABLE,
                unreachable_line(pairs, count, late.waited_ms),
                unreachable=pairs,
                unreachable_count=count,
            )
        )

    def _begin(self) -> None:
        """Let the workers begin: all of them are known to reach each other."""
        if self.outcome.done():
            return  # They are leaving.
        self.running_since_ms = self._clock.monotonic_ms()
        self.broadcast(Begin(generation=self._identity.generation))
        workers = self._registration.in_order
        self.notify(
            WorkersRunning(
                time_ms=self.now_ms(),
                generation=self._identity.generation,
                pids=tuple(w.pid for w in workers),
                hosts=tuple(w.host for w in workers),
            )
        )
        early, self._early = self._early, []
        for kind, once, answer in early:
            self._checkpoints.request(kind, answer, once=once)

    def _on_request(
        self, kind: CheckpointKind, answer: "Future[CheckpointAnswer]", *, once: bool = False
    ) -> None:
        """A trigger reaches only those who are there, and without the others nothing completes."""
        self._ends_anyway = self._ends_anyway or (kind is CheckpointKind.STOP and not once)
        if self._begun:
            self._checkpoints.request(kind, answer, once=once)
        else:
            self._early.append((kind, once, answer))

    def _on_restoring(self, message: Restoring) -> None:
        totals = self._restoring.take(message)
        if totals is not None:
            self.notify(
                RestoreProgressed(
                    time_ms=self.now_ms(),
                    generation=self._identity.generation,
                    files=totals.files,
                    files_total=totals.files_total,
                    size_bytes=totals.size_bytes,
                    bytes_total=totals.bytes_total,
                    percent=totals.percent,
                )
            )

    def _on_progress(self, message: Progress) -> None:
        self._progress.keep(message)
        self._checkpoints.given_up(message.worker, message.given_up)
        self._checkpoints.note_sources(message.worker, message.sources)
        self._steering.take(message)
        if message.flowing and not self._data_flowed:
            self._data_flowed = True
            self.notify(DataFlowing(time_ms=self.now_ms(), generation=self._identity.generation))
        if self._progress.drained and not self._final_requested:
            self._final_requested = True
            self._on_request(CheckpointKind.FINAL, Future())  # A lost registration comes again.

    def _on_alive(self, message: Alive) -> None:
        if self._liveness.take(message):
            self.notify(
                OperatorAtWork(
                    time_ms=self.now_ms(),
                    generation=self._identity.generation,
                    worker=message.worker,
                    operator_id=message.operator_id,
                    since_ms=int(self.now_ms() - message.operator_ms),
                    busy_ms=message.operator_ms,
                )
            )

    def _on_ack(self, message: SnapshotAck) -> None:
        subtasks = {SubtaskId(v.vertex_id, message.worker) for v in self._identity.plan.vertices}
        checkpoint_id = message.checkpoint_id
        self._checkpoints.keep(message)
        self._checkpoints.dispatch(Acknowledged(checkpoint_id, frozenset(subtasks)))

    def host_of(self, worker: int) -> str:
        """Return the host of this worker; empty if unknown."""
        found = self._registration.workers.get(worker)
        return "" if found is None else found.host

    def broadcast(self, message: ToWorker) -> None:
        """Send to every worker that has registered."""
        self._lines.broadcast(message, self._registration.workers)

    def send(self, worker: int, message: ToWorker) -> None:
        """Send to one worker that has registered, in order with what is broadcast."""
        self._lines.broadcast(message, (worker,))

    def when_confirmed(self, action: Callable[[], None]) -> None:
        """Do this once every worker has taken everything that was sent up to now."""
        self._lines.when_confirmed(action)

    def notify(self, event: JobEvent) -> None:
        """Publish an event to the listener of the job."""
        self._notify(event)
