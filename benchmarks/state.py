"""Large state: cost of a cut, uploads, and differences of the backends.

One subtask of a window aggregation, its segments on a local disk, and the threads of a worker: rows
keep coming while snapshots are written and chains merged. It runs in a process of its own, so that
its memory can be measured. Larger than by default:

    python -m benchmarks.state --keys 16000000 --backend rocksdb --memory 268435456

``--store`` puts the segments elsewhere, such as ``s3://bucket/new-prefix``, and leaves them there.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from benchmarks.printed import print_record, read_record
from benchmarks.result import Result
from laminar_core.operators import agg, windows
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate, WindowAggregator
from laminar_core.operators.base import PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.plan.state_options import STATE_MEMORY_BYTES, StateOptions
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation
from laminar_core.records.segment import SegmentRef, total_bytes, total_rows
from laminar_core.state.chunks import MemoryBackend, StateBackend
from laminar_core.state.rocks_chunks import RocksBackend
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.worker.read_ahead import read_ahead
from laminar_core.worker.segments import SegmentWriter
from laminar_core.worker.snapshots import FILES_AT_ONCE

KEYS = 1_000_000
CUTS = 20
CHANGED_SHARE = 0.02
BATCH_ROWS = 65_536
PAUSE_TARGET_MS = 50.0
UPLOAD_TARGET = 1.5
RESTORE_TARGET_S_PER_GB = 4.0
_STRIDE = 7_368_787
"""A prime: steps of it visit every key once, in no order."""
_OPERATOR = "totals"
_PEAK_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # Of ``ru_maxrss``.
_WINDOW = windows.tumbling("10 days")
_AGGREGATES = (agg.count(), agg.sum("v", name="total"), agg.min("v"), agg.max("v"))
_INPUT = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.int64())])


@dataclass(frozen=True, slots=True)
class Size:
    """The parameters of a measurement."""

    backend: Literal["memory", "rocksdb"] = "memory"
    keys: int = KEYS
    cuts: int = CUTS
    changed_share: float = CHANGED_SHARE
    memory_bytes: int = STATE_MEMORY_BYTES
    compression: Literal["lz4", "zstd"] | None = None
    folder: str | None = None
    store: str | None = None
    """None: in the folder."""


@dataclass(slots=True)
class _Measured:
    """Seconds and bytes, as they are found."""

    cut_s: list[float] = field(default_factory=list[float])
    process_s: list[float] = field(default_factory=list[float])
    uploaded_bytes: int = 0
    merged_bytes: int = 0

    def start_anew(self) -> None:
        """Drop earlier measurements."""
        self.cut_s.clear()
        self.process_s.clear()
        self.uploaded_bytes = self.merged_bytes = 0


class _Subtask:
    """One subtask with what a worker has around it."""

    def __init__(self, size: Size, folder: Path) -> None:
        self.size, self.folder = size, folder
        self.measured = _Measured()
        self.store = CheckpointStore.open(size.store or str(folder / "store"), "bench")
        self.store.objects.create()
        self.snapshots = ThreadPoolExecutor(1)
        self.compactions = ThreadPoolExecutor(1, "compaction")
        options = StateOptions(compression=size.compression)
        self.writer = SegmentWriter(
            self.store, Generation(1), 0, options, self.compactions, {_OPERATOR}
        )
        self._count_uploads()
        self.backend = self._backend("first")
        self.operator = self._open(self.backend)
        self.counts = np.zeros(size.keys, np.int16)

    def _count_uploads(self) -> None:
        write, measured = self.store.parts.write_shared, self.measured

        def write_shared(*args: Any, **options: Any) -> SegmentRef:  # noqa: ANN401 - passed on
            segment = write(*args, **options)
            if threading.current_thread().name.startswith("compaction"):
                measured.merged_bytes += segment.size_bytes
            else:
                measured.uploaded_bytes += segment.size_bytes
            return segment

        self.store.parts.write_shared = write_shared

    def _backend(self, name: str) -> StateBackend:
        if self.size.backend == "memory":
            return MemoryBackend()
        return RocksBackend(self.folder / name, self.size.memory_bytes)

    def _open(self, backend: StateBackend) -> WindowAggregator:
        spec = WindowAggregate(_OPERATOR, ("k",), _WINDOW, _AGGREGATES)
        schema = PartialAggregate("p", ("k",), "ts", _WINDOW, _AGGREGATES).output_schema(_INPUT)
        context = SubtaskContext(_OPERATOR, 0, 1, 128, Generation(1), backend)
        return spec.open(context, schema)

    def take(self, start: int, count: int) -> None:
        """Process one partial result of so many different keys, a batch at a time."""
        for first in range(start, start + count, BATCH_ROWS):
            places = np.arange(first, min(first + BATCH_ROWS, start + count))
            numbers = places * _STRIDE % self.size.keys
            batch = _partial(numbers)
            started = perf_counter()
            list(self.operator.process(batch))
            self.measured.process_s.append(perf_counter() - started)
            self.counts[numbers] += 1

    def cut(self) -> "Future[tuple[SegmentRef, ...]]":
        """Take a snapshot of changes; the rest of it runs beside what comes."""
        started = perf_counter()
        pending = self.operator.snapshot_changes(CheckpointId(1))
        self.measured.cut_s.append(perf_counter() - started)
        return self.snapshots.submit(self._write, pending)

    def _write(self, pending: PendingSnapshot) -> tuple[SegmentRef, ...]:
        snapshot = pending()
        self.properties = snapshot.properties
        self.writer.add_changes(_OPERATOR, snapshot)
        return self.writer.write_changes(_OPERATOR, {}, self.operator.merge_tables)

    def restored(self, chain: tuple[SegmentRef, ...]) -> float:
        """Restore the chain in place of what there is; return the seconds."""
        self.operator = self._open(MemoryBackend())
        self.backend.close()
        self.backend = self._backend("second")
        operator = self._open(self.backend)
        with ThreadPoolExecutor(FILES_AT_ONCE) as reads:
            started = perf_counter()
            tables = (table for _, table in read_ahead(chain, self.store.parts.read_state, reads))
            operator.restore([Snapshot.of(tables, self.properties)])
            restore_s = perf_counter() - started
        self.operator = operator
        return restore_s

    def check(self) -> None:
        """Fire everything: every key is there once, with all that came of it."""
        seen = np.zeros(self.size.keys, np.int16)
        for batch in self.operator.on_watermark(WATERMARK_END_US):
            numbers = batch.column("k").cast(pa.int64()).to_numpy()
            assert not seen[numbers].any(), "a key came twice"
            seen[numbers] = batch.column("count").to_numpy()
            counts = batch.column("count").to_numpy()
            assert (batch.column("total").to_numpy() == counts * (numbers % 1000)).all()
        assert (seen == self.counts).all(), "the result is wrong"

    def close(self) -> None:
        self.snapshots.shutdown()
        self.compactions.shutdown()
        self.backend.close()


def _partial(numbers: np.ndarray) -> pa.RecordBatch:
    values = pa.array(numbers % 1000)
    keys = pa.array(numbers).cast(pa.string())
    starts = pa.array(np.zeros(len(numbers), np.int64)).cast(pa.timestamp("us", tz="UTC"))
    ones = pa.array(np.ones(len(numbers), np.int64))
    names = ["k", "window_start", "count(*)", "sum(v)", "min(v)", "max(v)"]
    return pa.record_batch([keys, starts, ones, values, values, values], names)


def measure(size: Size) -> list[Result]:
    """Fill the state, change a part of it before each cut, restore it, and check the result."""
    folder = Path(tempfile.mkdtemp(prefix="laminar-bench-", dir=size.folder))
    subtask = _Subtask(size, folder)
    try:
        return list(_measure(subtask, size))
    finally:
        subtask.close()
        shutil.rmtree(folder)


def _measure(subtask: _Subtask, size: Size) -> Iterator[Result]:
    name = f"state_{size.backend}"
    random = np.random.default_rng(7)
    state_bytes, row_bytes = yield from _fill(subtask, size, name)
    written: Future[tuple[SegmentRef, ...]] | None = None
    for _ in range(size.cuts):
        subtask.take(int(random.integers(size.keys)), int(size.keys * size.changed_share))
        if written is not None:
            written.result()
        written = subtask.cut()
    assert written is not None, "there is at least one cut"
    written.result()
    subtask.compactions.submit(lambda: None).result()
    chain = subtask.cut().result()
    changed_rows = size.cuts * int(size.keys * size.changed_share)
    yield from _found(subtask.measured, name, changed_rows, row_bytes)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT_BYTES
    restore_s = subtask.restored(chain)
    yield Result(
        f"{name}_restore",
        restore_s / (total_bytes(chain) / 1e9),
        "s/GB",
        "lower",
        RESTORE_TARGET_S_PER_GB,
    )
    yield Result(f"{name}_restore_time", restore_s, "s", "lower")
    subtask.check()
    yield Result(f"{name}_peak_memory", peak_bytes / 1e9, "GB", "lower")
    yield Result(f"{name}_to_peak_memory", state_bytes / peak_bytes, "x", "higher")


def _fill(subtask: _Subtask, size: Size, name: str) -> Generator[Result, None, tuple[int, float]]:
    """Every key once; returns the bytes of all of it in the store, and of a row."""
    started = perf_counter()
    subtask.take(0, size.keys)
    filled_s = perf_counter() - started
    started = perf_counter()
    chain = subtask.cut().result()
    yield Result(f"{name}_first_checkpoint", perf_counter() - started, "s", "lower")
    yield Result(f"{name}_size", total_bytes(chain) / 1e9, "GB", "higher")
    yield Result(f"{name}_fill", size.keys / filled_s, "rows/s", "higher")
    longest_ms = 1e3 * max(subtask.measured.process_s)
    yield Result(f"{name}_fill_longest_batch", longest_ms, "ms", "lower")
    subtask.measured.start_anew()
    return total_bytes(chain), total_bytes(chain) / total_rows(chain)


def _found(measured: _Measured, name: str, changed_rows: int, row_bytes: float) -> Iterator[Result]:
    """``changed``: a row of state for every key that changed between two cuts."""
    changed_bytes = changed_rows * row_bytes
    uploaded = measured.uploaded_bytes / changed_bytes
    with_merging = (measured.uploaded_bytes + measured.merged_bytes) / changed_bytes
    pauses_ms = 1e3 * np.array(measured.cut_s)
    update = changed_rows / sum(measured.process_s)
    yield Result(f"{name}_update", update, "rows/s", "higher")
    yield Result(f"{name}_longest_batch", 1e3 * max(measured.process_s), "ms", "lower")
    yield Result(f"{name}_pause_median", float(np.median(pauses_ms)), "ms", "lower")
    yield Result(f"{name}_pause_max", float(pauses_ms.max()), "ms", "lower", PAUSE_TARGET_MS)
    yield Result(f"{name}_uploaded_to_changed", uploaded, "x", "lower", UPLOAD_TARGET)
    yield Result(f"{name}_with_merging", with_merging, "x", "lower")


def in_another_process(size: Size) -> list[Result]:
    """Measure in a process of its own."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in _words(size).items()]
    command = [sys.executable, "-m", "benchmarks.state", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
    return [
        Result(figure.name, figure.median, figure.unit, figure.better, figure.target)
        for figure in read_record(done.stdout).figures
    ]


def _words(size: Size) -> dict[str, object]:
    named = {"backend": size.backend, "keys": size.keys, "cuts": size.cuts}
    return {**named, "changed": size.changed_share, "memory": size.memory_bytes}


def state() -> list[Result]:
    """A million keys in memory and in RocksDB: pauses, uploads, restore, throughput."""
    memory = in_another_process(Size("memory"))
    rocks = in_another_process(Size("rocksdb", memory_bytes=64 * 1024 * 1024))
    by_name = {result.name: result.value for result in (*memory, *rocks)}
    ratios = [
        Result(
            f"state_{what}_rocksdb_to_memory", by_name[f"state_rocksdb_{what}"] / of, "x", "higher"
        )
        for what in ("fill", "update")
        if (of := by_name[f"state_memory_{what}"])
    ]
    return [*memory, *rocks, *ratios]


def main() -> None:
    """Print the results as ``laminar bench --json`` does, in one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["memory", "rocksdb"], default="memory")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--cuts", type=int, default=CUTS)
    parser.add_argument("--changed", type=float, default=CHANGED_SHARE)
    parser.add_argument("--memory", type=int, default=STATE_MEMORY_BYTES)
    parser.add_argument("--compression", choices=["lz4", "zstd"])
    parser.add_argument("--folder")
    parser.add_argument("--store", help="an empty place for segments, which stay there")
    given = parser.parse_args()
    size = Size(
        given.backend,
        given.keys,
        given.cuts,
        given.changed,
        given.memory,
        given.compression,
        given.folder,
        given.store,
    )
    print_record("state", lambda: measure(size))


if __name__ == "__main__":
    main()
