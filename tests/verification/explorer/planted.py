"""Faults of the source documents, planted at the seams of the real machines.

Each is one subclass that does what the document says in place of what is right; ERRATA has the ids.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from laminar_core.link.wire import ArrowElement
from laminar_core.protocol.alignment import BarrierAligner
from laminar_core.protocol.alignment_events import (
    AlignmentTimedOut,
    BarrierArrived,
    BarrierReached,
    CancelReceived,
    CaptureChannel,
    CheckpointAborted,
    Effect,
    Event,
    SealChannelState,
    SealInputs,
    TakeSnapshot,
)
from laminar_core.protocol.alignment_state import Aligning, Idle, Recording
from laminar_core.protocol.types import Batch, ChannelId, CheckpointId
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.worker.channels import InputChannel, OutputChannel
from laminar_core.worker.inflight import InflightRecorder
from verification.explorer import Classes
from verification.explorer.tasks import ExploredTask


class CapturesOnce(BarrierAligner):
    """0.1: what is queued at the cut, and nothing that arrives later."""

    def records(self, channel: ChannelId) -> bool:
        del channel
        return False


def aligned_channels(aligner: BarrierAligner, event: Event) -> frozenset[ChannelId]:
    """Channels whose barrier has been reached once the event is taken."""
    known = aligner.state.aligned if isinstance(aligner.state, Aligning) else frozenset()
    return known | {event.channel} if isinstance(event, BarrierReached) else known


class CapturesAlignedToo(BarrierAligner):
    """0.2: captures every channel, also those whose barrier has come."""

    def on(self, event: Event) -> tuple[Effect, ...]:
        aligned = aligned_channels(self, event)
        effects = super().on(event)
        cut = next((e for e in effects if isinstance(e, TakeSnapshot)), None)
        if cut is None or cut.mode == "aligned":
            return effects
        n = cut.barrier.checkpoint_id
        more = (CaptureChannel(n, c, recording=False) for c in sorted(aligned))
        at = effects.index(cut) + 1
        return (*effects[:at], *more, *effects[at:])


class ForgetsAligned(BarrierAligner):
    """0.3: the switch forgets which barriers have come."""

    def on(self, event: Event) -> tuple[Effect, ...]:
        if isinstance(event, AlignmentTimedOut) and isinstance(self.state, Aligning):
            self.state = replace(self.state, aligned=frozenset(), arrived=frozenset())
        return super().on(event)


class DropsHeld(ExploredTask):
    """0.4: what was held behind a barrier vanishes at the cut."""

    _held: tuple[ChannelId, ...] = ()

    def _on(self, event: Event) -> None:
        self._held = tuple(i.channel for i in self.parts.inputs if self._aligner.holds(i.channel))
        super()._on(event)
        self._held = ()

    def _cut(self, barrier, mode) -> None:
        super()._cut(barrier, mode)
        for channel in self._held:
            self.parts.inputs[channel]._queue = deque()


class PanicsWhenHeld(BarrierAligner):
    """0.5: there is no value for "held", so saying it panics."""

    def holds(self, channel: ChannelId) -> bool:
        if super().holds(channel):
            raise AssertionError("internal error: entered unreachable code")
        return False


class IgnoresOutputs(InflightRecorder):
    """0.7: the barrier overtakes output queues, and nobody captures what it passes."""

    def cut(self, barrier, mode):
        super().cut(barrier, mode)
        return []

    def time_out(self, checkpoint_id: CheckpointId) -> None:
        deliver, self._deliver = self._deliver, lambda _: None
        super().time_out(checkpoint_id)
        self._deliver = deliver


class RecordsUntilReached(BarrierAligner):
    """The trap of the table: records until the barrier is processed, not until it arrives."""

    def on(self, event: Event) -> tuple[Effect, ...]:
        if isinstance(self.state, Aligning):
            self.state = replace(self.state, arrived=frozenset())
        if isinstance(self.state, Recording):
            match event:
                case BarrierArrived():
                    return ()
                case BarrierReached(channel, barrier) if channel in self.state.pending:
                    return super().on(BarrierArrived(channel, barrier))
                case BarrierReached():
                    return ()
        return super().on(event)


class AcknowledgesBeforeTheLog(BarrierAligner):
    """2.2: the head acknowledges at its cut; the log is still being written."""

    def on(self, event: Event) -> tuple[Effect, ...]:
        logging = isinstance(self.state, Recording)
        effects = super().on(event)
        if logging:
            late = SealChannelState | SealInputs
            return tuple(e for e in effects if not isinstance(e, late))
        if isinstance(self.state, Recording):
            seal = SealInputs(self.state.barrier.checkpoint_id)
            return (*effects, *(SealChannelState(seal.checkpoint_id, c) for c in
                                self.state.pending), seal)  # fmt: skip
        return effects


class NeverStopsLogging(BarrierAligner):
    """2.3: an abort does not end the log."""

    def on(self, event: Event) -> tuple[Effect, ...]:
        if isinstance(self.state, Recording) and isinstance(
            event, CheckpointAborted | CancelReceived
        ):
            return ()
        return super().on(event)


class TakesAnyBarrierBack(BarrierAligner):
    """2.4: whatever barrier comes back ends the log."""

    def on(self, event: Event) -> tuple[Effect, ...]:
        if (
            isinstance(event, BarrierArrived)
            and isinstance(self.state, Recording)
            and event.channel in self.state.pending
        ):
            event = replace(event, barrier=self.state.barrier)
        return super().on(event)


class OmitsTheReplay(InputChannel):
    """2.5: what is still to be replayed is not part of the next checkpoint."""

    def ahead_of(self, checkpoint_id: CheckpointId):
        replayed = self._restored
        return super().ahead_of(checkpoint_id)[replayed:]


class ReplaysLast(InputChannel):
    """2.5: the restored log is flushed behind the first that comes new."""

    def arrive(self, element: ArrowElement) -> None:
        super().arrive(element)
        if self._restored and isinstance(element, Batch):
            self._queue.appendleft(self._queue.pop())


class GivesUpAlone(BarrierAligner):
    """3.16: a timeout drops the alignment, tells nobody and releases all channels; the barriers
    that come late then complete it."""

    _late: frozenset[ChannelId] = frozenset()

    def on(self, event: Event) -> tuple[Effect, ...]:
        match event:
            case AlignmentTimedOut():
                if isinstance(self.state, Aligning):
                    self._late = self.state.target - self.state.aligned
                    self.state = Idle(self.state.gate)
                return ()
            case BarrierReached(channel, barrier) if channel in self._late:
                self._late -= {channel}
                if self._late:
                    return ()
                return (TakeSnapshot(barrier, "aligned"), SealInputs(barrier.checkpoint_id))
        return super().on(event)


class CapturesBlocked(BarrierAligner):
    """3.18: captures the channels that are blocked, and no other."""

    def on(self, event: Event) -> tuple[Effect, ...]:
        aligned = aligned_channels(self, event)
        effects = super().on(event)
        cut = next((e for e in effects if isinstance(e, TakeSnapshot)), None)
        if cut is None or cut.mode == "aligned":
            return effects
        n = cut.barrier.checkpoint_id
        rest = tuple(e for e in effects if not isinstance(e, TakeSnapshot | CaptureChannel))
        blocked = (CaptureChannel(n, c, recording=False) for c in sorted(aligned))
        return (cut, *blocked, *rest)

    def records(self, channel: ChannelId) -> bool:
        del channel
        return False


class SkipsOldInputs(InputChannel):
    """3.19: restored records are of an older checkpoint, so they are skipped."""

    def restore(self, elements: Iterable[ArrowElement]) -> None:
        super().restore([e for e in elements if not isinstance(e, Batch)])


class SkipsOldOutputs(OutputChannel):
    """3.19: the same on the sending side."""

    def restore(self, elements: Iterable[ArrowElement]) -> None:
        super().restore([e for e in elements if not isinstance(e, Batch)])


class TimeOfOneInput(WatermarkGate):
    """Event time of the first input alone."""

    def _risen(self) -> int | None:
        every = self._watermarks
        self._watermarks = {c: w for c, w in every.items() if c == 0}
        risen = super()._risen()
        self._watermarks = every
        return risen


class OneInput(ExploredTask):
    """Every row is taken for one of the first input."""

    def _process(self, batch: pa.RecordBatch, input_index: int = 0) -> None:
        del input_index
        super()._process(batch)


@dataclass(frozen=True)
class Planted:
    """A fault, the world in which it must be found, and a word of what is found."""

    errata: str
    classes: Classes
    world: str
    found: str


PLANTED = [
    Planted("0.1", Classes(aligner=CapturesOnce), "fan-in-few", "channel state of"),
    Planted("0.2", Classes(aligner=CapturesAlignedToo), "fan-in-few", "channel state of"),
    Planted("0.3", Classes(aligner=ForgetsAligned), "fan-in-few", "waits for ever"),
    Planted("0.4", Classes(task=DropsHeld), "fan-in-few", ""),
    Planted("0.5", Classes(aligner=PanicsWhenHeld), "fan-in-few", "unreachable"),
    Planted("0.7", Classes(recorder=IgnoresOutputs), "fan-in-few", "channel state of"),
    Planted("0 trap", Classes(aligner=RecordsUntilReached), "fan-in-few", "channel state of"),
    Planted("2.2", Classes(aligner=AcknowledgesBeforeTheLog), "loop-replayed", "channel state of"),
    Planted("2.3", Classes(aligner=NeverStopsLogging), "loop-aborted", "waits for ever"),
    Planted("2.4", Classes(aligner=TakesAnyBarrierBack), "loop-aborted", "channel state of"),
    Planted("2.5 omitted", Classes(input_channel=OmitsTheReplay), "pair-replayed", ""),
    Planted("2.5 last", Classes(input_channel=ReplaysLast), "loop-aligned", ""),
    Planted("3.16", Classes(aligner=GivesUpAlone), "fan-in-few", "of which none was sent"),
    Planted("3.18", Classes(aligner=CapturesBlocked), "fan-in-few", "channel state of"),
    Planted("3.19 in", Classes(input_channel=SkipsOldInputs), "fan-in-few", "a loss"),
    Planted("3.19 out", Classes(output_channel=SkipsOldOutputs), "fan-in-few", ""),
    Planted("time of one input", Classes(gate=TimeOfOneInput), "two-inputs", "b0 is late"),
    Planted("one input", Classes(task=OneInput), "two-inputs", "as if it came on input 0"),
]
