"""The joins by themselves: one subtask in one process, without exchange and without Spark."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from benchmarks.result import Result, median
from laminar_core.operators.base import Emitted, MultiInputSpec, Side, SubtaskContext
from laminar_core.operators.joins.as_of import AsOfJoin
from laminar_core.operators.joins.interval import IntervalJoin
from laminar_core.operators.joins.side import JoinSide
from laminar_core.plan.state_options import MEMORY_BYTES_MIN
from laminar_core.protocol.types import CheckpointId, Generation, Watermark
from laminar_core.state.chunks import MemoryBackend, StateBackend
from laminar_core.state.rocks_chunks import RocksBackend

BATCH_ROWS = 131_072
BATCHES = 12
"""Number of batches of each side; the first third does not count, for there is little state yet."""
ROWS_PER_US = 1 / 8
"""Rows of each side in a microsecond of event time: a batch is a bit more than a second."""
WIDTH_US = 5_000_000
_LEFT, _RIGHT = (JoinSide(name, ("key",), "time") for name in ("left", "right"))
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """A join, and the keys that it gets. ``prototype``: million rows a second of the prototype.

    ``memory_bytes``: rows are in RocksDB, with so much memory; None: in memory.
    """

    name: str
    spec: MultiInputSpec
    keys: int
    prototype: float
    strings: bool = False
    memory_bytes: int | None = None

    def schema(self, value: str) -> pa.Schema:
        """Return the columns of a side."""
        key = pa.string() if self.strings else pa.int64()
        return pa.schema([("key", key), ("time", pa.timestamp("us")), (value, pa.int64())])


_INTERVAL = IntervalJoin("join", _LEFT, _RIGHT, 0, WIDTH_US)
_AS_OF = AsOfJoin("join", _LEFT, _RIGHT)
LOADS = (
    Load("interval_100k", _INTERVAL, 100_000, 2.4),
    Load("interval_100k_strings", _INTERVAL, 100_000, 1.6, strings=True),
    Load("interval_1m", _INTERVAL, 1_000_000, 3.4),
    Load("interval_100k_rocksdb", _INTERVAL, 100_000, 2.4, memory_bytes=MEMORY_BYTES_MIN),
    Load("as_of_100k", _AS_OF, 100_000, 3.1),
    Load("as_of_1m", _AS_OF, 1_000_000, 2.0),
)
"""With the speed of prototypes of these joins, which had no late rows, ties or null keys."""


def operators() -> list[Result]:
    """Rows through one interval join and one as-of join, both sides counted, in CPU time."""
    return [result for load in LOADS for result in measured(load)]


def measured(load: Load, rows: int = BATCH_ROWS, batches: int = BATCHES) -> Iterator[Result]:
    """Yield rows a second, results a row, rows held, and what a cut costs."""
    with _backend(load) as backend:
        yield from _measured(load, backend, rows, batches)


@contextmanager
def _backend(load: Load) -> Iterator[StateBackend]:
    if load.memory_bytes is None:
        yield MemoryBackend()
        return
    with tempfile.TemporaryDirectory() as folder:
        backend = RocksBackend(Path(folder) / "state", load.memory_bytes)
        yield backend
        backend.close()


def _measured(load: Load, backend: StateBackend, rows: int, batches: int) -> Iterator[Result]:
    sides = [load.schema("amount"), load.schema("price")]
    context = SubtaskContext("join", 0, 1, 128, Generation(1), backend)
    subtask = load.spec.open(context, *sides)
    seconds: list[float] = []
    results = 0
    for turn in range(batches):
        both = [_batch(load, side, turn, number, rows) for number, side in enumerate(sides)]
        started = process_time()
        for number, batch in enumerate(both):
            results += _rows(subtask.process_input(number, batch))
        results += _rows(subtask.on_watermark(_start_us(turn, rows)))
        seconds.append(process_time() - started)
    speed = 2 * rows / median(seconds[batches // 3 :])
    yield Result(f"join_{load.name}", speed, "rows/s", "higher")
    yield Result(f"join_{load.name}_to_prototype", speed / _MILLION / load.prototype, "x", "higher")
    yield Result(f"join_{load.name}_results", results / (2 * rows * batches), "a row", "higher")
    started = perf_counter()
    pending = subtask.snapshot(CheckpointId(1))
    yield Result(f"join_{load.name}_pause", 1e3 * (perf_counter() - started), "ms", "lower", 50)
    started = process_time()
    held = sum(table.rows.num_rows for table in pending().tables)
    yield Result(f"join_{load.name}_stored", held, "rows", "lower")
    yield Result(f"join_{load.name}_tables", 1e3 * (process_time() - started), "ms", "lower")


def _rows(emitted: Iterable[Emitted]) -> int:
    return sum(one.num_rows for one in emitted if not isinstance(one, Watermark | Side))


def _start_us(turn: int, rows: int) -> int:
    return int(turn * rows / ROWS_PER_US)


def _batch(load: Load, schema: pa.Schema, turn: int, number: int, rows: int) -> pa.RecordBatch:
    random = np.random.default_rng([turn, number])
    keys = pa.array(random.integers(0, load.keys, rows))
    if load.strings:
        keys = keys.cast(pa.string())
    until_us = _start_us(turn + 1, rows)
    times_us = np.sort(random.integers(_start_us(turn, rows), until_us, rows))
    values = random.integers(1, 100_000, rows)
    columns: Sequence[pa.Array] = [
        keys,
        pa.array(times_us).cast(pa.timestamp("us")),
        pa.array(values),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
