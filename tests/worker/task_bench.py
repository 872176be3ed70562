"""One task on a bench: elements in, and a record of what it sends and hands over."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from laminar_core.connectors.discovery import first_splits
from laminar_core.host.clock import ManualClock
from laminar_core.operators.base import Snapshot
from laminar_core.protocol.types import (
    WATERMARK_END_US,
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
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.testing.memory_source import MemorySource
from laminar_core.worker.channels import (
    CREDITS_PER_CHANNEL,
    InputChannel,
    OutputChannel,
)
from laminar_core.worker.cuts import Cut
from laminar_core.worker.inflight import Captured
from laminar_core.worker.outputs import EdgeOutput
from laminar_core.worker.pacing import PacedSource
from laminar_core.worker.task import Task, TaskParts


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


class Sum:
    """Passes rows on; its state is their sum, and it emits it at the end of time."""

    def __init__(self) -> None:
        self.total = 0
        self.watermarks: list[int] = []

    def process(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        self.total += sum(rows.column("n").to_pylist())
        return (rows,)

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        self.watermarks.append(watermark_us)
        return (batch(self.total),) if watermark_us == WATERMARK_END_US else ()

    def snapshot(self, checkpoint_id: CheckpointId):
        del checkpoint_id
        total = self.total
        return lambda: Snapshot(properties={"total": total})

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        raise NotImplementedError


class Bench:
    """A task with ``inputs`` channels, or a source; its outputs are one channel that is read."""

    def __init__(
        self,
        inputs: int = 0,
        tables: Sequence[pa.Table] = (),
        parts: Mapping[str, Any] | None = None,
        **source,
    ) -> None:
        self.clock = ManualClock()
        self.sent: list = []
        self.at_work: list[str] = []
        self.cuts: list[Cut] = []
        self.captured: list[Captured] = []
        self.completed: list[tuple[int, AlignmentEntry]] = []
        self.discarded: list[int] = []
        self.declined: list[tuple[int, DeclineCause, str]] = []
        self.granted = [0] * inputs
        self.channels = [
            InputChannel(ChannelId(n), lambda batches, n=n: self._grant(n, batches))
            for n in range(inputs)
        ]
        self.output = OutputChannel(self.sent.append)
        self.sum = Sum()
        idle_ms = source.pop("idle_ms", None)
        memory = MemorySource(tables, **source) if tables else None
        reader = memory.open(first_splits(memory)) if memory else None
        made = TaskParts(
            vertex_id="v",
            subtask_index=0,
            source=PacedSource(reader, self.clock, None, idle_ms) if reader else None,
            inputs=self.channels,
            operators=[("sum", self.sum)],
            source_id="in" if reader else None,
            sink=None,
            sink_id=None,
            outputs=[EdgeOutput(lambda rows: ((0, rows),), {0: self.output}, may_overtake=True)],
            gate=WatermarkGate(c.channel for c in self.channels),
            newest_id=CheckpointId(0),
        )
        self.task = Task(replace(made, **(parts or {})), self, self.clock)

    def _grant(self, channel: int, batches: int) -> None:
        self.granted[channel] += batches

    def on_operator(self, operator_id: str) -> None:
        self.at_work.append(operator_id)

    def on_cut(self, cut: Cut) -> None:
        self.cuts.append(cut)

    def on_captured(self, vertex_id: str, captured: Captured) -> None:
        assert vertex_id == "v"
        self.captured.append(captured)

    def on_complete(self, checkpoint_id: CheckpointId, alignment: AlignmentEntry) -> None:
        self.completed.append((checkpoint_id, alignment))

    def on_discard(self, checkpoint_id: CheckpointId) -> None:
        self.discarded.append(checkpoint_id)

    def on_decline(self, checkpoint_id: CheckpointId, cause: DeclineCause, reason: str) -> None:
        self.declined.append((checkpoint_id, cause, reason))

    def arrive(self, channel: int, *elements) -> None:
        for element in elements:
            self.task.arrived(ChannelId(channel), element)

    def work(self) -> None:
        """Until there is nothing left that may be done; the output is always read."""
        self.flush()
        while self.task.work():
            self.flush()
        self.flush()

    def flush(self) -> None:
        self.output.credits = CREDITS_PER_CHANNEL
        self.task.flush()

    def totals(self) -> list[tuple[int, int]]:
        """(checkpoint, sum at the cut)."""
        return [
            (cut.checkpoint_id, part.pending().properties["total"])
            for cut in self.cuts
            for part in cut.parts
            if part.operator_id == "sum"
        ]

    def trace(self) -> str:
        """Return the sent elements: rows by their sum, ``w`` a watermark, ``B1`` a barrier.

        ``U1`` is an unaligned barrier, ``X1`` a cancel marker.
        """
        return " ".join(map(word, self.sent))

    def inflight(self) -> dict[str, str]:
        """Return the captured rows, by queue; ``!`` marks a queue to which nothing follows."""
        found: dict[str, list[str]] = {}
        for piece in self.captured:
            name = f"{piece.queue.direction} {piece.queue.number}"
            found.setdefault(name, []).extend([*map(word, piece.events), *("!" * piece.last)])
        return {name: " ".join(words) for name, words in found.items()}


def word(element) -> str:
    match element:
        case Batch(rows):
            return str(sum(rows.column("n").to_pylist()))
        case Watermark(time_us):
            return "wEND" if time_us == WATERMARK_END_US else f"w{time_us}"
        case CheckpointBarrier():
            return f"{'U' if element.unaligned else 'B'}{element.checkpoint_id}"
        case CancelMarker(checkpoint_id):
            return f"X{checkpoint_id}"
        case Idle():
            return "idle"
        case EndOfInput():
            return "END"


def barrier(
    checkpoint_id: int, kind: CheckpointKind = CheckpointKind.PERIODIC
) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint_id), kind)


def unaligned(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint_id), alignment_timeout_ms=0, unaligned=True)


def timed(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint_id), alignment_timeout_ms=1000)


def rows(*values: int) -> Batch:
    return Batch(batch(*values))
