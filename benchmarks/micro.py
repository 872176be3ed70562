"""Parts by themselves, in one process."""

from dataclasses import replace
from itertools import count
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.result import Result, median, median_seconds
from laminar_core.codec.arrow import encode_table
from laminar_core.link.wire import ElementCodec
from laminar_core.operators import agg, windows
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.flat_map import FlatMapBatches, MapRows
from laminar_core.operators.sessions import PartialSessions, Sessions
from laminar_core.operators.stateless import MapBatches, StatelessSubtask
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
BUNDLED_BATCHES = 8
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
    """Rows through the combiner, in batches and in bundles of them, and through the keyed merge."""
    batch = _payments(BATCH_ROWS)
    partial = PartialAggregate("combine", ("merchant",), "ts", _WINDOW, _AGGREGATES)
    context = SubtaskContext("combine", 0, 1, 128, Generation(1))
    combine = partial.open(context, batch.schema)
    combined = next(b for b in combine.process(batch) if isinstance(b, pa.RecordBatch))
    merge = _merge(partial.output_schema(batch.schema))
    combine_seconds = median_seconds(lambda: list(combine.process(batch)), 20)
    merge_seconds = median_seconds(lambda: list(merge.process(combined)), 50)
    bundling = replace(partial, bundles=True).open(context, batch.schema)

    def bundle() -> None:
        for _ in range(BUNDLED_BATCHES):
            assert list(bundling.process(batch)) == []
        assert sum(part.num_rows for part in bundling.finish_bundle()) == combined.num_rows

    bundle()
    bundle_seconds = median_seconds(bundle, 10)
    return [
        Result("combine", BATCH_ROWS / combine_seconds, "rows/s", "higher"),
        Result(
            "combine_in_bundles", BUNDLED_BATCHES * BATCH_ROWS / bundle_seconds, "rows/s", "higher"
        ),
        Result("merge", combined.num_rows / merge_seconds, "rows/s", "higher"),
    ]


def sessions() -> list[Result]:
    """Rows through the combiner and the merge of sessions, 100,000 open, in CPU time.

    Event time advances with every batch, so sessions end all the time.
    """
    gap_us, keys, step_us = 60_000_000, 100_000, 4_000_000
    random = np.random.default_rng(7)
    schema = pa.schema([("user", pa.int64()), ("amount", pa.int64()), ("ts", pa.timestamp("us"))])
    partial = PartialSessions("combine", ("user",), "ts", gap_us, _AGGREGATES)
    context = SubtaskContext("sessions", 0, 1, 128, Generation(1))
    combine = partial.open(context, schema)
    spec = Sessions("sessions", ("user",), gap_us, _AGGREGATES)
    merge = spec.open(context, partial.output_schema(schema))
    seconds: list[float] = []
    open_count = 0
    for turn in range(60):
        times = turn * step_us + np.sort(random.integers(0, step_us, BATCH_ROWS))
        users = random.integers(0, keys, BATCH_ROWS) + turn // 4 * (keys // 50)  # Some leave.
        amounts = pa.array(random.integers(1, 100_000, BATCH_ROWS))
        columns = [pa.array(users), amounts, pa.array(times).cast(pa.timestamp("us"))]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        started = process_time()
        for combined in combine.process(batch):
            for _ in merge.process(combined):
                pass
        list(merge.on_watermark(turn * step_us))
        combine.on_watermark(turn * step_us)
        seconds.append(process_time() - started)
        open_count = merge.row_count
    pause = median_seconds(lambda: merge.snapshot(CheckpointId(1)), 20)
    return [
        Result("sessions", BATCH_ROWS / median(seconds[20:]), "rows/s", "higher"),
        Result("sessions_open", open_count, "rows", "lower"),
        Result("sessions_snapshot_pause", 1e3 * pause, "ms", "lower"),
    ]


def rows() -> list[Result]:
    """A function of each row, against the same function of whole batches, in CPU time."""
    batch = _payments(BATCH_ROWS)
    schema = batch.schema.set(0, pa.field("merchant", pa.string()))

    def fee_of_batch(payments: pa.RecordBatch) -> pa.RecordBatch:
        fee = pc.divide(payments.column("amount"), 100)
        merchant, ts = payments.column("merchant").cast(pa.string()), payments.column("ts")
        return pa.RecordBatch.from_arrays([merchant, fee, ts], schema=schema)

    def fee_of_row(payment: dict[str, Any]) -> dict[str, Any]:
        return {**payment, "amount": payment["amount"] // 100}

    specs = (
        MapBatches("map", fee_of_batch, schema),
        FlatMapBatches("flat-map", lambda payments: [fee_of_batch(payments)], schema),
        MapRows("map-rows", fee_of_row, schema),
    )
    context = SubtaskContext("rows", 0, 1, 128, Generation(1))
    subtasks = [spec.open(context, batch.schema) for spec in specs]
    of_map, of_flat_map, of_rows = (_cpu_seconds(subtask, batch) for subtask in subtasks)
    return [
        Result("map", BATCH_ROWS / of_map, "rows/s", "higher"),
        Result("flat_map_ratio", of_flat_map / of_map, "x map", "lower"),
        Result("map_rows", BATCH_ROWS / of_rows, "rows/s", "higher"),
        Result("map_rows_ratio", of_rows / of_map, "x map", "lower"),
    ]


def _cpu_seconds(subtask: StatelessSubtask, batch: pa.RecordBatch) -> float:
    """Return the median CPU time: a long call waits for cores more often than a short one."""

    def once() -> float:
        started = process_time()
        for _ in subtask.process(batch):
            pass
        return process_time() - started

    return median([once() for _ in range(9)])


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
