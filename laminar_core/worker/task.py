"""One subtask of a vertex: takes elements from its inputs, one at a time, and processes them.

``BarrierAligner`` decides the protocol; this module carries its effects out. ``work`` does one unit
and returns, so that the worker's loop is never blocked for longer than an operator needs for one of
its results.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

import pyarrow as pa

from laminar_core.connectors.formats.letters import LETTERS
from laminar_core.host.clock import Clock
from laminar_core.link.wire import ArrowElement
from laminar_core.operators.base import (
    AnySubtask,
    IncrementalSubtask,
    LimitsRows,
    PendingSnapshot,
    Side,
)
from laminar_core.plan.plan import SideOutput
from laminar_core.protocol.alignment import BarrierAligner
from laminar_core.protocol.alignment_events import (
    AlignmentTimedOut,
    BarrierArrived,
    BarrierReached,
    CancelReceived,
    CaptureChannel,
    CheckpointAborted,
    CheckpointTriggered,
    DeclineCheckpoint,
    DiscardCheckpoint,
    Effect,
    EndArrived,
    EndReached,
    Event,
    ForwardCancel,
    SealChannelState,
    SealInputs,
    SnapshotFailed,
    TakeSnapshot,
)
from laminar_core.protocol.alignment_state import State
from laminar_core.protocol.types import (
    WATERMARK_END_US,
    AlignmentMode,
    Batch,
    CancelMarker,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    CheckpointKind,
    DeclineCause,
    EndOfInput,
    Idle,
    Watermark,
)
from laminar_core.protocol.unaligned import UnalignedCheckpointMetrics
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.records.channel_entries import AlignmentEntry, ChannelAlignment, ChannelEntry
from laminar_core.worker.barrier_waits import BarrierWaits
from laminar_core.worker.channels import InputChannel
from laminar_core.worker.cuts import Cut, PendingPart
from laminar_core.worker.firing import Firing
from laminar_core.worker.inflight import Captured, InflightRecorder, SnapshotLimits
from laminar_core.worker.operator_chain import Chain
from laminar_core.worker.outputs import EdgeOutput
from laminar_core.worker.pacing import PacedSource
from laminar_core.worker.pressure import OutputRoom
from laminar_core.worker.replay import ReplayOrder
from laminar_core.worker.sinks import CommittingSink
from laminar_core.worker.slicing import SLICE_ROWS_MAX, WorkUnit
from laminar_core.worker.timed import TimedOperators


class TaskListener(Protocol):
    """Receives the events of a task; implemented by its worker."""

    def on_operator(self, operator_id: str) -> None:
        """Note that this operator, source or sink works from now on."""
        ...

    def on_cut(self, cut: Cut) -> None:
        """Finish a snapshot that was taken. More of the checkpoint may follow."""
        ...

    def on_captured(self, vertex_id: str, captured: Captured) -> None:
        """Write in-flight data of a cut."""
        ...

    def on_complete(self, checkpoint_id: CheckpointId, alignment: AlignmentEntry) -> None:
        """Acknowledge the checkpoint once it is durable: this task has nothing to add."""
        ...

    def on_discard(self, checkpoint_id: CheckpointId) -> None:
        """Drop this checkpoint, which will not complete here."""
        ...

    def on_decline(self, checkpoint_id: CheckpointId, cause: DeclineCause, reason: str) -> None:
        """Decline the checkpoint at the coordinator."""
        ...


class Snapshottable(Protocol):
    """Anything in a chain with a part in the checkpoint."""

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Run the synchronous phase of a snapshot; return a function for the rest."""
        ...


@dataclass(frozen=True, slots=True)
class TaskParts:
    """The components of a task. Exactly one of ``source`` and ``inputs`` feeds it."""

    vertex_id: str
    subtask_index: int
    source: PacedSource | None
    inputs: Sequence[InputChannel]
    operators: Sequence[tuple[str, AnySubtask]]
    source_id: str | None
    sink: CommittingSink | None
    sink_id: str | None
    outputs: Sequence[EdgeOutput]
    gate: WatermarkGate
    newest_id: CheckpointId
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    aligned_only: frozenset[ChannelId] = frozenset()
    """Inputs on which no barrier may overtake."""
    feedback: frozenset[ChannelId] = frozenset()
    """Inputs that come back to the head of a loop."""
    loop: str | None = None
    """The loop that the vertex is in."""
    inside: frozenset[ChannelId] = frozenset()
    """Inputs that come from the same loop, feedback included."""
    incremental: bool = False
    """Whether operators that can write only the changes since the last cut do so."""
    finished: bool = False
    """The restored source had ended: it is not read again."""
    replay_edges: Sequence[Sequence[ChannelId]] = ()
    """Inputs by edge, in the order of their senders; restored elements on them go first."""
    input_of: Mapping[ChannelId, int] = field(default_factory=dict[ChannelId, int])
    """The input of the first operator that a channel feeds; 0 if it is not there."""
    senders: Mapping[ChannelId, tuple[str, int]] = field(
        default_factory=dict[ChannelId, tuple[str, int]]
    )
    """Per input: the sending vertex, and which subtask of it."""
    announced_us: int | None = None
    """Event time that receivers have to hear of, because the number of senders has changed."""
    passes_idleness: bool = False
    """Whether receivers hear that all inputs are idle: these come without an exchange."""


_SELF_CONTAINED = {CheckpointKind.SAVEPOINT, CheckpointKind.STOP}
"""Whole in itself: it becomes a savepoint, or may become one."""

Pause = Literal["stop", "commits"]
"""Why a source pauses: the job stops, or output waits for its commit."""


class Task:
    """The running subtask. One thread calls it."""

    def __init__(self, parts: TaskParts, listener: TaskListener, clock: Clock) -> None:
        self.parts = parts
        self.finished = False
        """Whether its input has ended and was flushed; it still takes part in checkpoints."""
        self._listener = listener
        self._clock = clock
        self._chain = self._chain_of(parts, listener)
        self._aligner = BarrierAligner(
            frozenset(i.channel for i in parts.inputs),
            parts.newest_id,
            feedback=parts.feedback,
            aligned_only=parts.aligned_only,
        )
        self._inflight = InflightRecorder(
            parts.inputs, parts.outputs, parts.limits.max_inflight_buffer_bytes, self._captured
        )
        self._by_channel = {i.channel: i for i in parts.inputs}
        self._replay = ReplayOrder(
            [[self._by_channel[c] for c in channels] for channels in parts.replay_edges]
        )
        if self._replay.active:
            self._chain.hold_made_watermarks()
        self.room, self.rows_passed = OutputRoom(parts.outputs, clock), self._chain.rows_passed
        first = parts.operators[0][1] if parts.operators else None
        self._limits_rows = first if isinstance(first, LimitsRows) else None
        self.timed = TimedOperators(parts.operators, self._chain, clock)
        self._firing = Firing(self._chain, clock, self.room.is_there, self.timed)
        self._turn, self.unit, self._may_be_idle = 0, WorkUnit(), False
        self._pauses = set[Pause]()
        self._renewals: set[str] = set()
        """Operators whose stored files are lost."""
        self._waits = BarrierWaits(clock)
        self._alignment: AlignmentEntry | None = None
        if parts.announced_us is not None:
            announced_us = self._chain.output_watermark(parts.announced_us)
            if announced_us is not None:
                self._emit_watermark(announced_us)
        if parts.finished:
            self._finish()

    def _chain_of(self, parts: TaskParts, listener: TaskListener) -> Chain:
        chain = Chain(
            parts.operators,
            self._emit,
            self._emit_watermark,
            listener.on_operator,
            self._emit_side,
        )
        self._main_outputs = [output for output in parts.outputs if output.side is None]
        if parts.source is not None and parts.source.watch is not None:
            chain.follow(parts.source.watch.watermarks)
        return chain

    @property
    def unaligned(self) -> UnalignedCheckpointMetrics:
        """The number of unaligned cuts, and their in-flight data."""
        return self._inflight.metrics

    @property
    def open_inputs(self) -> frozenset[ChannelId]:
        """Channels that have not been read to their end."""
        return self._aligner.state.gate.open

    @property
    def protocol_state(self) -> State:
        """The state of its alignment machine, for reports."""
        return self._aligner.state

    @property
    def midway(self) -> bool:
        """Whether it is in the middle of an element, so that operators' state may be, too."""
        return self._firing.active

    # --- the unit of work -----------------------------------------------------------------------

    def work(self) -> bool:
        """Do one unit if there is one and the outputs have room; return whether it did."""
        if self.finished or not self.room.is_there():
            return False
        if self._firing.active:
            return self._firing.work()
        if self.timed.work():
            return True
        source = self.parts.source
        if self.timed.is_full():
            acted = False
        else:
            acted = self._work_on_input() if source is None else self._work_as_source(source)
        if acted or self._chain.finish_bundles():
            return True
        if self._may_be_idle and not self.timed.has_pending():
            self._may_be_idle = False
            if self.parts.gate.is_idle:
                self._become_idle()
        return False

    def flush(self) -> bool:
        """Send what credit allows, and give credit back for what was taken."""
        for channel in self.parts.inputs:
            channel.give_back()
        flushed = sum(output.flush() for output in self.parts.outputs) > 0
        if flushed:
            self._inflight.settle()
            self._acknowledge()
        return flushed

    def _work_as_source(self, source: PacedSource) -> bool:
        if self._pauses:
            return False
        self._computes(self.parts.source_id)
        if source.event_time_rose():
            self._chain.look_again()
        batch = source.poll(self.unit.rows_max or SLICE_ROWS_MAX)
        if batch is not None:
            if batch.letters is not None and self.parts.source_id is not None:
                self._emit_side(self.parts.source_id, Side(LETTERS, batch.letters))
            if batch.rows.num_rows:
                if batch.split_id is not None:
                    self._chain.from_split(batch.split_id)
                self._process(batch.rows)
            return True
        if source.finished:
            self._end()
            return True
        if self._chain.finish_bundles():  # Rows of an idle source would become late.
            return True
        if not self.timed.has_pending() and source.became_idle():
            self._become_idle()
        return False

    def _become_idle(self) -> None:
        if self.parts.sink is not None:
            self.parts.sink.time.become_idle()
        self._broadcast(Idle())

    def _work_on_input(self) -> bool:
        for channel in self._in_turn():
            if len(channel) and not self._holds(channel.channel):
                self._turn = (channel.channel + 1) % len(self.parts.inputs)
                self._take(channel.channel, channel.take(self._rows_max(channel)))
                if self._replay.took():
                    self._firing.finish()
                    self._chain.release_made_watermarks()
                return True
        return False

    def _rows_max(self, channel: InputChannel) -> int | None:
        """Return how many rows of the channel's first element to take; None: all."""
        element, rows_max = channel.first, self.unit.rows_max
        if self._limits_rows is None or not isinstance(element, Batch):
            return rows_max
        rows = element.data if rows_max is None else element.data.slice(0, rows_max)
        self._computes(self.parts.operators[0][0])
        return self._limits_rows.rows_at_once(self.parts.input_of.get(channel.channel, 0), rows)

    def _holds(self, channel: ChannelId) -> bool:
        return self._aligner.holds(channel) or self._replay.holds(channel)

    def _in_turn(self) -> Sequence[InputChannel]:
        """The inputs in the order in which they are looked at: none is left out for ever."""
        inputs = self.parts.inputs
        return [*inputs[self._turn :], *inputs[: self._turn]]

    def _take(self, channel: ChannelId, element: ArrowElement) -> None:
        match element:
            case Batch(batch):
                self.parts.gate.mark_active(channel)
                self._process(batch, self.parts.input_of.get(channel, 0))
            case Watermark(time_us):
                self._advance(self.parts.gate.advance(channel, time_us))
            case Idle():
                self._may_be_idle = self.parts.passes_idleness
                self._advance(self.parts.gate.mark_idle(channel))
            case CheckpointBarrier():
                self._waits.reached(channel, element.checkpoint_id)
                self._on(BarrierReached(channel, element))
            case CancelMarker(checkpoint_id):
                self._on(CancelReceived(channel, checkpoint_id))
            case EndOfInput():
                self._on(EndReached(channel))
                self._may_be_idle = self.parts.passes_idleness
                risen_us, ends = self.parts.gate.end(channel), self.parts.gate.ended
                again = ends and self.timed.may_keep_rows  # A cut may have kept rows waiting.
                self._advance(WATERMARK_END_US if again else risen_us, ends=ends)

    def _process(self, batch: pa.RecordBatch, input_index: int = 0) -> None:
        self._firing.take(batch, input_index, partial(self.unit.took, batch.num_rows))
        if self.parts.loop is not None:
            self._firing.finish()  # Its counters take a batch for processed when it was taken.
            self._chain.finish_bundles()

    def _advance(self, watermark_us: int | None, *, ends: bool = False) -> None:
        """Let event time advance; ``ends``: nothing comes after it."""
        self._firing.start(watermark_us, self._ended if ends else None)

    def _end(self) -> None:
        self._firing.start(WATERMARK_END_US, self._ended)

    def _ended(self, took_ms: float) -> None:
        del took_ms
        self._finish()

    def _finish(self) -> None:
        if self.parts.sink is not None:
            self.parts.sink.time.advance(WATERMARK_END_US)
        self._broadcast(EndOfInput())
        self.finished = True

    def _computes(self, part_id: str | None) -> None:
        if part_id is not None:
            self._listener.on_operator(part_id)

    def _emit(self, batch: pa.RecordBatch) -> None:
        if self.parts.sink is not None:
            self._computes(self.parts.sink_id)
            self.parts.sink.write(batch)
        for output in self._main_outputs:
            output.send(batch)

    def _emit_side(self, operator_id: str, side: Side) -> None:
        sent = SideOutput(operator_id, side.output)
        for output in self.parts.outputs:
            if output.side == sent:
                output.send(side.rows)

    def _emit_watermark(self, watermark_us: int) -> None:
        if self.parts.sink is not None:
            self.parts.sink.time.advance(watermark_us)
        self._broadcast(Watermark(watermark_us))

    def _broadcast(self, element: ArrowElement) -> None:
        if self.finished:
            return  # The end of a channel stands for every later barrier; nothing follows it.
        for output in self.parts.outputs:
            output.broadcast(element)

    # --- the protocol ---------------------------------------------------------------------------

    def arrived(self, channel: ChannelId, element: ArrowElement) -> None:
        """Enqueue an arriving element."""
        self._by_channel[channel].arrive(element)
        match element:
            case CheckpointBarrier():
                self._waits.arrived(element.checkpoint_id, self._aligner.state.gate.newest_id)
                self._on(BarrierArrived(channel, element))
            case EndOfInput():
                self._on(EndArrived(channel))
            case Batch() | Watermark() | Idle() if self._aligner.records(channel):
                self._inflight.record(channel, element)
                self._decline_if_too_large()
            case _:
                pass

    def trigger(self, barrier: CheckpointBarrier) -> None:
        """Take a snapshot on request of the coordinator; sources cut now."""
        self._on(CheckpointTriggered(barrier))

    def time_out(self, checkpoint_id: CheckpointId) -> None:
        """Let waiting barriers overtake, because the checkpoint's alignment budget is spent."""
        self._on(AlignmentTimedOut(checkpoint_id))
        self._inflight.time_out(checkpoint_id)
        self._decline_if_too_large()
        self._acknowledge()

    def abort(self, checkpoint_id: CheckpointId) -> None:
        """Abort the checkpoint, as the coordinator did."""
        self._on(CheckpointAborted(checkpoint_id))

    def add_splits(self, splits: pa.Table | None, *, complete: bool) -> None:
        """Give the source these splits to read; ``complete``: no more will come.

        Raises:
            DataError: a split cannot be opened.
        """
        assert self.parts.source is not None, "only a source has splits"
        self._computes(self.parts.source_id)
        self.parts.source.add(splits, complete=complete)

    def hold(self, *, held: bool) -> None:
        """Pause the source, or read on; barriers pass all the same."""
        if held:
            self._pauses.add("commits")
        else:
            self._pauses.discard("commits")

    def resume(self) -> None:
        """Continue to read, because the job does not end with the stop checkpoint."""
        self._pauses.discard("stop")

    def snapshot_failed(self, checkpoint_id: CheckpointId, reason: str) -> None:
        """Decline the checkpoint, because the background could not write a part."""
        self._on(SnapshotFailed(checkpoint_id, reason))

    def committed(self, checkpoint_id: CheckpointId) -> None:
        """Notify the sink that the checkpoint's output is visible."""
        if self.parts.sink is not None:
            self._computes(self.parts.sink_id)
            self.parts.sink.committed(checkpoint_id)

    def close(self) -> None:
        """Release files, and discard staged rows that are not pre-committed."""
        if self.parts.source is not None:
            self.parts.source.reader.close()
        if self.parts.sink is not None:
            self.parts.sink.writer.close()

    def _on(self, event: Event) -> None:
        for effect in self._aligner.on(event):
            self._carry_out(effect)
        self._decline_if_too_large()
        self._acknowledge()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case TakeSnapshot(barrier, mode):
                self._cut(barrier, mode)
            case CaptureChannel(checkpoint_id, channel, recording):
                self._inflight.capture(checkpoint_id, channel, recording=recording)
            case SealChannelState(checkpoint_id, channel):
                self._inflight.seal(checkpoint_id, channel)
            case SealInputs(checkpoint_id):
                self._inflight.seal_inputs(checkpoint_id)
            case DiscardCheckpoint(checkpoint_id):
                self._inflight.discard(checkpoint_id)
                self._listener.on_discard(checkpoint_id)
            case ForwardCancel(checkpoint_id):
                self._broadcast(CancelMarker(checkpoint_id))
            case DeclineCheckpoint(checkpoint_id, cause, reason):
                self._listener.on_decline(checkpoint_id, cause, reason)

    def _decline_if_too_large(self) -> None:
        problem = self._inflight.problem()
        if problem is not None:
            self._on(SnapshotFailed(*problem))

    def _acknowledge(self) -> None:
        complete = self._inflight.take_complete()
        if complete is not None:
            checkpoint_id, mode = complete
            assert self._alignment is not None, "complete without a cut"
            self._listener.on_complete(
                checkpoint_id, self._alignment.model_copy(update={"mode": mode})
            )

    def _captured(self, captured: Captured) -> None:
        self._listener.on_captured(self.parts.vertex_id, captured)

    def _cut(self, barrier: CheckpointBarrier, mode: AlignmentMode) -> None:
        """Barrier out, then the synchronous phase; no record comes in between."""
        now_ms = self._clock.monotonic_ms()
        had_finished = self.finished  # What ends it only now still takes this cut.
        self._firing.finish()  # It is before the cut: the state is already ahead of it.
        self._chain.finish_bundles()
        fired_ms = self._clock.monotonic_ms() - now_ms
        waited_ms = self._waits.waited_ms(barrier.checkpoint_id, now_ms)
        if barrier.kind is CheckpointKind.STOP:
            self._pauses.add("stop")
        overtaken = self._inflight.cut(barrier, mode)
        self._alignment = self._alignment_entry(barrier, waited_ms, finished=had_finished)
        parts = tuple(
            self._snapshot(operator_id, part, barrier)
            for operator_id, part in self._snapshottable()
        )
        incremental = self._is_incremental(barrier)
        self._listener.on_cut(Cut(barrier.checkpoint_id, self.parts.vertex_id, parts, incremental))
        for captured in overtaken:
            self._captured(captured)
        pause_ms = fired_ms + sum(part.sync_ms for part in parts)
        self._decline_if_too_slow(barrier.checkpoint_id, pause_ms)

    def _decline_if_too_slow(self, checkpoint_id: CheckpointId, sync_ms: float) -> None:
        """Decline a checkpoint whose synchronous phase exceeded the configured limit."""
        limit_ms = self.parts.limits.sync_timeout_ms
        if limit_ms is not None and sync_ms > limit_ms:
            reason = f"the synchronous phase took {sync_ms:.0f} ms, allowed are {limit_ms:g} ms"
            self._on(SnapshotFailed(checkpoint_id, reason))

    def _snapshottable(self) -> list[tuple[str, Snapshottable]]:
        found: list[tuple[str, Snapshottable]] = list(self.parts.operators)
        if self.parts.source is not None and self.parts.source_id is not None:
            found.insert(0, (self.parts.source_id, self.parts.source))
        if self.parts.sink is not None and self.parts.sink_id is not None:
            found.append((self.parts.sink_id, self.parts.sink))
        return found

    def _snapshot(
        self, operator_id: str, part: Snapshottable, barrier: CheckpointBarrier
    ) -> PendingPart:
        self._computes(operator_id)
        started_ms = self._clock.monotonic_ms()
        if self._is_incremental(barrier) and isinstance(part, IncrementalSubtask):
            pending, merge = part.snapshot_changes(barrier.checkpoint_id), part.merge_tables
        else:
            pending, merge = part.snapshot(barrier.checkpoint_id), None
        renews = merge is not None and operator_id in self._renewals
        if renews:  # Changes count from here on all the same.
            self._renewals.discard(operator_id)
            pending = part.snapshot(barrier.checkpoint_id)
        sync_ms = self._clock.monotonic_ms() - started_ms
        return PendingPart(operator_id, pending, sync_ms, merge, renews)

    def _is_incremental(self, barrier: CheckpointBarrier) -> bool:
        return self.parts.incremental and barrier.kind not in _SELF_CONTAINED

    def renew(self, operator_ids: Iterable[str]) -> None:
        """Make these operators write their whole state at the next incremental cut."""
        self._renewals.update(operator_ids)

    def _alignment_entry(
        self, barrier: CheckpointBarrier, waited_ms: float, *, finished: bool
    ) -> AlignmentEntry:
        gate = self.parts.gate
        delay_ms = self._clock.now_ms() - barrier.created_ms - waited_ms
        return AlignmentEntry(
            vertex_id=self.parts.vertex_id,
            subtask_index=self.parts.subtask_index,
            mode="aligned",
            finished=finished,
            start_delay_ms=max(delay_ms, 0.0),
            alignment_ms=waited_ms,
            watermark_us=gate.combined_us,
            channels=tuple(
                ChannelEntry(input_id=c, watermark_us=w, idle=idle)
                for c, w, idle in gate.channels()
            ),
            slowest_channels=self._slowest_channels(barrier.checkpoint_id),
        )

    def _slowest_channels(self, checkpoint_id: CheckpointId) -> tuple[ChannelAlignment, ...]:
        if len(self.parts.inputs) == 1:
            return ()
        awaited = self._aligner.state.gate.awaited
        return self._waits.slowest_channels(checkpoint_id, awaited, self.parts.senders)
