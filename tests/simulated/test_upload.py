"""An incremental checkpoint uploads the changes only, however large the state is."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators import agg, windows
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.running import CombineRows, RunningAggregate
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.segment import total_bytes, total_rows
from laminar_core.worker.segments import SegmentWriter
from tests.store.stores import open_job

KEYS, CHANGED, CUTS = 100_000, 2_000, 6
AGGREGATES = (agg.count(), agg.sum("v"), agg.max("v"))
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])


def batch(start: int, count: int) -> pa.RecordBatch:
    numbers = pa.array(np.arange(start, start + count))
    times = pa.array(np.zeros(count, np.int64)).cast(SCHEMA.field("ts").type)
    return pa.record_batch([numbers.cast(pa.string()), times, numbers], schema=SCHEMA)


def operators(kind: str):
    context = SubtaskContext("totals", 0, 1, 128, Generation(1))
    day = windows.tumbling("1 day")
    if kind == "windows":
        combine = PartialAggregate("combine", ("k",), "ts", day, AGGREGATES)
        keep = WindowAggregate("totals", ("k",), day, AGGREGATES)
    else:
        combine = CombineRows("combine", ("k",), AGGREGATES)
        keep = RunningAggregate("totals", ("k",), AGGREGATES)
    combined = combine.output_schema(SCHEMA)
    return combine.open(context, SCHEMA), keep.open(context, combined)


@pytest.mark.parametrize("kind", ["windows", "running"])
def test_a_checkpoint_uploads_at_most_half_more_than_the_rows_that_changed(kind: str) -> None:
    combining, keeping = operators(kind)
    store = open_job(MemoryObjectStore())
    options = StateOptions(segments_max=CUTS + 2)  # Merging is counted by the benchmark.

    def cut(start: int, count: int) -> int:
        for combined in combining.process(batch(start, count)):
            list(keeping.process(combined))
        snapshot = keeping.snapshot_changes(CheckpointId(1))()
        writer.add_changes("totals", snapshot)
        chain.append(writer.write_changes("totals", {}, keeping.merge_tables))
        return writer.take_written_bytes("totals")

    with ThreadPoolExecutor(1) as merging:
        writer, chain = SegmentWriter(store, Generation(1), 0, options, merging, ()), []
        state_bytes = cut(0, KEYS)
        row_bytes = total_bytes(chain[0]) / total_rows(chain[0])
        uploads = [cut(start * CHANGED, CHANGED) for start in range(CUTS)]
    assert max(uploads) <= 1.5 * CHANGED * row_bytes
    assert max(uploads) < state_bytes / 20
