"""Skew: a join in which one key has half of the rows of both sides.

All rows of a key go to one worker, and every row of a hot key finds very many partners. What counts
is how long the worker does not look at its queues meanwhile, and how long a barrier waits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import perf_counter

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import dataset
from benchmarks.result import Result
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence
from laminar_core.driver.events import CheckpointCompleted, JobEvent
from laminar_core.driver.restart import FixedDelay
from laminar_core.host.clock import SystemClock
from laminar_core.link.wire import ArrowElement
from laminar_core.operators import agg, windows
from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.joins.interval import IntervalJoin
from laminar_core.operators.joins.side import JoinSide
from laminar_core.pipeline import (
    CheckpointConfig,
    Pipeline,
    RunConfig,
    Stream,
    UnalignedCheckpointConfig,
)
from laminar_core.protocol.types import (
    NO_CHECKPOINT,
    Batch,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    DeclineCause,
    Generation,
)
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.spark.session import open_session
from laminar_core.worker.channels import CREDITS_PER_CHANNEL, InputChannel, OutputChannel
from laminar_core.worker.cuts import Cut
from laminar_core.worker.inflight import Captured
from laminar_core.worker.outputs import EdgeOutput
from laminar_core.worker.task import Task, TaskParts

COLD_KEYS = 10_000
HELD_ROWS = 40_000
"""Rows of the left side that are kept, half of them of the hot key."""
BATCH_ROWS = 4_096
SECONDS = 8.0
TURN_MS, BARRIER_MS = 100.0, 1_000.0
"""Targets: for a turn of the worker's loop, and for an unaligned barrier; each at its 99th part."""

CHECKPOINTS = 20
WORKERS = 2
_HOT = 0
_LEFT, _RIGHT = (
    pa.schema([("key", pa.int64()), ("time", pa.timestamp("us")), (value, pa.int64())])
    for value in ("amount", "price")
)
_JOIN = IntervalJoin(
    "join", JoinSide("left", ("key",), "time"), JoinSide("right", ("key",), "time"), 0, 10_000_000
)


def hot_key() -> list[Result]:
    """One task with a hot key: turns of its worker, and unaligned barriers, with real time."""
    return list(_measured(SECONDS))


def _measured(seconds: float) -> Iterator[Result]:
    bench = Bench()
    bench.arrive(0, rows_of(_LEFT, HELD_ROWS))
    while bench.task.work():
        bench.send()
    turns_ms: list[float] = []
    barriers_ms: list[float] = []
    until = perf_counter() + seconds
    started = perf_counter()
    while perf_counter() < until:
        if not len(bench.channels[1]):
            bench.arrive(1, rows_of(_RIGHT, BATCH_ROWS))
        has_rows, began = bench.has_rows, perf_counter()
        bench.task.work()
        bench.send()
        if not has_rows:
            continue
        turns_ms.append(1e3 * (perf_counter() - began))
        if len(turns_ms) % 5 == 0:  # It came when the turn had begun.
            bench.cut()
            barriers_ms.append(1e3 * (perf_counter() - began))
    yield Result("hot_key_pairs", bench.pairs / (perf_counter() - started), "rows/s", "higher")
    for name, times_ms, target_ms in (
        ("turn", turns_ms, TURN_MS),
        ("unaligned_barrier", barriers_ms, BARRIER_MS),
    ):
        for part in (50, 99):
            value = float(np.percentile(times_ms, part))
            target = target_ms if part == 99 else None  # noqa: PLR2004 - the 99th part of 100
            yield Result(f"hot_key_{name}_p{part}", value, "ms", "lower", target)
        yield Result(f"hot_key_{name}_longest", max(times_ms), "ms", "lower")


def rows_of(schema: pa.Schema, rows: int) -> ArrowElement:
    """Return rows; every other one has the hot key."""
    keys = np.random.default_rng(7).integers(1, COLD_KEYS, rows)
    keys[::2] = _HOT
    times = pa.array(np.zeros(rows, np.int64)).cast(pa.timestamp("us"))
    columns = [pa.array(keys), times, pa.array(np.arange(rows))]
    return Batch(pa.RecordBatch.from_arrays(columns, schema=schema))


@dataclass
class Bench:
    """One task with a join, whose output is read as soon as it is there."""

    pairs: int = 0
    cuts: int = 0
    task: Task = field(init=False)

    def __post_init__(self) -> None:
        self.channels = [InputChannel(ChannelId(n), lambda _: None) for n in range(2)]
        self.output = OutputChannel(self._sent)
        join = _JOIN.open(SubtaskContext("join", 0, 1, 128, Generation(1)), _LEFT, _RIGHT)
        parts = TaskParts(
            vertex_id="join",
            subtask_index=0,
            source=None,
            inputs=self.channels,
            operators=[("join", join)],
            source_id=None,
            sink=None,
            sink_id=None,
            outputs=[EdgeOutput(lambda rows: ((0, rows),), {0: self.output}, may_overtake=True)],
            gate=WatermarkGate(channel.channel for channel in self.channels),
            newest_id=NO_CHECKPOINT,
            input_of={ChannelId(0): 0, ChannelId(1): 1},
        )
        self.task = Task(parts, self, SystemClock())

    def arrive(self, channel: int, element: ArrowElement) -> None:
        """Let an element arrive."""
        self.task.arrived(ChannelId(channel), element)

    def send(self) -> None:
        """Send what is ready."""
        self.output.credits = CREDITS_PER_CHANNEL
        self.task.flush()

    @property
    def has_rows(self) -> bool:
        """Whether the next turn is about rows, and not about barriers only."""
        firsts = (channel.first for channel in self.channels if len(channel))
        return self.task.midway or any(isinstance(first, Batch) for first in firsts)

    def cut(self) -> None:
        """Let a barrier overtake on both inputs."""
        self.cuts += 1
        barrier = CheckpointBarrier(CheckpointId(self.cuts), alignment_timeout_ms=0, unaligned=True)
        for channel in range(2):
            self.arrive(channel, barrier)
        self.task.abort(barrier.checkpoint_id)

    def _sent(self, element: ArrowElement) -> None:
        if isinstance(element, Batch):
            self.pairs += element.data.num_rows

    def on_operator(self, operator_id: str) -> None:
        """Do nothing."""

    def on_cut(self, cut: Cut) -> None:
        """Take the snapshot, and write nothing."""

    def on_captured(self, vertex_id: str, captured: Captured) -> None:
        """Write nothing."""

    def on_complete(self, checkpoint_id: CheckpointId, alignment: AlignmentEntry) -> None:
        """All inputs are sealed."""

    def on_discard(self, checkpoint_id: CheckpointId) -> None:
        """It was enough that it was taken."""

    def on_decline(self, checkpoint_id: CheckpointId, cause: DeclineCause, reason: str) -> None:
        """Nothing is declined here."""
        raise AssertionError(checkpoint_id, cause, reason)


# --- in Spark -------------------------------------------------------------------------------------


def skew() -> list[Result]:
    """Checkpoints of a job in Spark that joins with a hot key: aligned and unaligned."""
    spark = open_session(f"local[{WORKERS}]", "benchmark")
    try:
        return [result for mode in ("unaligned", "aligned") for result in _checkpoints(spark, mode)]
    finally:
        spark.stop()


def _checkpoints(spark: SparkSession, mode: str) -> Iterator[Result]:
    events: SimpleQueue[JobEvent] = SimpleQueue()
    unaligned = UnalignedCheckpointConfig(
        enabled=mode == "unaligned", force_unaligned=mode == "unaligned"
    )
    job = skewed_pipeline().start(
        spark,
        checkpoint=CheckpointConfig(
            str(dataset.fresh("store")), interval="500 milliseconds", unaligned=unaligned
        ),
        run=RunConfig(workers=WORKERS, restart=FixedDelay(attempts=1000)),
        listener=events.put,
    )
    completed = (e for e in iter(events.get, None) if isinstance(e, CheckpointCompleted))
    try:
        next(completed)  # With half-empty queues.
        durations_ms = [next(completed).duration_ms for _ in range(CHECKPOINTS)]
    finally:
        job.cancel()
    for part in (50, 99):
        value = float(np.percentile(durations_ms, part))
        yield Result(f"skew_checkpoint_{mode}_p{part}", value, "ms", "lower")


def skewed_pipeline() -> Pipeline:
    """Pair endless rows of two sources within a second, one key in two being the hot one."""
    p = Pipeline("skew")
    left, right = (_side(p, name) for name in ("left", "right"))
    return (
        left.join(right, on="key", within=("0 seconds", "1 second"), name="pairs")
        .key_by("key")
        .window(windows.tumbling("1 hour"), time="left_time")
        .aggregate("totals", agg.count())
        .sink("out", CollectSink())
    )


def _side(p: Pipeline, name: str) -> Stream:
    """Return rows a millisecond apart, so that a hot row has about 500 partners."""

    def with_key(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = batch.column("id").to_numpy()
        keys = np.where(numbers % 2 == 0, _HOT, 1 + numbers % COLD_KEYS)
        return batch.append_column("key", pa.array(keys))

    fields = {"id": Sequence(), f"{name}_time": EventTime(1_700_000_000_000_000, step_us=1_000)}
    schema = pa.schema(
        [("id", pa.int64()), (f"{name}_time", pa.timestamp("us", "UTC")), ("key", pa.int64())]
    )
    rows = p.source(name, DatagenSource(fields, batch_rows=BATCH_ROWS))
    return rows.map(with_key, schema=schema, name=f"{name}-key").watermark(f"{name}_time")
