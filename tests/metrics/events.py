"""Events of a job, for tests of what is exported of them."""

from typing import Any

from laminar_core.driver.events import (
    ChannelWait,
    CheckpointCompleted,
    CheckpointFailed,
    GenerationFailed,
    GenerationStarted,
    OperatorBytes,
    ProgressMade,
    WorkersRunning,
)
from laminar_core.protocol.types import CheckpointKind
from laminar_core.records.operator_numbers import OperatorNumbers


def started(restored: int | None = None, generation: int = 1) -> GenerationStarted:
    return GenerationStarted(
        time_ms=1_000,
        generation=generation,
        parallelism=2,
        restored_checkpoint_id=restored,
        rows_total=None,
    )


def running(time_ms: int = 2_000) -> WorkersRunning:
    return WorkersRunning(time_ms=time_ms, generation=1, pids=(1, 2), hosts=("a", "b"))


def progress(rows_in: int = 0, **more: Any) -> ProgressMade:
    fields = {"rows_out": 0, "rows_late": 0, "rows_total": None, "rows_per_s": 0.0}
    fields |= {"watermark_us": None, **more}
    return ProgressMade(time_ms=3_000, rows_in=rows_in, **fields)


def failed(time_ms: int = 4_000, restart_in_ms: float | None = 10) -> GenerationFailed:
    return GenerationFailed(
        time_ms=time_ms,
        generation=1,
        code="worker-lost",
        reason="killed",
        restart_in_ms=restart_in_ms,
    )


def completed(**more: Any) -> CheckpointCompleted:
    fields: dict[str, Any] = {
        "kind": CheckpointKind.PERIODIC,
        "mode": "switched",
        "duration_ms": 1_500,
        "start_delay_ms": 10,
        "alignment_ms": 200,
        "sync_ms": 30,
        "async_ms": 400,
        "size_bytes": 1_000,
        "written_bytes": 300,
        "inflight_bytes": 50,
        "operators": {"sums": OperatorBytes(size_bytes=900, written_bytes=250)},
        "channels": (
            ChannelWait(vertex_id="sums", upstream="in", sender=1, barrier_ms=150),
            ChannelWait(vertex_id="sums", upstream="in", sender=0, barrier_ms=20),
        ),
    }
    return CheckpointCompleted(time_ms=5_000, checkpoint_id=7, generation=1, **{**fields, **more})


def expired() -> CheckpointFailed:
    return CheckpointFailed(
        time_ms=6_000,
        checkpoint_id=8,
        generation=1,
        kind=CheckpointKind.PERIODIC,
        outcome="expired",
        reason="slow",
    )


def operator(**more: Any) -> OperatorNumbers:
    fields = {"rows_in": 10, "rows_out": 5, "busy_ms": 2_000, "backpressured_ms": 500}
    fields |= {"busy_share": 0.5, "backpressured_share": 0.125, "queued_batches": 3}
    return OperatorNumbers(**{**fields, **more})
