"""Carry out the decisions of ``protocol.coordinator``: reserve, inject, publish, commit, record.

The coordinator calls this from one thread. I/O runs in the background, with separate threads for
the store and the sinks, because a commit that does not succeed must not delay the next checkpoint.
Results are posted back as events.
"""

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from itertools import chain

from laminar_core.connectors.base import Committer, Forgetting
from laminar_core.driver.cleanup import Cleanup
from laminar_core.driver.commits import CommitNumbers, CommitQueue, commit_output
from laminar_core.driver.completion import completed_event
from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.discovery import Discovering, SplitDiscovery
from laminar_core.driver.events import (
    CheckpointFailed,
    MissingSubtask,
    ThresholdTooLow,
)
from laminar_core.driver.headroom import HeadroomWatch
from laminar_core.driver.heartbeats import Heartbeats
from laminar_core.driver.hosting import CoordinatorHost
from laminar_core.driver.index_writer import IndexWriter
from laminar_core.driver.missing import missing_line, missing_subtasks
from laminar_core.driver.publication import (
    Completion,
    JobIdentity,
    build_manifest,
    history_record,
)
from laminar_core.driver.scrub import SCRUB_BYTES_PER_SECOND, Scrub, not_whole
from laminar_core.driver.sink_watch import SinkWatch
from laminar_core.driver.under_way import CheckpointUnderWay, described
from laminar_core.errors import ErrorCode, FencedError, LaminarError
from laminar_core.link.messages import (
    Abort,
    AlignmentTimeout,
    Announce,
    Completed,
    Hold,
    Resume,
    SnapshotAck,
    SourceProgress,
    Trigger,
    WaitingCheckpoint,
)
from laminar_core.protocol.coordinator import (
    NEVER_UNALIGNED,
    abort_all,
    initial,
    next_wakeup_ms,
    step,
)
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import (
    AbortCheckpoint,
    AnswerRequest,
    CheckpointRequested,
    CommitCheckpoint,
    CommitsPending,
    DeletionsPending,
    DiscardParts,
    Effect,
    Event,
    FailJob,
    HoldSources,
    IdReserved,
    IdTaken,
    InjectBarrier,
    Published,
    PublishManifest,
    RecordOutcome,
    ReserveId,
    ResumeSources,
    StoreFailed,
    SubtaskId,
    Tick,
    TimeOutAlignment,
)
from laminar_core.protocol.given_up import GivenUpWork
from laminar_core.protocol.types import (
    CheckpointBarrier,
    CheckpointId,
    CheckpointKind,
    ResolvedMode,
)
from laminar_core.protocol.unaligned import SWITCHES_IN_A_ROW, SwitchStreak
from laminar_core.records.commands import SetMode
from laminar_core.records.manifest import CheckpointManifest, Heartbeat, TriggerRecord
from laminar_core.records.manifest_fields import DiscoveryEntry
from laminar_core.records.record import FileRef
from laminar_core.records.sink_numbers import SinkNumbers
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore

_DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """The inputs of a generation's coordinator.

    ``mode`` is the alignment mode that a command set in an earlier generation.
    """

    identity: JobIdentity
    store: CheckpointStore
    committers: Mapping[str, Committer]
    config: CoordinatorConfig
    highest_id: CheckpointId
    """Highest id ever seen in the store."""
    parent_id: CheckpointId | None
    """The restored checkpoint."""
    rows_total: int | None
    claim_sha256: str | None
    """Digest of the generation's claim: what every worker must find in the store."""
    restored: CheckpointManifest | None = None
    """The checkpoint that this generation continues from."""
    scrub_bytes_per_second: int = SCRUB_BYTES_PER_SECOND
    """Rate at which stored files are read in the background; 0: none."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    mode: SetMode | None = None
    savepoints_under: tuple[str, ...] = ()
    """Places below which commands may put savepoints."""
    discovering: Mapping[str, Discovering] = field(default_factory=dict[str, Discovering])
    """The sources, by operator, with what was found so far."""
    output_is_settled: bool = True
    """Whether the workers may begin as soon as they can, without ``Coordinator.begin``."""

    @property
    def forgetting(self) -> dict[str, Forgetting]:
        """The sources, by operator, with an input that deletes old rows."""
        return {
            name: source
            for name, each in self.discovering.items()
            if (source := each.forgetting) is not None
        }


@dataclass(frozen=True, slots=True)
class Background:
    """Executors for I/O; each runs one function after the other, in order."""

    store: Executor
    commits: Executor
    deletions: Executor
    control: Executor
    copies: Executor
    scrub: Executor
    discovery: Executor
    """Runs discovery steps. Unlike the others, it may run several functions at a time."""


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """The outcome of a requested checkpoint."""

    checkpoint_id: CheckpointId | None
    outcome: str
    reason: str


@dataclass(slots=True)
class _Attempt:
    """One checkpoint under way: what its manifest will be made of."""

    trigger: TriggerRecord
    triggered_ms: int
    """Time of the trigger, by the protocol's clock; until then, when it is due."""
    acks: dict[int, SnapshotAck] = field(default_factory=dict[int, SnapshotAck])
    waiting: dict[int, WaitingCheckpoint] = field(default_factory=dict[int, WaitingCheckpoint])
    """Per worker, the last report of what it waits for."""
    manifest: CheckpointManifest | None = None
    discovery: Mapping[str, DiscoveryEntry] = field(default_factory=dict[str, DiscoveryEntry])
    """What the discovery had found when the trigger was sent. Later splits are not included."""
    injected: bool = False
    offered: bool = False
    """Whether its manifest may exist, or may still be created: only the store can tell."""


class CheckpointDriver:
    """The machine with its state, and the I/O it asks for."""

    def __init__(
        self, parts: CoordinatorParts, host: CoordinatorHost, background: Background
    ) -> None:
        self.completed_count = 0
        self._streak = SwitchStreak()
        self._identity = parts.identity
        self._store = parts.store
        self._audit = AuditLog(parts.store.objects, parts.store.paths, host.now_ms)
        self._committers = parts.committers
        self._parent_id = parts.parent_id
        self._host = host
        self._attempts: dict[CheckpointId, _Attempt] = {}
        self._unanswered: set[CheckpointId] = set()
        """Checkpoints offered for publication whose outcome is unknown."""
        self._requests: dict[str, Future[CheckpointAnswer]] = {}
        self._request_count = 0
        self._background = background.store
        generation = parts.identity.generation
        self._scrub = Scrub(
            parts.store, generation, host, background.scrub, parts.scrub_bytes_per_second
        )
        if parts.restored is not None:
            self._scrub.completed(parts.restored)
        self._heartbeats = Heartbeats(
            parts.store, parts.identity.generation, self._audit, host, background.store
        )
        self._given_up = GivenUpWork(parts.config.timeout_ms)
        self._cleanup = Cleanup(
            parts.store,
            parts.identity.generation,
            background.deletions,
            host,
            self._on_deletions,
        )
        self._cleanup.sweep(parts.highest_id)
        self._index = IndexWriter(parts.store, generation, background.deletions)
        self._discovery = SplitDiscovery(
            parts.discovering, parts.identity, host, background.discovery
        )
        self._headroom = HeadroomWatch(parts.forgetting, parts.store, host, background.discovery)
        self._commits = CommitQueue(self._commit, self._on_committed, background.commits, host)
        self._sinks = SinkWatch(parts.committers)
        expected = {
            SubtaskId(vertex.vertex_id, index)
            for vertex in parts.identity.plan.vertices
            for index in range(parts.identity.parallelism)
        }
        self._state = initial(parts.config, expected, parts.highest_id, self._now_ms())

    def request(
        self, kind: CheckpointKind, answer: "Future[CheckpointAnswer]", *, once: bool = False
    ) -> None:
        """Request a checkpoint; ``answer`` is set when it has ended."""
        self._request_count += 1
        request_id = f"request-{self._request_count}"
        self._requests[request_id] = answer
        self.dispatch(CheckpointRequested(kind, request_id, once))

    def keep(self, ack: SnapshotAck) -> None:
        """Keep the acknowledged parts for the manifest."""
        attempt = self._attempts.get(ack.checkpoint_id)
        if attempt is not None:
            attempt.acks[ack.worker] = ack

    def note_sources(self, worker: int, sources: Mapping[str, SourceProgress]) -> None:
        """See ``SplitDiscovery.reported``."""
        self._discovery.reported(worker, sources)

    def completed_numbers(self, sources: Mapping[str, SourceNumbers]) -> dict[str, SourceNumbers]:
        """Return the numbers of the sources with those that the driver knows."""
        took_ms, late = self._discovery.durations_ms(), self._discovery.late_counts()
        found: dict[str, SourceNumbers] = {}
        for name, numbers in sources.items():
            more: dict[str, float | int | None] = {
                "discovery_ms": took_ms.get(name),
                "files_late": late.get(name),
            }
            if (known := self._headroom.known.get(name)) is not None:
                more["headroom_checkpoint_id"] = known.checkpoint_id
                more["headroom_rows"] = known.headroom.rows
                more["headroom_seconds"] = known.headroom.seconds
            found[name] = numbers.model_copy(update=more)
        return found

    def note_waiting(self, message: WaitingCheckpoint) -> None:
        """Keep what a worker waits for, in case that the checkpoint expires."""
        attempt = self._attempts.get(message.checkpoint_id)
        if attempt is not None:
            attempt.waiting[message.worker] = message

    @property
    def pending_count(self) -> int:
        """Number of checkpoints that were triggered and have not ended."""
        return len(self._triggered())

    def under_way(self) -> list[CheckpointUnderWay]:
        """Describe the checkpoints that were triggered and have not ended, oldest first."""
        now_ms, job, host_of = self._now_ms(), self._identity, self._host.host_of
        return [
            described(
                job, each.trigger, now_ms - each.triggered_ms, each.waiting, each.acks, host_of
            )
            for each in self._triggered()
        ]

    def _triggered(self) -> list[_Attempt]:
        now_ms = self._now_ms()
        return [each for _, each in sorted(self._attempts.items()) if each.triggered_ms <= now_ms]

    def tick(self) -> None:
        """Process the passing of time."""
        self._hold_up()
        self.dispatch(Tick())
        self._commits.tick()
        self._scrub.tick()
        self._discovery.tick()
        self._headroom.tick()

    def next_wakeup_ms(self) -> float | None:
        """Return when ``tick`` is due; None if it is not."""
        times = (
            next_wakeup_ms(self._state),
            self._commits.next_wakeup_ms(),
            self._scrub.next_wakeup_ms(),
            self._discovery.next_wakeup_ms(),
            self._headroom.next_wakeup_ms(),
        )
        return min((t for t in times if t is not None), default=None)

    def dispatch(self, event: Event) -> None:
        """Take one event and carry out what follows."""
        if isinstance(event, IdTaken):
            self._attempts.pop(event.checkpoint_id, None)  # Another generation's.
        self._state, effects = step(self._state, event, self._now_ms())
        for effect in effects:
            self._carry_out(effect)

    def suspect(self, operator_id: str, worker: int, file: FileRef) -> None:
        """See ``Scrub.suspect``."""
        self._scrub.suspect(operator_id, worker, file)

    def abort_all(self, reason: str) -> None:
        """Abort all pending checkpoints, because the generation is over."""
        self._state, effects = abort_all(self._state, reason, self._now_ms())
        for effect in effects:
            self._carry_out(effect)

    def beat(self, heartbeat: Heartbeat) -> None:
        """See ``Heartbeats.beat``."""
        self._heartbeats.beat(heartbeat)

    # --- effects --------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ReserveId():
                self._reserve(effect)
            case InjectBarrier() | TimeOutAlignment() | AbortCheckpoint():
                self._order(effect)
            case PublishManifest(checkpoint_id):
                self._publish(checkpoint_id)
            case CommitCheckpoint(checkpoint_id):
                manifest = self._attempts[checkpoint_id].manifest
                assert manifest is not None, "committed before its manifest is durable"
                self._commits.add(manifest)
                self._host.post(self._count_commits)  # This event is still in progress.
            case RecordOutcome():
                self._record_outcome(effect)
            case DiscardParts(checkpoint_id):
                if checkpoint_id not in self._unanswered:
                    self._cleanup.late(checkpoint_id)
            case AnswerRequest(request_id, checkpoint_id, outcome, reason):
                if (answer := self._requests.pop(request_id, None)) is not None:
                    answer.set_result(CheckpointAnswer(checkpoint_id, outcome.value, reason))
            case HoldSources() | ResumeSources():
                self._pace(effect)
            case FailJob(reason):
                self._host.fail(ErrorCode.SNAPSHOT_FAILED, reason)

    def _pace(self, effect: HoldSources | ResumeSources) -> None:
        """Notify the sources of all workers."""
        generation = self._identity.generation
        match effect:
            case HoldSources(held):
                self._host.broadcast(Hold(generation=generation, held=held))
            case ResumeSources():
                self._host.broadcast(Resume(generation=generation))

    def _order(self, effect: InjectBarrier | TimeOutAlignment | AbortCheckpoint) -> None:
        """Send the machine's order to the workers."""
        generation = self._identity.generation
        match effect:
            case InjectBarrier(barrier):
                self._inject(barrier)
            case TimeOutAlignment(n):
                self._host.broadcast(AlignmentTimeout(generation=generation, checkpoint_id=n))
            case AbortCheckpoint(n):
                self._host.broadcast(Abort(generation=generation, checkpoint_id=n))
                attempt = self._attempts.get(n)
                if attempt is not None and attempt.injected and not attempt.offered:
                    self._cleanup.given_up(n)

    def _reserve(self, effect: ReserveId) -> None:
        record = TriggerRecord(
            checkpoint_id=effect.checkpoint_id,
            generation=self._identity.generation,
            kind=effect.kind,
            triggered_at_ms=self._wall_ms(effect.triggered_ms),
        )
        self._attempts[effect.checkpoint_id] = _Attempt(record, effect.triggered_ms)

        def reserve() -> Event:
            ours = self._store.attempts.record_trigger(record)
            return IdReserved(effect.checkpoint_id) if ours else IdTaken(effect.checkpoint_id)

        self._in_store(effect.checkpoint_id, reserve)
        if self._state.config.alignment_timeout_ms == 0 and effect.kind not in NEVER_UNALIGNED:
            generation = self._identity.generation
            self._host.broadcast(
                Announce(generation=generation, checkpoint_id=effect.checkpoint_id)
            )

    def _inject(self, barrier: CheckpointBarrier) -> None:
        attempt = self._attempts[barrier.checkpoint_id]
        attempt.injected = True
        if barrier.created_ms < attempt.triggered_ms:  # A request made it start early.
            attempt.triggered_ms = barrier.created_ms
            at_ms = self._wall_ms(barrier.created_ms)
            attempt.trigger = attempt.trigger.model_copy(update={"triggered_at_ms": at_ms})
        attempt.discovery = self._discovery.trigger_sent(barrier.checkpoint_id)
        self._host.broadcast(
            Trigger(
                generation=self._identity.generation,
                checkpoint_id=barrier.checkpoint_id,
                kind=barrier.kind,
                created_ms=self._wall_ms(barrier.created_ms),
                alignment_timeout_ms=barrier.alignment_timeout_ms,
                unaligned=barrier.unaligned,
            )
        )

    def _publish(self, checkpoint_id: CheckpointId) -> None:
        attempt = self._attempts[checkpoint_id]
        acks = [ack for _, ack in sorted(attempt.acks.items())]
        completion = Completion(self._host.now_ms(), self._now_ms() - attempt.triggered_ms)
        manifest = build_manifest(
            self._identity, attempt.trigger, self._parent_id, acks, completion, attempt.discovery
        )
        if known := self._scrub.known_damage(manifest):
            self._scrub.unpublished(manifest, known)
            failed = StoreFailed(checkpoint_id, not_whole(known))
            self._host.post(lambda: self.dispatch(failed))
            return
        attempt.offered = True

        def publish() -> Event:
            self._write_carried(checkpoint_id, attempt)
            newest = self._audit.newest()
            named = manifest.model_copy(update={"audited": newest})
            damage = self._store.manifests.publish_if_whole(named)
            self._audit.keep(newest)
            if damage:
                attempt.offered = False
                self._host.post(lambda: self._scrub.unpublished(named, damage))
                return StoreFailed(checkpoint_id, not_whole(damage))
            attempt.manifest = named
            return Published(checkpoint_id)

        self._in_store(checkpoint_id, publish)

    def _write_carried(self, checkpoint_id: CheckpointId, attempt: _Attempt) -> None:
        """Write the positions of removed sources, which no worker has."""
        if (carried := self._identity.carried) is None:
            return
        try:
            carried.write(self._store, checkpoint_id)
        except LaminarError:
            attempt.offered = False
            raise

    def _in_store(self, checkpoint_id: CheckpointId, action: Callable[[], Event]) -> None:
        """Run ``action`` in the store's thread; what comes of it is an event."""

        def run() -> None:
            try:
                event = action()
            except FencedError as error:
                self._host.fenced(error)
                return
            except LaminarError as error:
                event = StoreFailed(checkpoint_id, str(error))
            except Exception as error:  # noqa: BLE001 - nobody else would ever see it
                reason = f"checkpoint {checkpoint_id}: {error!r}"
                self._host.fail(ErrorCode.SNAPSHOT_FAILED, reason)
                return
            self._host.post(lambda: self.dispatch(event))

        self._background.submit(run)

    def _record_outcome(self, effect: RecordOutcome) -> None:
        attempt = self._attempts.pop(effect.checkpoint_id, None)
        manifest = None if attempt is None else attempt.manifest
        generation = self._identity.generation
        missing = self._missing(effect, attempt)
        if line := missing_line(missing, len(effect.missing)):
            effect = replace(effect, reason=f"{effect.reason}: {line}")
        record = history_record(effect, generation, manifest, self._wall_ms)
        self._background.submit(self._store.attempts.record_outcome, record)
        if manifest is None:
            if attempt is not None and attempt.offered:
                self._unanswered.add(effect.checkpoint_id)
            self._host.notify(
                CheckpointFailed(
                    time_ms=record.ended_at_ms,
                    checkpoint_id=effect.checkpoint_id,
                    generation=generation,
                    kind=effect.kind,
                    outcome=effect.outcome.value,
                    reason=effect.reason,
                    missing=missing,
                    missing_count=len(effect.missing),
                )
            )
            return
        self._cleanup.completed(effect.checkpoint_id)
        self._scrub.completed(manifest)
        self._index.completed(effect.checkpoint_id)
        self.completed_count += 1
        self._parent_id = effect.checkpoint_id
        self._host.notify(completed_event(effect, manifest, record.ended_at_ms))
        self._judge_threshold(effect, manifest.mode)

    def _missing(
        self, effect: RecordOutcome, attempt: _Attempt | None
    ) -> tuple[MissingSubtask, ...]:
        reports = {} if attempt is None else attempt.waiting
        return missing_subtasks(effect.missing, self._identity.plan, reports, self._host.host_of)

    def _judge_threshold(self, effect: RecordOutcome, mode: ResolvedMode) -> None:
        timeout_ms = self._state.config.alignment_timeout_ms
        if timeout_ms and effect.kind is CheckpointKind.PERIODIC and self._streak.ended(mode):
            self._host.notify(
                ThresholdTooLow(
                    time_ms=self._wall_ms(effect.ended_ms),
                    checkpoints=SWITCHES_IN_A_ROW,
                    alignment_timeout_ms=timeout_ms,
                )
            )

    def _now_ms(self) -> int:
        """Return the protocol's time. A wall clock that steps would expire what has just begun."""
        return int(self._host.monotonic_ms())

    def _wall_ms(self, protocol_ms: int) -> int:
        """Translate the protocol's time into wall-clock time for records."""
        return self._host.now_ms() - (self._now_ms() - protocol_ms)

    def _on_deletions(self, count: int) -> None:
        """Post the new count; the event that caused it may still be in progress."""
        self._host.post(lambda: self.given_up(_DRIVER, count))

    def given_up(self, place: Hashable, count: int) -> None:
        """Record how many given-up checkpoints have cleanup left at ``place``.

        A worker or the driver.
        """
        self._given_up.report(place, count, self._now_ms())
        self._hold_up()

    def _hold_up(self) -> None:
        count = self._given_up.holding_up(self._now_ms())
        if count != self._state.deletions:
            self.dispatch(DeletionsPending(count))

    @property
    def commit_numbers(self) -> CommitNumbers:
        """The commits of this generation."""
        return self._commits.numbers

    def sink_numbers(self) -> dict[str, SinkNumbers]:
        """Return the numbers of each sink; output counts as soon as a worker has offered it."""
        acks = (ack for attempt in self._attempts.values() for ack in attempt.acks.values())
        completed = (entry for manifest in self._commits.waiting for entry in manifest.subtasks)
        waiting = chain(completed, (entry for ack in acks for entry in ack.entries))
        return self._sinks.numbers(waiting, self._host.now_ms())

    def _count_commits(self) -> None:
        count = self._commits.waiting_count
        if count != self._state.uncommitted:
            self.dispatch(CommitsPending(count))

    def _commit(self, manifest: CheckpointManifest, again: bool) -> None:  # noqa: FBT001
        took_ms = commit_output(
            self._store,
            self._committers,
            manifest,
            self._identity.generation,
            again=again,
            monotonic_ms=self._host.monotonic_ms,
        )
        self._host.post(lambda: self._sinks.committed(manifest, took_ms))

    def _on_committed(self, manifest: CheckpointManifest) -> None:
        checkpoint_id, generation = manifest.checkpoint_id, self._identity.generation
        self._host.broadcast(Completed(generation=generation, checkpoint_id=checkpoint_id))
        self._count_commits()
        if manifest.kind in (CheckpointKind.FINAL, CheckpointKind.STOP):
            self._host.last_commit_done(manifest.kind)
