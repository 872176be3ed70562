"""How manifests, and what workers are sent of them at a start, grow with the number of workers.

Manifests of a pipeline with one exchange are built in memory, from real records. ``aligned``: each
sender has an event time of its own, and all receivers have seen it. ``unaligned``: every channel
has elements in flight, and each receiver is at another place. Manifests with an entry for each
channel (format 6), their compression, and what a start would cost if each worker got the whole
manifest, are measured beside what is done today.
"""

import hashlib
import statistics
import zlib
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, TypeVar

from pydantic_core import from_json
from pyspark.serializers import CloudPickleSerializer

from benchmarks.result import Result
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.link.transport import CoordinatorAddress
from laminar_core.operators.stateless import SelectColumns
from laminar_core.plan.plan import Edge, Keyed, Plan, SourceNode, Vertex
from laminar_core.protocol.edges import PartitioningKind
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation, ResolvedMode
from laminar_core.records.channel_entries import (
    AlignmentEntry,
    ChannelEntry,
    EdgeEntry,
    EdgeRef,
    InflightEntry,
)
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.record import FileRef, JsonObject
from laminar_core.records.segment import SegmentRef
from laminar_core.spark.stage import WorkerTask
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.restored_part import RestoredPart

WORKERS = (2, 16, 64, 256)
_OPERATORS = ("in", "totals", "out")
_EDGE = EdgeRef(upstream="in", downstream="totals", input_index=0)
_PART_BYTES = 100
_TIME_US = 1_700_000_000_000_000
_ROUNDS = 3
_ONCE_FROM_WORKERS = 256
"""From so many on, everything is measured once: an unaligned manifest has 65,536 parts."""
_SPARK: Any = CloudPickleSerializer()
"""Pickles the function of a task as Spark does."""

T = TypeVar("T")


def manifest_size() -> list[Result]:
    """Bytes and processor time of manifests, and of what a worker gets, for 2 to 256 workers."""
    return [
        result
        for workers in WORKERS
        for unaligned in (False, True)
        for result in _measure(workers, unaligned=unaligned)
    ]


def manifest_of(workers: int, *, unaligned: bool) -> CheckpointManifest:
    """Return the manifest of a source, a keyed operator and a sink, one subtask per worker each."""
    every = range(workers)
    mode: ResolvedMode = "unaligned" if unaligned else "aligned"
    described: dict[str, JsonObject] = {name: {"kind": name} for name in _OPERATORS}
    files = tuple(_inflight_file(receiver, workers) for receiver in every) if unaligned else ()
    return CheckpointManifest(
        job="payments",
        generation=2,
        checkpoint_id=CheckpointId(7),
        parent_checkpoint_id=CheckpointId(6),
        kind=CheckpointKind.PERIODIC,
        mode=mode,
        is_unaligned=unaligned,
        triggered_at_ms=1_700_000_000_000,
        completed_at_ms=1_700_000_000_040,
        duration_ms=40.5,
        max_parallelism=1_024,
        parallelism=dict.fromkeys(described, workers),
        fingerprint={name: fingerprint_of(text) for name, text in described.items()},
        operators_description=described,
        edges=(EdgeEntry(**dict(_EDGE), partitioning=PartitioningKind.KEYED),),
        code_version="benchmark",
        subtasks=tuple(_subtask(name, index) for name in _OPERATORS for index in every),
        alignment=tuple(
            AlignmentEntry(
                vertex_id=vertex_id,
                subtask_index=index,
                mode=mode,
                start_delay_ms=1.5,
                alignment_ms=3.25,
                watermark_us=_TIME_US,
                channels=_channels(workers, index if unaligned else 0)
                if vertex_id == _EDGE.downstream
                else (),
            )
            for vertex_id in (_EDGE.upstream, _EDGE.downstream)
            for index in every
        ),
        inflight_files=files,
        inflight_data=tuple(
            _part(file.path, sender, receiver)
            for receiver, file in enumerate(files)
            for sender in every
        ),
    )


def deployment_of(manifest: CheckpointManifest, workers: int) -> Deployment:
    """Return a start that continues from the manifest."""
    source = DatagenSource({"key": Sequence()}, rows=0)
    columns = source.schema()
    edge = Edge(0, _EDGE.upstream, _EDGE.downstream, Keyed(("key",)), columns)
    vertices = (
        Vertex(_EDGE.upstream, (columns,), source=SourceNode(_EDGE.upstream, source)),
        Vertex(_EDGE.downstream, (columns,), operators=(SelectColumns("totals", ("key",)),)),
    )
    return Deployment(
        job=manifest.job,
        generation=Generation(manifest.generation + 1),
        parallelism=workers,
        plan=Plan(vertices, (edge,), manifest.max_parallelism),
        store_uri="file:///store",
        address=CoordinatorAddress("tcp", "tcp://10.0.0.1:40000"),
        restored=RestoredPart.whole(manifest),
        claim_sha256=None,
    )


def _measure(workers: int, *, unaligned: bool) -> Iterator[Result]:
    name = f"manifest_{workers}_workers_{'unaligned' if unaligned else 'aligned'}"
    rounds = 1 if workers >= _ONCE_FROM_WORKERS else _ROUNDS
    manifest = manifest_of(workers, unaligned=unaligned)
    yield from size_and_time(name, manifest, rounds)
    yield from _start(name, manifest, rounds)


def size_and_time(name: str, manifest: CheckpointManifest, rounds: int) -> Iterator[Result]:
    """Measure the manifest as it is written, and with an entry for each channel as in format 6."""
    write_ms, data = _timed(manifest.to_bytes, rounds)
    read_ms, parsed = _timed(lambda: parse_manifest(data), rounds)
    assert parsed == manifest
    yield Result(f"{name}_bytes", len(data), "bytes", "lower")
    yield Result(f"{name}_values", data.count(b","), "values", "lower")
    yield Result(f"{name}_bytes_deflated", len(zlib.compress(data)), "bytes", "lower")
    yield Result(f"{name}_write", write_ms, "ms", "lower")
    yield Result(f"{name}_read", read_ms, "ms", "lower")
    write_ms, entries = _timed(lambda: manifest.model_dump_json(indent=1).encode(), rounds)
    read_ms, _ = _timed(lambda: _read_entries(entries), rounds)
    yield Result(f"{name}_entries_bytes", len(entries), "bytes", "lower")
    yield Result(f"{name}_entries_values", entries.count(b","), "values", "lower")
    yield Result(f"{name}_entries_bytes_deflated", len(zlib.compress(entries)), "bytes", "lower")
    yield Result(f"{name}_entries_write", write_ms, "ms", "lower")
    yield Result(f"{name}_entries_read", read_ms, "ms", "lower")


def _read_entries(data: bytes) -> CheckpointManifest:
    """Read format 6 as it was: once for the version, and once for the rest."""
    from_json(data)
    return CheckpointManifest.model_validate_json(data)


def _start(name: str, manifest: CheckpointManifest, rounds: int) -> Iterator[Result]:
    workers = manifest.workers
    whole = deployment_of(manifest, workers)
    pack_ms, task = _timed(lambda: _SPARK.dumps(WorkerTask.of(whole)), rounds)
    unpack_ms, own = _timed(lambda: _SPARK.loads(task).deployment_of(0), rounds)
    assert own == next(whole.of_workers())
    fewer = deployment_of(manifest, max(workers * 3 // 4, 1))
    rescaled = max(len(_SPARK.dumps(each.restored)) for each in fewer.of_workers())
    # As if each worker were sent all of it.
    undivided = _SPARK.dumps(whole)
    unpickle_ms, _ = _timed(lambda: _SPARK.loads(undivided), rounds)
    yield Result(f"{name}_task_bytes", len(task), "bytes", "lower")
    yield Result(f"{name}_task_pack", pack_ms, "ms", "lower")
    yield Result(f"{name}_task_unpack", unpack_ms, "ms", "lower")
    yield Result(f"{name}_part_bytes", len(_SPARK.dumps(own.restored)), "bytes", "lower")
    yield Result(f"{name}_part_bytes_rescaled", rescaled, "bytes", "lower")
    yield Result(f"{name}_undivided_bytes", len(undivided), "bytes", "lower")
    yield Result(f"{name}_undivided_unpickle", unpickle_ms, "ms", "lower")


def _timed(action: Callable[[], T], rounds: int) -> tuple[float, T]:
    """Return the median processor time in ms, which other work on the machine changes least."""
    measured = [_processor_ms(action) for _ in range(rounds)]
    return statistics.median(ms for ms, _ in measured), measured[-1][1]


def _processor_ms(action: Callable[[], T]) -> tuple[float, T]:
    started = process_time()
    result = action()
    return 1e3 * (process_time() - started), result


def _channels(workers: int, lead_us: int) -> tuple[ChannelEntry, ...]:
    return tuple(
        ChannelEntry(input_id=sender, watermark_us=_TIME_US + 1_000 * sender + lead_us, idle=False)
        for sender in range(workers)
    )


def _subtask(operator_id: str, index: int) -> SubtaskEntry:
    segment = SegmentRef(
        path=(path := f"shared/{operator_id}/0000000001-{index}-00000000.seg"),
        size_bytes=1_234,
        sha256=_digest(path),
        row_count=10,
    )
    return SubtaskEntry(
        operator_id=operator_id,
        subtask_index=index,
        segments=(segment,),
        written_bytes=segment.size_bytes,
        sync_ms=0.5,
        async_ms=12.25,
    )


def _inflight_file(worker: int, workers: int) -> FileRef:
    path = f"checkpoints/0000000007/operators/inflight_{worker}.buf"
    return FileRef(path=path, size_bytes=_PART_BYTES * workers, sha256=_digest(path))


def _part(path: str, sender: int, receiver: int) -> InflightEntry:
    return InflightEntry(
        path=path,
        offset=_PART_BYTES * sender,
        size_bytes=_PART_BYTES,
        sha256=_digest(f"{sender} {receiver}"),
        operator_id=_EDGE.downstream,
        direction="input",
        subtask_index=receiver,
        input_id=sender,
        edge=_EDGE,
        sender=sender,
        receiver=receiver,
        event_count=3,
        row_count=20,
    )


def _digest(text: str) -> str:
    """Digests are all different, as in a store: they are what compression cannot shorten."""
    return hashlib.sha256(text.encode()).hexdigest()
