"""One file with the in-flight data of a worker, beside one for each of its queues.

It is the background half of one worker's part of a checkpoint: pieces are encoded, hashed and
written to a directory, or to a bucket that answers after a while. Both ways take turns in one run,
so that their ratio means something on a busy machine.
"""

import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from benchmarks.inflight import BATCH_EVENTS, captured
from benchmarks.result import Result
from laminar_core.codec.inflight import InflightElement
from laminar_core.host.clock import SystemClock
from laminar_core.objectstore.counting_store import CountedObjectStore
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import Batch, CheckpointId
from laminar_core.protocol.unaligned import InFlightChannelData, QueueId
from laminar_core.records.channel_entries import EdgeRef
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.worker import inflight_writing
from laminar_core.worker.inflight import Captured, Queue
from laminar_core.worker.inflight_writing import InflightComplete, InflightWriter
from laminar_core.worker.inflight_writing import Result as Report
from laminar_core.worker.snapshots import FILES_AT_ONCE

WORKERS = (2, 4, 8)
EVENTS = 1_000
"""In each queue: about 100 kB."""
ANSWER_MS = 20.0
"""The time that a bucket takes for one PUT."""
_ROUNDS = 11
_IDS = count(1)
_CLOCK = SystemClock()


class _FarStore(MemoryObjectStore):
    """A store that needs a while for each object."""

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """See ``ObjectStore.put_if_absent``."""
        _CLOCK.wait_ms(ANSWER_MS)
        return super().put_if_absent(key, data)


def inflight_files() -> list[Result]:
    """In-flight data of one of 2, 4 and 8 workers, in one file and in one per queue."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="laminar-inflight-") as folder:
        for workers in WORKERS:
            for place, inner in (
                ("directory", LocalObjectStore(Path(folder))),
                ("bucket", _FarStore()),
            ):
                inner.create()
                results += _measure(f"inflight_{workers}_workers_{place}", inner, workers)
    return results


def _measure(name: str, inner: LocalObjectStore | MemoryObjectStore, workers: int) -> list[Result]:
    objects = CountedObjectStore(inner)
    queues, elements = _queues(workers), captured(EVENTS, BATCH_EVENTS)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    puts: dict[bool, int] = {}
    for _ in range(_ROUNDS):
        for packed in (True, False):
            before = objects.counts.puts
            seconds[packed].append(_checkpoint(objects, queues, elements, packed=packed))
            puts[packed] = objects.counts.puts - before
    medians = {packed: statistics.median(times) for packed, times in seconds.items()}
    return [
        Result(f"{name}_puts", puts[True], "requests", "lower"),
        Result(f"{name}_puts_apart", puts[False], "requests", "lower"),
        Result(f"{name}", 1e3 * medians[True], "ms", "lower"),
        Result(f"{name}_apart", 1e3 * medians[False], "ms", "lower"),
        Result(f"{name}_to_apart", medians[True] / medians[False], "", "lower"),
    ]


def _checkpoint(
    objects: CountedObjectStore,
    queues: Sequence[Queue],
    elements: Sequence[InflightElement],
    *,
    packed: bool,
) -> float:
    """Write the data of all queues; return the seconds from the first piece to the last file."""
    aim, reports = inflight_writing.FILE_BYTES_AIM, list[Report]()
    checkpoint_id = CheckpointId(next(_IDS))
    store = CheckpointStore(objects, "benchmark")
    inflight_writing.FILE_BYTES_AIM = aim if packed else 1
    try:
        started = perf_counter()
        with ThreadPoolExecutor(FILES_AT_ONCE) as files:
            writer = InflightWriter(store.parts, 0, reports.append, (), files=files)
            for queue in queues:
                writer.capture("v", queue, _piece(checkpoint_id, queue, elements))
            writer.complete(checkpoint_id)
        elapsed = perf_counter() - started
    finally:
        inflight_writing.FILE_BYTES_AIM = aim
    expected = 1 if packed else len(queues)
    assert InflightComplete(checkpoint_id, expected) in reports
    assert len(reports) == expected + 1
    return elapsed


def _piece(
    checkpoint_id: CheckpointId, queue: Queue, elements: Sequence[InflightElement]
) -> Captured:
    return InFlightChannelData(checkpoint_id, queue.queue_id, tuple(elements), 0, last=True)


def _queues(workers: int) -> list[Queue]:
    """Return both ends of one exchange: rows from and to every worker."""
    edge = EdgeRef(upstream="up", downstream="v", input_index=0)
    schema = _schema(captured(EVENTS, BATCH_EVENTS))
    inputs = [Queue(QueueId("input", n), "first", 0, edge, n, 0, schema) for n in range(workers)]
    outputs = [Queue(QueueId("output", n), "last", 0, edge, 0, n, schema) for n in range(workers)]
    return inputs + outputs


def _schema(elements: Sequence[InflightElement]) -> pa.Schema:
    return next(element.data.schema for element in elements if isinstance(element, Batch))
