"""The coordinator in the driver: workers on one side, the protocol on the other.

It takes messages, keeps track of who lives, and feeds ``CheckpointDriver`` with what workers
acknowledge. ``turn`` does what there is to do and returns; a thread calls it in a driver, a
scheduler in a simulation. Everything that can end a generation ends in ``outcome``, set once.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Literal, Protocol

from laminar_core.checkpoint.coordinator_events import Acknowledged, Declined, Outcome, SubtaskId
from laminar_core.checkpoint.types import CheckpointId, CheckpointKind
from laminar_core.checkpoint.unaligned import UnalignedCheckpointMetrics
from laminar_core.errors import ErrorCode, FencedError
from laminar_core.runtime.checkpointing import (
    Background,
    CheckpointAnswer,
    CheckpointDriver,
    CheckpointHost,
    CoordinatorParts,
)
from laminar_core.runtime.clock import Clock
from laminar_core.runtime.control import ControlLines
from laminar_core.runtime.events import (
    DataFlowing,
    JobEvent,
    JobListener,
    ProgressMade,
    WorkersRunning,
)
from laminar_core.runtime.loop_watch import LoopWatch
from laminar_core.runtime.messages import (
    Cancel,
    Finish,
    LoopReport,
    LoopsOver,
    LoopWave,
    Peer,
    Peers,
    Ping,
    Progress,
    Register,
    SnapshotAck,
    SnapshotDecline,
    ToCoordinator,
    ToWorker,
    WorkerFailed,
    decode_to_coordinator,
)
from laminar_core.state.manifest import Heartbeat

PING_INTERVAL_MS = 1_000
HEARTBEAT_INTERVAL_MS = 1_000
PROGRESS_EVENT_INTERVAL_MS = 500


@dataclass(frozen=True, slots=True)
class RowTotals:
    """Rows over the whole history of the job."""

    rows_in: int = 0
    rows_out: int = 0
    rows_late: int = 0


@dataclass(frozen=True, slots=True)
class GenerationOutcome:
    """How an execution ended, as the coordinator saw it."""

    kind: Literal["finished", "stopped", "failed", "fenced"]
    code: ErrorCode | None = None
    reason: str = ""
    restart_helps: bool = True
    counts: RowTotals = RowTotals()


class CoordinatorLink(Protocol):
    """How the coordinator reaches its workers."""

    def send(self, worker: int, message: bytes) -> None:
        """Send to one worker; FIFO, never blocks, dropped if it is gone."""
        ...

    def receive(self) -> Iterator[bytes]:
        """Messages that have arrived, in order per worker."""
        ...

    def wake(self) -> None:
        """Somebody posted something: a turn is due. From any thread."""
        ...


class Coordinator(CheckpointHost):
    """One generation's coordinator."""

    def __init__(
        self,
        parts: CoordinatorParts,
        link: CoordinatorLink,
        background: Background,
        clock: Clock,
        listener: JobListener,
    ) -> None:
        self.outcome: Future[GenerationOutcome] = Future()
        self._parts = parts
        self._identity = parts.identity
        self._link = link
        self._clock = clock
        self._tell = listener
        self._wall_ms = clock.now_ms() - clock.monotonic_ms()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._outcome_lock = threading.Lock()
        self._lines = ControlLines(parts.identity.generation, link.send, clock)
        self._workers: dict[int, Register] = {}
        self._progress: dict[int, Progress] = {}
        self._heard_ms: dict[int, float] = {}
        self._started_ms = clock.monotonic_ms()
        self._due_ms = {"ping": 0.0, "heartbeat": 0.0, "progress": 0.0}
        self._heartbeats = 0
        self._data_flowed = self._final_requested = False
        self._last_rows = (self._started_ms, 0)
        self._early: list[tuple[CheckpointKind, Future[CheckpointAnswer]]] = []
        workers, loops = range(parts.identity.parallelism), parts.identity.plan.loops().values()
        self._loops = LoopWatch(workers, loops)
        self._checkpoints = CheckpointDriver(parts, self, background)

    # --- from other threads ---------------------------------------------------------------------

    @property
    def completed_count(self) -> int:
        """Checkpoints that this generation completed."""
        return self._checkpoints.completed_count

    def request(self, kind: CheckpointKind) -> "Future[CheckpointAnswer]":
        """Ask for a checkpoint; before all workers have registered it waits for them."""
        answer: Future[CheckpointAnswer] = Future()
        self.post(lambda: self._on_request(kind, answer))
        return answer

    def cancel(self, reason: str) -> None:
        """End the generation now: workers exit at once."""
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
        """The stop or final checkpoint is committed: let the workers go."""
        self.broadcast(Finish(generation=self._identity.generation))
        ending = "finished" if kind is CheckpointKind.FINAL else "stopped"
        self._end(GenerationOutcome(ending, counts=self._totals()))

    def _end(self, outcome: GenerationOutcome) -> None:
        """Only the first word counts; may be called from any thread."""
        with self._outcome_lock:
            if not self.outcome.done():
                self.outcome.set_result(outcome)

    # --- the loop -------------------------------------------------------------------------------

    def turn(self) -> None:
        """Take what arrived and what was posted, then do what is due. From one thread only."""
        for data in self._link.receive():
            self._receive(decode_to_coordinator(data))
        self._run_posted()
        if self._everybody_registered:
            self._checkpoints.tick()
        self._keep_alive()

    def abandon(self, reason: str) -> None:
        """The last turn: abort what is pending, and answer everybody who waits."""
        self._run_posted()
        self._checkpoints.abort_all(reason)
        for _, answer in self._early:
            answer.set_result(CheckpointAnswer(None, Outcome.ABORTED.value, reason))

    def _run_posted(self) -> None:
        while True:
            try:
                action = self._inbox.get_nowait()
            except Empty:
                return
            action()

    def now_ms(self) -> int:
        """Wall clock of the start, carried on by the monotonic clock."""
        return int(self._wall_ms + self._clock.monotonic_ms())

    def wait_ms(self) -> float:
        """Time until something is due, if nothing arrives and nobody posts anything."""
        times = [*self._due_ms.values(), self._lines.due_ms]
        if self._everybody_registered:
            times.append(self._loops.due_ms)
        waits = [due - self._clock.monotonic_ms() for due in times]
        wakeup = self._checkpoints.next_wakeup_ms() if self._everybody_registered else None
        if wakeup is not None:
            waits.append(wakeup - self.now_ms())
        return min(waits)

    def _keep_alive(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._lines.tick()
        wave = self._loops.begin(now_ms) if self._everybody_registered else None
        if wave is not None:
            self.broadcast(LoopWave(generation=self._identity.generation, round_number=wave))
        if self._is_due("ping", PING_INTERVAL_MS, now_ms):
            self.broadcast(Ping(generation=self._identity.generation))
            self._check_silence(now_ms)
        if self._is_due("heartbeat", HEARTBEAT_INTERVAL_MS, now_ms):
            self._heartbeats += 1
            self._checkpoints.beat(Heartbeat(sequence=self._heartbeats, at_ms=self.now_ms()))
        everybody = len(self._progress) == self._identity.parallelism  # Or totals would jump.
        if self._is_due("progress", PROGRESS_EVENT_INTERVAL_MS, now_ms) and everybody:
            self._tell_progress(now_ms)

    def _is_due(self, what: str, interval_ms: float, now_ms: float) -> bool:
        if now_ms < self._due_ms[what]:
            return False
        self._due_ms[what] = now_ms + interval_ms
        return True

    def _check_silence(self, now_ms: float) -> None:
        deadlines = self._parts.deadlines
        if not self._everybody_registered:
            if now_ms - self._started_ms > deadlines.register_ms:
                self.fail(
                    ErrorCode.NOT_ENOUGH_SLOTS,
                    f"only {len(self._workers)} of {self._identity.parallelism} workers started "
                    f"within {deadlines.register_ms / 1000:g} s: give Spark enough slots",
                )
            return
        for worker, heard_ms in self._heard_ms.items():
            if now_ms - heard_ms > deadlines.worker_silence_ms:
                silence = f"no sign of life for {(now_ms - heard_ms) / 1000:.0f} s"
                self.fail(ErrorCode.WORKER_LOST, f"worker {worker}: {silence}")

    @property
    def _everybody_registered(self) -> bool:
        return len(self._workers) == self._identity.parallelism

    # --- messages of workers --------------------------------------------------------------------

    def _receive(self, message: ToCoordinator) -> None:
        if message.generation != self._identity.generation:
            return  # A zombie: whatever it says has no meaning here.
        self._heard_ms[message.worker] = self._clock.monotonic_ms()
        for due in self._lines.receive(message):
            self._on_message(due)

    def _on_message(self, message: ToCoordinator) -> None:
        match message:
            case Register():
                self._on_register(message)
            case Progress():
                self._on_progress(message)
            case SnapshotAck():
                self._on_ack(message)
            case SnapshotDecline(checkpoint_id=n, reason=reason, counts=counts):
                reason = f"worker {message.worker}: {reason}"
                self._checkpoints.dispatch(Declined(CheckpointId(n), reason, counts))
            case LoopReport():
                self._on_loop_report(message)
            case WorkerFailed(code=code, reason=reason, restart_helps=helps):
                reason = f"worker {message.worker}: {reason}"
                self.fail(ErrorCode(code), reason, restart_helps=helps)

    def _on_loop_report(self, message: LoopReport) -> None:
        now_ms = self._clock.monotonic_ms()
        n, loops = message.round_number, message.loops
        over = self._loops.answered(n, message.worker, loops, now_ms)
        if over:
            self.broadcast(
                LoopsOver(generation=self._identity.generation, loops=tuple(sorted(over)))
            )

    def _on_register(self, message: Register) -> None:
        self._workers[message.worker] = message
        if not self._everybody_registered:
            return
        workers = [self._workers[n] for n in range(self._identity.parallelism)]
        peers = tuple(Peer(endpoint=w.endpoint, public_key=w.public_key) for w in workers)
        self.broadcast(Peers(generation=self._identity.generation, peers=peers))
        self.tell(
            WorkersRunning(
                time_ms=self.now_ms(),
                generation=self._identity.generation,
                pids=tuple(w.pid for w in workers),
                hosts=tuple(w.host for w in workers),
            )
        )
        early, self._early = self._early, []
        for kind, answer in early:
            self._checkpoints.request(kind, answer)

    def _on_request(self, kind: CheckpointKind, answer: "Future[CheckpointAnswer]") -> None:
        """A trigger reaches only those who are there, and without the others nothing completes."""
        if self._everybody_registered:
            self._checkpoints.request(kind, answer)
        else:
            self._early.append((kind, answer))

    def _on_progress(self, message: Progress) -> None:
        self._progress[message.worker] = message
        if message.flowing and not self._data_flowed:
            self._data_flowed = True
            self.tell(DataFlowing(time_ms=self.now_ms(), generation=self._identity.generation))
        everybody = len(self._progress) == self._identity.parallelism
        drained = everybody and all(p.drained for p in self._progress.values())
        if drained and not self._final_requested:
            self._final_requested = True
            self._on_request(CheckpointKind.FINAL, Future())  # A lost registration comes again.

    def _on_ack(self, message: SnapshotAck) -> None:
        subtasks = {SubtaskId(v.vertex_id, message.worker) for v in self._identity.plan.vertices}
        checkpoint_id = CheckpointId(message.checkpoint_id)
        self._checkpoints.keep(message)
        self._checkpoints.dispatch(Acknowledged(checkpoint_id, frozenset(subtasks)))

    def _totals(self) -> RowTotals:
        reports = self._progress.values()
        return RowTotals(
            rows_in=sum(p.rows_in for p in reports),
            rows_out=sum(p.rows_out for p in reports),
            rows_late=sum(p.rows_late for p in reports),
        )

    def _tell_progress(self, now_ms: float) -> None:
        totals = self._totals()
        since_ms, rows_then = self._last_rows
        self._last_rows = (now_ms, totals.rows_in)
        watermarks = [p.watermark_us for p in self._progress.values()]
        known = [w for w in watermarks if w is not None]
        rows_per_s = 1000 * max(totals.rows_in - rows_then, 0) / max(now_ms - since_ms, 1)
        self.tell(
            ProgressMade(
                time_ms=self.now_ms(),
                rows_in=totals.rows_in,
                rows_out=totals.rows_out,
                rows_late=totals.rows_late,
                rows_total=self._parts.rows_total,
                rows_per_s=rows_per_s,
                watermark_us=min(known) if len(known) == len(watermarks) else None,
                unaligned=UnalignedCheckpointMetrics.total(
                    p.unaligned for p in self._progress.values()
                ),
            )
        )

    def broadcast(self, message: ToWorker) -> None:
        """Send to every worker that has registered."""
        self._lines.broadcast(message, self._workers)

    def when_confirmed(self, action: Callable[[], None]) -> None:
        """Do this once every worker has taken everything that was sent up to now."""
        self._lines.when_confirmed(action)

    def tell(self, event: JobEvent) -> None:
        """Tell whoever started the job."""
        self._tell(event)
