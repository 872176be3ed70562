"""Parts by themselves, in one process."""

from itertools import count

import numpy as np
import pyarrow as pa

from benchmarks.result import Result, median_seconds
from laminar_core.codec.arrow import encode_table
from laminar_core.link.wire import ElementCodec
from laminar_core.operators import agg, windows
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import SubtaskContext
from laminar_core.protocol.alignment import initial, step
from laminar_core.protocol.alignment_events import BarrierReached
from laminar_core.protocol.types import (
    Batch,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    Generation,
)

BATCH_ROWS = 131_072
MERCHANTS = 12_000
STATE_KEYS = 1_000_000
_AGGREGATES = (agg.count(), agg.sum("amount"), agg.min("amount"), agg.max("amount"))
_WINDOW = windows.tumbling("5 minutes")


def alignment() -> list[Result]:
    """One barrier through the alignment machine, four channels."""
    channels = [ChannelId(n) for n in range(4)]
    ids = count(1)
    state = initial(frozenset(channels))
    repeats = 1_000

    def checkpoints() -> None:
        nonlocal state
        for _ in range(repeats):
            barrier = CheckpointBarrier(CheckpointId(next(ids)))
            for channel in channels:
                state, _effects = step(state, BarrierReached(channel, barrier))

    seconds = median_seconds(checkpoints, 5)
    return [Result("alignment_step", 1e6 * seconds / repeats / len(channels), "us", "lower")]


def wire() -> list[Result]:
    """Batches to frames and back."""
    batch = _payments(BATCH_ROWS).select(["ts", "amount"])
    codec = ElementCodec(batch.schema)

    def round_trip() -> None:
        kind, payload = codec.encode(Batch(batch))
        codec.decode(kind, payload)

    seconds = median_seconds(round_trip, 50)
    return [Result("wire_round_trip", batch.nbytes / seconds / 1e9, "GB/s", "higher")]


def aggregation() -> list[Result]:
    """Rows through the combiner, and combined rows through the keyed merge."""
    batch = _payments(BATCH_ROWS)
    partial = PartialAggregate("combine", ("merchant",), "ts", _WINDOW, _AGGREGATES)
    context = SubtaskContext("combine", 0, 1, 128, Generation(1))
    combine = partial.open(context, batch.schema)
    combined = next(b for b in combine.process(batch) if isinstance(b, pa.RecordBatch))
    merge = _merge(partial.output_schema(batch.schema))
    combine_seconds = median_seconds(lambda: list(combine.process(batch)), 20)
    merge_seconds = median_seconds(lambda: list(merge.process(combined)), 50)
    return [
        Result("combine", BATCH_ROWS / combine_seconds, "rows/s", "higher"),
        Result("merge", combined.num_rows / merge_seconds, "rows/s", "higher"),
    ]


def snapshot() -> list[Result]:
    """The pause of a snapshot with a million keys, and the rest of it in the background."""
    batch = _payments(BATCH_ROWS)
    partial = PartialAggregate("combine", ("merchant",), "ts", _WINDOW, _AGGREGATES)
    schema = partial.output_schema(batch.schema)
    merge = _merge(schema)
    keys = pa.array([f"merchant-{n}" for n in range(STATE_KEYS)])
    columns = [
        keys if field.name == "merchant" else pa.repeat(0, STATE_KEYS).cast(field.type)
        for field in schema
    ]
    for part in pa.table(columns, schema=schema).to_batches(max_chunksize=65_536):
        list(merge.process(part))
    ids = count(1)
    pause = median_seconds(lambda: merge.snapshot(CheckpointId(next(ids))), 50)
    pending = merge.snapshot(CheckpointId(next(ids)))
    (table,) = pending().rows()
    finish = median_seconds(merge.snapshot(CheckpointId(next(ids))), 3)
    encode = median_seconds(lambda: encode_table(table), 3)
    return [
        Result("snapshot_pause_1m_keys", 1e3 * pause, "ms", "lower", 50),
        Result("snapshot_finish_1m_keys", 1e3 * finish, "ms", "lower"),
        Result("state_encode", table.nbytes / encode / 1e9, "GB/s", "higher"),
    ]


def _merge(schema: pa.Schema):  # noqa: ANN202 - the operator's running instance
    spec = WindowAggregate("merge", ("merchant",), _WINDOW, _AGGREGATES)
    return spec.open(SubtaskContext("merge", 0, 1, 128, Generation(1)), schema)


def _payments(rows: int) -> pa.RecordBatch:
    random = np.random.default_rng(7)
    codes = np.minimum(random.zipf(1.1, rows), MERCHANTS).astype(np.int32) - 1
    names = pa.array([f"merchant-{n:05d}" for n in range(MERCHANTS)])
    return pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(pa.array(codes), names),
            pa.array(random.integers(1, 100_000, rows)),
            pa.array(np.sort(random.integers(0, 600_000_000, rows))).cast(pa.timestamp("us")),
        ],
        names=["merchant", "amount", "ts"],
    )
