"""One job's checkpoints: trigger, collect acknowledgements, complete, decline, expire, subsume.

The life of a checkpoint:

    queued -> reserving -> reserved -> collecting -> publishing -> completed
                  |           |            |             |
                  +-----------+------------+-------------+-> declined | expired | subsumed | aborted

The number of a periodic checkpoint is reserved a little before it is due, so that its trigger does
not wait for the store. A request that comes meanwhile makes it start at once, and then waits for it
like for any other.

Nothing is injected before its id is reserved in the store (create-only, so no two generations
share an id), nothing is announced as complete before its manifest is durable, and nothing is
committed before it is announced. Those are the orders in which the effects below come out.

Invariants, checked by ``tests/protocol/test_coordinator_model.py``:

I1  Ids strictly increase and are never used twice, also when a reservation is lost.
I2  A checkpoint completes only if every expected subtask acknowledged it, in this generation.
I3  Every reserved checkpoint ends in exactly one outcome, and every request is answered once.
I4  Periodic checkpoints keep the pause and the concurrency limit; savepoints overtake the queue.
I5  Nothing starts while more given-up checkpoints are not over than may be under way.
I6  While as much output waits for its commit as may wait, nothing starts but savepoints.

Time is an argument, in milliseconds of one clock that never goes back.

Source: PROTOCOL sections 5, 6 and 12; Flink's CheckpointCoordinator, CheckpointFailureManager
(what counts as a failure) and CheckpointRequestDecider (order of the queue).
"""

from collections.abc import Iterable
from dataclasses import replace

from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import (
    AbortCheckpoint,
    Acknowledged,
    AlignmentTimeoutChanged,
    AnswerRequest,
    CheckpointRequested,
    CommitCheckpoint,
    CommitsPending,
    Declined,
    DeletionsPending,
    DiscardParts,
    Effect,
    Event,
    FailJob,
    HoldSources,
    IdReserved,
    IdTaken,
    InjectBarrier,
    Outcome,
    Published,
    PublishManifest,
    RecordOutcome,
    ReserveId,
    ResumeSources,
    StopRevoked,
    StoreFailed,
    SubtaskId,
    Tick,
    TimeOutAlignment,
)
from laminar_core.protocol.coordinator_state import CoordinatorState, Pending, Request
from laminar_core.protocol.types import (
    CheckpointBarrier,
    CheckpointId,
    CheckpointKind,
    DeclineCause,
)

_PRIORITY = {
    CheckpointKind.STOP: 0,
    CheckpointKind.FINAL: 0,
    CheckpointKind.SAVEPOINT: 1,
    CheckpointKind.MANUAL: 2,
    CheckpointKind.PERIODIC: 3,
}
NEVER_UNALIGNED = {CheckpointKind.SAVEPOINT, CheckpointKind.STOP, CheckpointKind.FINAL}
_ENDS_THE_JOB = {CheckpointKind.STOP, CheckpointKind.FINAL}
_OUTCOME_OF_DECLINE = {
    DeclineCause.FAILED: Outcome.DECLINED,
    DeclineCause.SUBSUMED: Outcome.SUBSUMED,  # Not counted as a failure, see ``_end``.
}

RETRY_PAUSE_MS = 200
"""Before a failed stop or final checkpoint is tried again."""


Step = tuple[CoordinatorState, tuple[Effect, ...]]


def initial(
    config: CoordinatorConfig,
    expected: Iterable[SubtaskId],
    highest_id: CheckpointId,
    now_ms: int,
) -> CoordinatorState:
    """Start above every id ever seen; the first periodic checkpoint comes one interval later."""
    due = None if config.interval_ms is None else now_ms + config.interval_ms
    return CoordinatorState(
        config, frozenset(expected), CheckpointId(highest_id + 1), next_periodic_ms=due
    )


def step(state: CoordinatorState, event: Event, now_ms: int) -> Step:
    """Advance by one event at ``now_ms``. Pure: same arguments, same result, no I/O.

    Events of checkpoints that are over change nothing, except that late parts are discarded.
    """
    match event:
        case Tick():
            state, expired = _expire(state, now_ms)
            state, timed_out = _time_out_alignment(state, now_ms)
            effects = (*expired, *timed_out)
        case CheckpointRequested(kind, request_id, once):
            state, effects = _enqueue(state, Request(kind, (request_id,), once=once)), ()
        case StopRevoked():
            state, effects = _go_on(state)
        case AlignmentTimeoutChanged(timeout_ms):
            config = replace(state.config, alignment_timeout_ms=timeout_ms)
            state, effects = replace(state, config=config), ()
        case IdReserved(checkpoint_id):
            state, effects = _on_reserved(state, checkpoint_id), ()
        case IdTaken(checkpoint_id):
            state, effects = _on_id_taken(state, checkpoint_id), ()
        case Acknowledged(checkpoint_id, subtasks):
            state, effects = _on_acknowledged(state, checkpoint_id, subtasks)
        case Declined(checkpoint_id, cause, reason):
            outcome = _OUTCOME_OF_DECLINE[cause]
            state, effects = _on_declined(state, checkpoint_id, outcome, reason, now_ms)
        case Published(checkpoint_id):
            state, effects = _on_published(state, checkpoint_id, now_ms)
        case StoreFailed(checkpoint_id, reason):
            state, effects = _on_store_failed(state, checkpoint_id, reason, now_ms)
        case DeletionsPending() | CommitsPending():
            state, effects = _on_pending_work(state, event)
    state, injected = _inject_due(state, now_ms)
    state, started = _start_next(state, now_ms)
    return state, (*effects, *injected, *started)


def next_wakeup_ms(state: CoordinatorState) -> int | None:
    """Return when the next ``Tick`` is due.

    None while only another event can change anything.
    """
    times = [p.triggered_ms + state.config.timeout_ms for p in state.pending]
    times += [p.alignment_due_ms for p in state.pending if p.alignment_due_ms is not None]
    times += [_inject_due_ms(state, p) for p in state.pending if p.phase == "reserved"]
    if state.may_start:
        due = _periodic_due_ms(state)
        times += [] if due is None else [due - state.config.reserve_ahead_ms]
        times += [r.not_before_ms for r in state.queue if _may_trigger(state, r)]
    return min(times, default=None)


# --- queue and trigger --------------------------------------------------------------------------


def _enqueue(state: CoordinatorState, new: Request) -> CoordinatorState:
    ending = state.ending or new.kind in _ENDS_THE_JOB
    for index, waiting in enumerate(state.queue):
        if waiting.kind is new.kind:  # One checkpoint answers everybody who waits for this kind.
            request_ids = (*waiting.request_ids, *new.request_ids)
            # Who wants the job to end, whatever it takes, gets that.
            merged = replace(waiting, request_ids=request_ids, once=waiting.once and new.once)
            queue = (*state.queue[:index], merged, *state.queue[index + 1 :])
            return replace(state, queue=queue, ending=ending)
    queue = (*state.queue, new)
    ordered = tuple(sorted(queue, key=lambda r: _PRIORITY[r.kind]))
    return replace(state, queue=ordered, ending=ending)


def _periodic_due_ms(state: CoordinatorState) -> int | None:
    if state.next_periodic_ms is None or state.ending or state.is_held:
        return None
    if state.last_ended_ms is None:
        return state.next_periodic_ms
    return max(state.next_periodic_ms, state.last_ended_ms + state.config.min_pause_ms)


def _may_trigger(state: CoordinatorState, request: Request) -> bool:
    """A savepoint commits nothing; any other checkpoint adds to the output that waits."""
    return not state.is_held or request.kind is CheckpointKind.SAVEPOINT


def _on_pending_work(state: CoordinatorState, event: DeletionsPending | CommitsPending) -> Step:
    if isinstance(event, DeletionsPending):
        return replace(state, deletions=event.count), ()
    counted = replace(state, uncommitted=event.count)
    if counted.is_held is state.is_held:
        return counted, ()
    return counted, (HoldSources(counted.is_held),)


def _start_next(state: CoordinatorState, now_ms: int) -> Step:
    """Trigger what is due, as long as the limits allow it."""
    effects: tuple[Effect, ...] = ()
    while state.may_start:
        due = _periodic_due_ms(state)
        waiting = (r for r in state.queue if _may_trigger(state, r))
        request = next((r for r in waiting if r.not_before_ms <= now_ms), None)
        if request is not None:
            rest = tuple(r for r in state.queue if r is not request)
            state = replace(state, queue=rest)
        elif due is not None and due <= now_ms + state.config.reserve_ahead_ms:
            assert state.config.interval_ms is not None
            due_ms = max(due, now_ms)
            request = Request(CheckpointKind.PERIODIC, not_before_ms=due_ms)
            state = replace(state, next_periodic_ms=due_ms + state.config.interval_ms)
        else:
            break
        state, reserve = _reserve(state, request, max(request.not_before_ms, now_ms))
        effects = (*effects, reserve)
    return state, effects


def _reserve(
    state: CoordinatorState, request: Request, due_ms: int
) -> tuple[CoordinatorState, ReserveId]:
    pending = Pending(state.next_id, request.kind, request.request_ids, due_ms, once=request.once)
    state = replace(
        state,
        next_id=CheckpointId(state.next_id + 1),
        pending=(*state.pending, pending),
    )
    return state, ReserveId(pending.checkpoint_id, pending.kind, due_ms)


def _on_id_taken(state: CoordinatorState, checkpoint_id: CheckpointId) -> CoordinatorState:
    pending = state.find(checkpoint_id)
    if pending is None:
        return state
    # Never reuse an id: queue for the next.
    again = Request(
        pending.kind, pending.request_ids, not_before_ms=pending.triggered_ms, once=pending.once
    )
    return replace(state.without(pending), queue=(again, *state.queue))


def _on_reserved(state: CoordinatorState, checkpoint_id: CheckpointId) -> CoordinatorState:
    pending = state.find(checkpoint_id)
    if pending is None or pending.phase != "reserving":
        return state
    return state.having(replace(pending, phase="reserved"))


def _inject_due_ms(state: CoordinatorState, pending: Pending) -> int:
    """Return when the barrier of a reserved checkpoint is due; another may have ended meanwhile."""
    pause_ms = state.config.min_pause_ms
    if pending.kind is not CheckpointKind.PERIODIC or not pause_ms or state.last_ended_ms is None:
        return pending.triggered_ms
    return max(pending.triggered_ms, state.last_ended_ms + pause_ms)


def _inject_due(state: CoordinatorState, now_ms: int) -> Step:
    """Inject what is reserved and due; if a request waits, also what is not due yet."""
    awaited = any(r.not_before_ms <= now_ms and _may_trigger(state, r) for r in state.queue)
    effects: tuple[Effect, ...] = ()
    for pending in state.pending:
        if pending.phase == "reserved" and (awaited or _inject_due_ms(state, pending) <= now_ms):
            state, injected = _inject(state, pending, now_ms)
            effects = (*effects, injected)
    return state, effects


def _inject(
    state: CoordinatorState, pending: Pending, now_ms: int
) -> tuple[CoordinatorState, InjectBarrier]:
    checkpoint_id = pending.checkpoint_id
    unaligned_allowed = pending.kind not in NEVER_UNALIGNED
    timeout_ms = state.config.alignment_timeout_ms if unaligned_allowed else None
    barrier = CheckpointBarrier(
        checkpoint_id, pending.kind, now_ms, timeout_ms, unaligned=timeout_ms == 0
    )
    due_ms = now_ms + timeout_ms if timeout_ms else None
    collecting = replace(
        pending,
        phase="collecting",
        alignment_due_ms=due_ms,
        triggered_ms=min(pending.triggered_ms, now_ms),
    )
    return state.having(collecting), InjectBarrier(barrier)


def _time_out_alignment(state: CoordinatorState, now_ms: int) -> Step:
    """One clock decides for all workers when the budget since creation is spent (section 3)."""
    effects: tuple[Effect, ...] = ()
    for pending in state.pending:
        if pending.alignment_due_ms is not None and now_ms >= pending.alignment_due_ms:
            state = state.having(replace(pending, alignment_due_ms=None))
            effects = (*effects, TimeOutAlignment(pending.checkpoint_id))
    return state, effects


# --- how it ends --------------------------------------------------------------------------------


def _on_acknowledged(
    state: CoordinatorState, checkpoint_id: CheckpointId, subtasks: frozenset[SubtaskId]
) -> Step:
    pending = state.find(checkpoint_id)
    if pending is None:
        over = state.last_completed_id
        if over is not None and checkpoint_id == over:
            return state, ()  # The same answer twice; its parts are in the manifest.
        return state, (DiscardParts(checkpoint_id, subtasks),)
    if pending.phase != "collecting":
        return state, ()
    acknowledged = pending.acknowledged.add(subtasks & state.expected)
    if len(acknowledged) < len(state.expected):
        return state.having(replace(pending, acknowledged=acknowledged)), ()
    complete = replace(
        pending, acknowledged=acknowledged, phase="publishing", alignment_due_ms=None
    )
    return state.having(complete), (PublishManifest(checkpoint_id),)


def _on_published(state: CoordinatorState, checkpoint_id: CheckpointId, now_ms: int) -> Step:
    pending = state.find(checkpoint_id)
    if pending is None:
        return state, ()  # The generation is over; whoever restores this one commits it.
    effects: tuple[Effect, ...] = ()
    for subsumed in state.pending:
        if subsumed.checkpoint_id < checkpoint_id and subsumed.kind is not CheckpointKind.SAVEPOINT:
            reason = f"checkpoint {checkpoint_id} completed first"
            state, ended = _end(state, subsumed, Outcome.SUBSUMED, reason, now_ms)
            effects = (*effects, *ended)
    state, ended = _end(state, pending, Outcome.COMPLETED, "", now_ms)
    state = replace(state, last_completed_id=checkpoint_id, consecutive_failures=0)
    if pending.kind is CheckpointKind.SAVEPOINT:
        return state, (*effects, *ended)  # It belongs to the user and commits nothing.
    return state, (*effects, CommitCheckpoint(checkpoint_id, pending.kind), *ended)


def _expire(state: CoordinatorState, now_ms: int) -> Step:
    effects: tuple[Effect, ...] = ()
    for pending in state.pending:
        if pending.phase == "publishing":
            continue  # Its manifest may be durable already; only the store can say.
        if now_ms - pending.triggered_ms >= state.config.timeout_ms:
            missing = _missing(state, pending)
            reason = f"not complete after {state.config.timeout_ms} ms"
            if missing:
                reason += f", {len(missing)} of {len(state.expected)} subtasks are missing"
            state, ended = _end_here(state, pending, Outcome.EXPIRED, reason, now_ms)
            effects = (*effects, *(_naming(missing, effect) for effect in ended))
    return state, effects


def _missing(state: CoordinatorState, pending: Pending) -> tuple[SubtaskId, ...]:
    """Return the subtasks that have not acknowledged it, in order.

    Empty while its id is being reserved: the subtasks have not been triggered yet.
    """
    if pending.phase != "collecting":
        return ()
    return tuple(sorted(s for s in state.expected if s not in pending.acknowledged))


def _naming(missing: tuple[SubtaskId, ...], effect: Effect) -> Effect:
    return replace(effect, missing=missing) if isinstance(effect, RecordOutcome) else effect


def abort_all(state: CoordinatorState, reason: str, now_ms: int) -> Step:
    """Abort every pending and queued checkpoint, because the generation is over."""
    effects: tuple[Effect, ...] = ()
    for pending in state.pending:
        state, ended = _end(state, pending, Outcome.ABORTED, reason, now_ms)
        effects = (*effects, *ended)
    for request in state.queue:
        effects = (*effects, *_answers(request.request_ids, None, Outcome.ABORTED, reason))
    return replace(state, queue=(), next_periodic_ms=None), effects


def _on_declined(
    state: CoordinatorState,
    checkpoint_id: CheckpointId,
    outcome: Outcome,
    reason: str,
    now_ms: int,
) -> Step:
    pending = state.find(checkpoint_id)
    if pending is None or pending.phase == "publishing":
        return state, ()  # Over, or every part is durable already.
    return _end(state, pending, outcome, reason, now_ms)


def _on_store_failed(
    state: CoordinatorState, checkpoint_id: CheckpointId, reason: str, now_ms: int
) -> Step:
    pending = state.find(checkpoint_id)
    if pending is None:
        return state, ()
    return _end_here(state, pending, Outcome.DECLINED, reason, now_ms)


def _end_here(
    state: CoordinatorState, pending: Pending, outcome: Outcome, reason: str, now_ms: int
) -> Step:
    """It failed at the coordinator: then a savepoint does not count as a failure (section 5)."""
    failures = state.consecutive_failures
    ended, effects = _end(state, pending, outcome, reason, now_ms)
    if pending.kind is not CheckpointKind.SAVEPOINT:
        return ended, effects
    uncounted = tuple(effect for effect in effects if not isinstance(effect, FailJob))
    return replace(ended, consecutive_failures=failures), uncounted


def _end(
    state: CoordinatorState, pending: Pending, outcome: Outcome, reason: str, now_ms: int
) -> Step:
    """Take it out of the pending ones, write its history, answer, and count a failure."""
    state = replace(state.without(pending), last_ended_ms=now_ms)
    checkpoint_id = pending.checkpoint_id
    record = RecordOutcome(
        checkpoint_id, pending.kind, outcome, reason, pending.triggered_ms, now_ms
    )
    answers = _answers(pending.request_ids, checkpoint_id, outcome, reason)
    if outcome is Outcome.COMPLETED:
        return state, (record, *answers)
    resumed: tuple[Effect, ...] = ()
    if pending.once and outcome is not Outcome.ABORTED:
        state, resumed = _go_on(state)
    elif pending.kind in _ENDS_THE_JOB and outcome is not Outcome.ABORTED:
        # The job cannot end without it: try again, and keep whoever asked waiting.
        not_before = now_ms + max(state.config.min_pause_ms, RETRY_PAUSE_MS)
        again = Request(pending.kind, pending.request_ids, not_before)
        state, answers = replace(state, queue=(again, *state.queue)), ()
    effects = (AbortCheckpoint(checkpoint_id), *resumed, record, *answers)
    if outcome not in (Outcome.DECLINED, Outcome.EXPIRED):
        return state, effects
    state = replace(state, consecutive_failures=state.consecutive_failures + 1)
    tolerable = state.config.tolerable_failures
    if tolerable is not None and state.consecutive_failures > tolerable:
        why = f"{state.consecutive_failures} checkpoints failed in a row, the last one: {reason}"
        return state, (*effects, FailJob(why))
    return state, effects


def _go_on(state: CoordinatorState) -> Step:
    """The stop checkpoint does not end the job; another request still may."""
    others = (*state.queue, *state.pending)
    if any(other.kind in _ENDS_THE_JOB for other in others):
        return state, ()
    return replace(state, ending=False), (ResumeSources(),)


def _answers(
    request_ids: tuple[str, ...],
    checkpoint_id: CheckpointId | None,
    outcome: Outcome,
    reason: str,
) -> tuple[Effect, ...]:
    return tuple(AnswerRequest(r, checkpoint_id, outcome, reason) for r in request_ids)
