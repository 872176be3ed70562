"""The cost of dividing batches among receivers, and of encoding and decoding the frames.

Batches have three columns of eight bytes and keys that spread evenly. *Scans* is how batches were
divided before: one look at all rows, and one copy, for each receiver. *Collected* is what a sender
does while rows wait for credit: it joins small batches before it divides them.
"""

from collections.abc import Callable, Iterable, Sequence
from time import thread_time
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.result import Result
from laminar_core.codec.key_groups import key_groups_of, partition
from laminar_core.host.clock import ManualClock
from laminar_core.link.wire import ElementCodec, FrameKind, Header, decode_header
from laminar_core.protocol.types import Batch
from laminar_core.worker.collecting import FRAME_ROWS, RowCollector

WORKERS = (2, 16, 64, 256, 1_000)
BATCH_ROWS = (131_072, 4_096)
ROUNDS = 5
_FRAMES_A_ROUND = 8_000
_ROWS_A_ROUND = 262_144
_KEYS = ("key",)
_TIME = pa.timestamp("us", tz="UTC")

Parts = Iterable[tuple[int, pa.RecordBatch]]
Divide = Callable[[pa.RecordBatch, int], Parts]


class _Way(NamedTuple):
    name: str
    divide: Divide
    collects: bool


def division() -> list[Result]:
    """Rows divided among 2 to 1,000 receivers, encoded and decoded, in CPU time of one thread."""
    ways = (
        _Way("scans", by_scans, collects=False),
        _Way("alone", by_sorting, collects=False),
        _Way("collected", by_sorting, collects=True),
    )
    return [
        result
        for batch_rows in BATCH_ROWS
        for workers in WORKERS
        for result in _measure(ways, batch_rows, workers)
    ]


def by_scans(batch: pa.RecordBatch, workers: int) -> Parts:
    """Divide as before: scan the rows once for each receiver, and take each part by itself."""
    groups = _groups(workers)
    owners = (np.arange(groups) * workers // groups).astype(np.uint16)
    subtasks = owners[key_groups_of(batch, _KEYS, groups)]
    for subtask in range(workers):
        rows = np.flatnonzero(subtasks == subtask)
        if len(rows):
            yield subtask, batch.take(pa.array(rows))


def by_sorting(batch: pa.RecordBatch, workers: int) -> Parts:
    """Divide as senders do."""
    return partition(batch, _KEYS, _groups(workers), workers)


def joined(batches: Sequence[pa.RecordBatch], workers: int) -> list[pa.RecordBatch]:
    """Return the batches as a sender divides them whose rows always wait."""
    collector, out = RowCollector(workers, ManualClock()), list[pa.RecordBatch]()
    for batch in batches:
        if not (collector.is_small(batch) and collector.has_room_for(batch)):
            out += collector.take()
        if not collector.is_small(batch):
            out.append(batch)
            continue
        collector.add(batch)
        if collector.is_due:
            out += collector.take()
    return [*out, *collector.take()]


def batch_of(rows: int) -> pa.RecordBatch:
    """Return a batch with random keys out of a million."""
    random = np.random.default_rng(7)
    return pa.record_batch(
        {
            "key": random.integers(0, 10**6, rows),
            "amount": random.integers(0, 10**5, rows),
            "ts": pa.array(np.arange(rows), _TIME),
        }
    )


def _measure(ways: Iterable[_Way], batch_rows: int, workers: int) -> list[Result]:
    """Measure the ways in turns, so that what else the machine does meets all of them."""
    one = batch_of(batch_rows)
    alone = [one] * max(min(_FRAMES_A_ROUND // workers, _ROWS_A_ROUND // batch_rows), 1)
    collected = [one] * max(len(alone), -(-workers * FRAME_ROWS // batch_rows))
    rates: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for way in ways:
            batches = collected if way.collects else alone
            rates.setdefault(way.name, []).append(_rate(way, batches, workers))
    return [
        Result.of_rounds(f"division_{batch_rows}_{workers}_{name}", of_way, "rows/s", "higher")
        for name, of_way in rates.items()
    ]


def _rate(way: _Way, batches: Sequence[pa.RecordBatch], workers: int) -> float:
    codec = ElementCodec(batches[0].schema)
    started = thread_time()
    for batch in joined(batches, workers) if way.collects else batches:
        for receiver, part in way.divide(batch, workers):
            kind, payload = codec.encode(Batch(part))
            header = Header(1, 0, 0, receiver, kind, 0).encode()
            decode_header(header)
            codec.decode(FrameKind.BATCH, payload)
    return sum(batch.num_rows for batch in batches) / (thread_time() - started)


def _groups(workers: int) -> int:
    return max(workers, 128)
