"""The coordinator's thread in the driver: carries out what ``checkpoint.coordinator`` decides.

Sockets are read by one thread; the store is written by another, commits by a third, because a
commit that has been decided is retried for ever and must not hold up the next checkpoint.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Literal

from laminar_core.checkpoint.coordinator import (
    AbortCheckpoint,
    Acknowledged,
    AnswerRequest,
    CheckpointRequested,
    CommitCheckpoint,
    CoordinatorConfig,
    Declined,
    DiscardParts,
    Effect,
    Event,
    FailJob,
    IdReserved,
    IdTaken,
    InjectBarrier,
    Published,
    PublishManifest,
    RecordOutcome,
    ReserveId,
    StoreFailed,
    SubtaskId,
    Tick,
    abort_all,
    initial,
    next_wakeup_ms,
    step,
)
from laminar_core.checkpoint.types import CheckpointBarrier, CheckpointId, CheckpointKind
from laminar_core.connectors.base import Committer
from laminar_core.errors import ErrorCode, FencedError, LaminarError, StorageUnavailable
from laminar_core.runtime.clock import Clock
from laminar_core.runtime.events import (
    CheckpointCompleted,
    CheckpointFailed,
    DataFlowing,
    JobListener,
    ProgressMade,
    WorkersRunning,
)
from laminar_core.runtime.messages import (
    Abort,
    Cancel,
    Completed,
    Finish,
    Peer,
    Peers,
    Ping,
    Progress,
    Register,
    SnapshotAck,
    SnapshotDecline,
    ToWorker,
    Trigger,
    WorkerFailed,
    decode_to_coordinator,
    encode,
)
from laminar_core.runtime.publication import (
    JobIdentity,
    build_manifest,
    committables_of,
    history_record,
    longest_alignment_ms,
    longest_phase_ms,
)
from laminar_core.runtime.transport import CoordinatorTransport
from laminar_core.state.manifest import CheckpointManifest, CommitRecord, Heartbeat, TriggerRecord
from laminar_core.storage.checkpoint_store import CheckpointStore

PING_INTERVAL_MS = 1_000
HEARTBEAT_INTERVAL_MS = 1_000
PROGRESS_EVENT_INTERVAL_MS = 500
COMMIT_RETRY_MS = (50, 5_000)
"""First and longest pause between attempts at a commit that has been decided."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """When silence means death. Milliseconds."""

    register_ms: float = 120_000
    """From the start of the stage until all workers have reported."""
    worker_silence_ms: float = 30_000
    """Between two reports of a running worker."""


@dataclass(frozen=True, slots=True)
class GenerationOutcome:
    """How an execution ended, as the coordinator saw it."""

    kind: Literal["finished", "stopped", "failed", "fenced"]
    code: ErrorCode | None = None
    reason: str = ""
    restart_helps: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """What became of a requested checkpoint."""

    checkpoint_id: CheckpointId | None
    outcome: str
    reason: str


@dataclass(slots=True)
class _Attempt:
    """One checkpoint under way: what its manifest will be made of."""

    trigger: TriggerRecord
    acks: dict[int, SnapshotAck] = field(default_factory=dict)
    manifest: CheckpointManifest | None = None


class Coordinator:
    """One generation's coordinator. ``outcome`` is set once."""

    def __init__(
        self,
        identity: JobIdentity,
        store: CheckpointStore,
        config: CoordinatorConfig,
        transport: CoordinatorTransport,
        committers: Mapping[str, Committer],
        clock: Clock,
        *,
        highest_id: CheckpointId,
        parent_id: CheckpointId | None,
        rows_total: int | None,
        listener: JobListener,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.outcome: Future[GenerationOutcome] = Future()
        self.completed_count = 0
        self.progress: dict[int, Progress] = {}
        self._identity = identity
        self._store = store
        self._transport = transport
        self._committers = committers
        self._clock = clock
        self._parent_id = parent_id
        self._rows_total = rows_total
        self._tell = listener
        self._deadlines = deadlines or Deadlines()
        self._wall_ms = clock.now_ms() - clock.monotonic_ms()
        self._workers: dict[int, Register] = {}
        self._heard_ms: dict[int, float] = {}
        self._attempts: dict[CheckpointId, _Attempt] = {}
        self._requests: dict[str, Future[CheckpointAnswer]] = {}
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closing = threading.Event()
        self._store_thread = ThreadPoolExecutor(1, "laminar-store")
        self._commit_thread = ThreadPoolExecutor(1, "laminar-commit")
        self._thread = threading.Thread(target=self._run, name="laminar-coordinator", daemon=True)
        self._started_ms = clock.monotonic_ms()
        self._due_ms = {"ping": 0.0, "heartbeat": 0.0, "progress": 0.0}
        self._heartbeats = 0
        self._final_requested = self._data_flowed = False
        self._last_rows = (self._started_ms, 0)
        expected = {
            SubtaskId(vertex.vertex_id, index)
            for vertex in identity.plan.vertices
            for index in range(identity.parallelism)
        }
        self._state = initial(config, expected, highest_id, self._now_ms())
        self._checkpointing = False

    # --- from other threads ---------------------------------------------------------------------

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def request(self, kind: CheckpointKind) -> "Future[CheckpointAnswer]":
        """Ask for a checkpoint."""
        answer: Future[CheckpointAnswer] = Future()
        self._post(lambda: self._on_request(kind, answer))
        return answer

    def cancel_workers(self) -> None:
        """Make every worker exit at once."""
        self._post(self._cancel)

    def close(self, reason: str) -> None:
        """End the generation: abort what is pending, stop the threads, close the socket."""
        self._post(lambda: self._end_checkpoints(reason))
        self._post(self._closing.set)
        self._thread.join()
        self._commit_thread.shutdown(cancel_futures=True)
        self._store_thread.shutdown()
        self._transport.close()

    def _post(self, action: Callable[[], None]) -> None:
        self._inbox.put(action)
        self._transport.wake()

    # --- the loop -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._turn()
        except Exception as error:  # noqa: BLE001 - it ends the generation, and is reported
            self._fail(ErrorCode.ILLEGAL_EVENT, f"coordinator: {error!r}", restart_helps=True)

    def _turn(self) -> None:
        for data in self._transport.receive():
            self._on_message(decode_to_coordinator(data))
        while True:
            try:
                self._inbox.get_nowait()()
            except Empty:
                break
        if self._closing.is_set():
            return
        if self._checkpointing:
            self._dispatch(Tick())
        self._keep_alive()
        self._transport.wait(self._wait_ms())

    def _now_ms(self) -> int:
        """Wall clock of the start, carried on by the monotonic clock."""
        return int(self._wall_ms + self._clock.monotonic_ms())

    def _wait_ms(self) -> float:
        waits = [due - self._clock.monotonic_ms() for due in self._due_ms.values()]
        wakeup = next_wakeup_ms(self._state) if self._checkpointing else None
        if wakeup is not None:
            waits.append(wakeup - self._now_ms())
        return min(waits)

    def _keep_alive(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._is_due("ping", PING_INTERVAL_MS, now_ms):
            self._broadcast(Ping(generation=self._identity.generation))
            self._check_silence(now_ms)
        if self._is_due("heartbeat", HEARTBEAT_INTERVAL_MS, now_ms):
            self._heartbeats += 1
            beat = Heartbeat(sequence=self._heartbeats, at_ms=self._now_ms())
            self._store_thread.submit(self._beat, beat)
        if self._is_due("progress", PROGRESS_EVENT_INTERVAL_MS, now_ms) and self.progress:
            self._tell_progress(now_ms)

    def _is_due(self, what: str, interval_ms: float, now_ms: float) -> bool:
        if now_ms < self._due_ms[what]:
            return False
        self._due_ms[what] = now_ms + interval_ms
        return True

    def _beat(self, beat: Heartbeat) -> None:
        """Also the place where a driver that was taken over notices it."""
        try:
            self._store.check_owner(self._identity.generation)
            self._store.beat(self._identity.generation, beat)
        except FencedError as error:
            self._end("fenced", error.code, str(error))
        except StorageUnavailable:
            pass  # A missed beat; checkpoints report what is wrong with the store.

    def _check_silence(self, now_ms: float) -> None:
        if len(self._workers) < self._identity.parallelism:
            if now_ms - self._started_ms > self._deadlines.register_ms:
                self._fail(
                    ErrorCode.NOT_ENOUGH_SLOTS,
                    f"only {len(self._workers)} of {self._identity.parallelism} workers started "
                    f"within {self._deadlines.register_ms / 1000:g} s: give Spark enough slots",
                    restart_helps=True,
                )
            return
        for worker, heard_ms in self._heard_ms.items():
            if now_ms - heard_ms > self._deadlines.worker_silence_ms:
                silence = f"no sign of life for {(now_ms - heard_ms) / 1000:.0f} s"
                self._fail(ErrorCode.WORKER_LOST, f"worker {worker}: {silence}", restart_helps=True)

    # --- messages of workers --------------------------------------------------------------------

    def _on_message(
        self, message: Register | Progress | SnapshotAck | SnapshotDecline | WorkerFailed
    ) -> None:
        if message.generation != self._identity.generation:
            return  # A zombie: whatever it says has no meaning here.
        self._heard_ms[message.worker] = self._clock.monotonic_ms()
        match message:
            case Register():
                self._on_register(message)
            case Progress():
                self._on_progress(message)
            case SnapshotAck(checkpoint_id=checkpoint_id):
                self._on_ack(CheckpointId(checkpoint_id), message)
            case SnapshotDecline(checkpoint_id=n, reason=reason, counts=counts):
                reason = f"worker {message.worker}: {reason}"
                self._dispatch(Declined(CheckpointId(n), reason, counts))
            case WorkerFailed(code=code, reason=reason, restart_helps=helps):
                reason = f"worker {message.worker}: {reason}"
                self._fail(ErrorCode(code), reason, restart_helps=helps)

    def _on_register(self, message: Register) -> None:
        self._workers[message.worker] = message
        if len(self._workers) < self._identity.parallelism:
            return
        workers = [self._workers[n] for n in range(self._identity.parallelism)]
        peers = tuple(Peer(endpoint=w.endpoint, public_key=w.public_key) for w in workers)
        self._broadcast(Peers(generation=self._identity.generation, peers=peers))
        self._checkpointing = True
        self._tell(
            WorkersRunning(
                time_ms=self._now_ms(),
                generation=self._identity.generation,
                pids=tuple(w.pid for w in workers),
                hosts=tuple(w.host for w in workers),
            )
        )

    def _on_progress(self, message: Progress) -> None:
        self.progress[message.worker] = message
        if message.rows_since_start and not self._data_flowed:
            self._data_flowed = True
            self._tell(DataFlowing(time_ms=self._now_ms(), generation=self._identity.generation))
        everybody = len(self.progress) == self._identity.parallelism
        if everybody and all(p.drained for p in self.progress.values()):
            self._request_final()

    def _request_final(self) -> None:
        if not self._final_requested:
            self._final_requested = True
            self._dispatch(CheckpointRequested(CheckpointKind.FINAL, "final"))

    def _on_ack(self, checkpoint_id: CheckpointId, message: SnapshotAck) -> None:
        if (attempt := self._attempts.get(checkpoint_id)) is not None:
            attempt.acks[message.worker] = message
        subtasks = {
            SubtaskId(vertex.vertex_id, message.worker) for vertex in self._identity.plan.vertices
        }
        self._dispatch(Acknowledged(checkpoint_id, frozenset(subtasks)))

    def _tell_progress(self, now_ms: float) -> None:
        reports = self.progress.values()
        rows_in = sum(p.rows_in for p in reports)
        since_ms, rows_then = self._last_rows
        self._last_rows = (now_ms, rows_in)
        watermarks = [p.watermark_us for p in reports]
        known = [w for w in watermarks if w is not None]
        self._tell(
            ProgressMade(
                time_ms=self._now_ms(),
                rows_in=rows_in,
                rows_out=sum(p.rows_out for p in reports),
                rows_late=sum(p.rows_late for p in reports),
                rows_total=self._rows_total,
                rows_per_s=1000 * max(rows_in - rows_then, 0) / max(now_ms - since_ms, 1),
                watermark_us=min(known) if len(known) == len(watermarks) else None,
            )
        )

    # --- the machine ----------------------------------------------------------------------------

    def _on_request(self, kind: CheckpointKind, answer: "Future[CheckpointAnswer]") -> None:
        request_id = f"request-{len(self._requests)}"
        self._requests[request_id] = answer
        self._dispatch(CheckpointRequested(kind, request_id))

    def _dispatch(self, event: Event) -> None:
        self._state, effects = step(self._state, event, self._now_ms())
        for effect in effects:
            self._carry_out(effect)

    def _end_checkpoints(self, reason: str) -> None:
        self._state, effects = abort_all(self._state, reason, self._now_ms())
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ReserveId():
                self._reserve(effect)
            case InjectBarrier(barrier):
                self._inject(barrier)
            case PublishManifest(checkpoint_id):
                self._publish(checkpoint_id)
            case CommitCheckpoint(checkpoint_id, kind):
                self._commit(checkpoint_id, kind)
            case AbortCheckpoint(checkpoint_id):
                generation = self._identity.generation
                self._broadcast(Abort(generation=generation, checkpoint_id=checkpoint_id))
            case RecordOutcome():
                self._record_outcome(effect)
            case DiscardParts():
                pass  # Unreferenced files under an id that never completed: retention's.
            case AnswerRequest(request_id, checkpoint_id, outcome, reason):
                answer = self._requests.pop(request_id, None)
                if answer is not None:
                    answer.set_result(CheckpointAnswer(checkpoint_id, outcome.value, reason))
            case FailJob(reason):
                self._fail(ErrorCode.SNAPSHOT_FAILED, reason, restart_helps=True)

    def _reserve(self, effect: ReserveId) -> None:
        record = TriggerRecord(
            checkpoint_id=effect.checkpoint_id,
            generation=self._identity.generation,
            kind=effect.kind,
            triggered_at_ms=effect.triggered_ms,
        )
        self._attempts[effect.checkpoint_id] = _Attempt(record)

        def reserve() -> Event:
            ours = self._store.record_trigger(record)
            return IdReserved(effect.checkpoint_id) if ours else IdTaken(effect.checkpoint_id)

        self._in_store(effect.checkpoint_id, reserve)

    def _inject(self, barrier: CheckpointBarrier) -> None:
        self._broadcast(
            Trigger(
                generation=self._identity.generation,
                checkpoint_id=barrier.checkpoint_id,
                kind=barrier.kind,
                created_ms=barrier.created_ms,
                alignment_timeout_ms=barrier.alignment_timeout_ms,
                unaligned=barrier.unaligned,
            )
        )

    def _publish(self, checkpoint_id: CheckpointId) -> None:
        attempt = self._attempts[checkpoint_id]
        acks = [ack for _, ack in sorted(attempt.acks.items())]
        manifest = build_manifest(
            self._identity, attempt.trigger, self._parent_id, acks, self._now_ms()
        )

        def publish() -> Event:
            self._store.publish(manifest)
            attempt.manifest = manifest
            return Published(checkpoint_id)

        self._in_store(checkpoint_id, publish)

    def _in_store(self, checkpoint_id: CheckpointId, action: Callable[[], Event]) -> None:
        """Run ``action`` in the store's thread; what comes of it is an event."""

        def run() -> None:
            try:
                event = action()
            except FencedError as error:
                return self._end("fenced", error.code, str(error))
            except LaminarError as error:
                event = StoreFailed(checkpoint_id, str(error))
            self._post(lambda: self._dispatch(event))
            return None

        self._store_thread.submit(run)

    def _record_outcome(self, effect: RecordOutcome) -> None:
        attempt = self._attempts.pop(effect.checkpoint_id, None)
        manifest = None if attempt is None else attempt.manifest
        generation = self._identity.generation
        self._store_thread.submit(
            self._store.record_outcome, history_record(effect, generation, manifest)
        )
        if manifest is None:
            self._tell(
                CheckpointFailed(
                    time_ms=effect.ended_ms,
                    checkpoint_id=effect.checkpoint_id,
                    generation=generation,
                    kind=effect.kind,
                    outcome=effect.outcome.value,
                    reason=effect.reason,
                )
            )
            return
        self.completed_count += 1
        self._parent_id = effect.checkpoint_id
        self._tell(
            CheckpointCompleted(
                time_ms=effect.ended_ms,
                checkpoint_id=effect.checkpoint_id,
                generation=generation,
                kind=effect.kind,
                mode=manifest.mode,
                duration_ms=effect.ended_ms - effect.triggered_ms,
                alignment_ms=longest_alignment_ms(manifest.alignment),
                sync_ms=longest_phase_ms(manifest.subtasks, "sync_ms"),
                async_ms=longest_phase_ms(manifest.subtasks, "async_ms"),
                size_bytes=manifest.size_bytes,
            )
        )

    # --- commit and end -------------------------------------------------------------------------

    def _commit(self, checkpoint_id: CheckpointId, kind: CheckpointKind) -> None:
        manifest = self._attempts[checkpoint_id].manifest
        assert manifest is not None, "a checkpoint is committed after its manifest is durable"

        def commit() -> None:
            try:
                commit_checkpoint(
                    self._store, self._committers, manifest, self._identity, self._pause
                )
            except LaminarError as error:
                self._fail(error.code, f"commit: {error}", restart_helps=True)
                return
            self._post(lambda: self._on_committed(checkpoint_id, kind))

        self._commit_thread.submit(commit)

    def _pause(self, duration_ms: float) -> None:
        if self._closing.wait(duration_ms / 1000):
            raise StorageUnavailable(
                ErrorCode.STORE_IO, "the generation ended before the commit: the next one redoes it"
            )

    def _on_committed(self, checkpoint_id: CheckpointId, kind: CheckpointKind) -> None:
        generation = self._identity.generation
        self._broadcast(Completed(generation=generation, checkpoint_id=checkpoint_id))
        if kind in (CheckpointKind.FINAL, CheckpointKind.STOP):
            self._broadcast(Finish(generation=generation))
            self._end("finished" if kind is CheckpointKind.FINAL else "stopped")

    def _cancel(self) -> None:
        self._broadcast(Cancel(generation=self._identity.generation))

    def _fail(self, code: ErrorCode, reason: str, *, restart_helps: bool) -> None:
        self._end("failed", code, reason, restart_helps=restart_helps)

    def _end(
        self,
        kind: Literal["finished", "stopped", "failed", "fenced"],
        code: ErrorCode | None = None,
        reason: str = "",
        *,
        restart_helps: bool = True,
    ) -> None:
        """Only the first word counts; may be called from any thread."""
        with _OUTCOME_LOCK:
            if not self.outcome.done():
                self.outcome.set_result(GenerationOutcome(kind, code, reason, restart_helps))

    def _broadcast(self, message: ToWorker) -> None:
        data = encode(message)
        for worker in self._workers:
            self._transport.send(worker, data)


_OUTCOME_LOCK = threading.Lock()


def commit_checkpoint(
    store: CheckpointStore,
    committers: Mapping[str, Committer],
    manifest: CheckpointManifest,
    identity: JobIdentity,
    pause: Callable[[float], None],
) -> None:
    """Make the checkpoint's output visible, and record that; retried until it succeeds.

    ``pause(duration_ms)`` waits between attempts and ends them by raising. Repeating this after a
    crash is harmless: commits are idempotent. Source: PROTOCOL section 7.
    """
    checkpoint_id = CheckpointId(manifest.checkpoint_id)
    pause_ms, longest_ms = COMMIT_RETRY_MS
    while True:
        try:
            counts: dict[str, int] = {}
            for operator_id, committer in committers.items():
                committables = committables_of(manifest, operator_id)
                committer.commit(checkpoint_id, committables)
                counts[operator_id] = len(committables)
            store.record_commit(
                CommitRecord(
                    checkpoint_id=checkpoint_id,
                    generation=identity.generation,
                    committed_at_ms=manifest.completed_at_ms,
                    committables=counts,
                )
            )
        except StorageUnavailable:
            pause(pause_ms)
            pause_ms = min(2 * pause_ms, longest_ms)
        else:
            return
