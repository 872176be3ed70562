"""Decide what an event changes in the metrics. No I/O and no clock.

Events carry totals that go back when a generation restores, and counters never go back. So a
counter grows by the difference to the last total, if that is above 0. Totals of one generation
begin at 0. Totals of the job's history go on where a generation restores; a driver that continues a
job counts them from its first report, because it does not know where they began.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from laminar_core.driver.events import (
    CheckpointCompleted,
    CheckpointFailed,
    Finished,
    GenerationFailed,
    GenerationStarted,
    JobEvent,
    ProgressMade,
    StoreBack,
    StoreLost,
    WorkersRunning,
)
from laminar_core.metrics import catalogue
from laminar_core.metrics.catalogue import Metric
from laminar_core.metrics.changes import Change, Counted, Labels, Observed, Shown
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.records.operator_numbers import OperatorNumbers
from laminar_core.records.sink_numbers import SinkNumbers
from laminar_core.records.source_numbers import SourceNumbers

_OF_A_RUNNING_GENERATION = (
    catalogue.CHECKPOINTS_PENDING,
    catalogue.OPERATOR_BUSY_SHARE,
    catalogue.OPERATOR_BACKPRESSURED_SHARE,
    catalogue.OPERATOR_QUEUED,
)
"""Gauges that have no value while no generation runs."""

_OF_OPERATORS: tuple[tuple[Metric, Callable[[OperatorNumbers], float | None]], ...] = (
    (catalogue.OPERATOR_BUSY_SHARE, lambda n: n.busy_share),
    (catalogue.OPERATOR_BACKPRESSURED_SHARE, lambda n: n.backpressured_share),
    (catalogue.OPERATOR_QUEUED, lambda n: n.queued_batches),
)
_OF_SOURCES: tuple[tuple[Metric, Callable[[SourceNumbers], float | None]], ...] = (
    (catalogue.SOURCE_LAG_ROWS, lambda n: n.lag_rows),
    (catalogue.SOURCE_LAG, lambda n: n.lag_seconds),
    (catalogue.SOURCE_SPLITS, lambda n: n.splits),
    (catalogue.SOURCE_IDLE, lambda n: n.splits_idle),
    (catalogue.SOURCE_BLOCKED, lambda n: n.splits_blocked),
    (catalogue.SOURCE_HEADROOM_ROWS, lambda n: n.headroom_rows),
    (catalogue.SOURCE_HEADROOM, lambda n: n.headroom_seconds),
    (catalogue.SOURCE_FETCH_QUEUE, lambda n: n.fetch_queue_bytes),
    (catalogue.SOURCE_FILES_LATE, lambda n: n.files_late),
    (catalogue.SOURCE_DISCOVERY, lambda n: _seconds(n.discovery_ms)),
)
_OF_SINKS: tuple[tuple[Metric, Callable[[SinkNumbers], float | None]], ...] = (
    (catalogue.SINK_RATE, lambda n: n.publish_rows_per_s),
    (catalogue.SINK_EXPIRY, lambda n: _seconds(n.transaction_expires_in_ms)),
)


N = TypeVar("N", OperatorNumbers, SourceNumbers, SinkNumbers)


class EventMapping:
    """The changes that follow from each event of one job."""

    def __init__(self) -> None:
        self._totals: dict[tuple[Metric, Labels], float] = {}
        """The last total of each counter in this generation."""
        self._history: dict[tuple[Metric, Labels], float] = {}
        """The last total of each counter in the history of the job."""
        self._is_fresh = False
        """Whether the history of the job began with this generation."""
        self._failed_ms: int | None = None

    def changes(self, event: JobEvent) -> list[Change]:
        """Return what the event changes; empty for most kinds of events."""
        match event:
            case GenerationStarted():
                return self._on_start(event)
            case WorkersRunning():
                return [*self._on_running(event.time_ms), _one(catalogue.RUNNING, 1)]
            case ProgressMade():
                return list(self._on_progress(event))
            case CheckpointCompleted():
                return list(_on_completed(event))
            case CheckpointFailed(outcome=outcome, kind=kind):
                return [Counted(catalogue.CHECKPOINTS, 1, (outcome, kind.value, "none"))]
            case GenerationFailed():
                return list(self._on_failure(event))
            case Finished():
                return [*self._on_rows(event), *_over()]
            case StoreLost():
                return [_one(catalogue.STORE_LOST, 1)]
            case StoreBack():
                return [_one(catalogue.STORE_LOST, 0)]
            case _:
                return []

    def _on_start(self, event: GenerationStarted) -> list[Change]:
        self._totals = {}
        self._is_fresh = event.restored_checkpoint_id is None
        if self._is_fresh:
            self._history = {}
        return [
            _one(catalogue.RUNNING, 0),
            _one(catalogue.GENERATION, event.generation),
            _one(catalogue.WORKERS, event.parallelism),
            _one(catalogue.STORE_LOST, 0),
        ]

    def _on_running(self, now_ms: int) -> Iterator[Change]:
        if self._failed_ms is not None:
            took_ms, self._failed_ms = now_ms - self._failed_ms, None
            yield Observed(catalogue.RECOVERY, max(took_ms, 0) / 1000)

    def _on_failure(self, event: GenerationFailed) -> Iterator[Change]:
        yield Counted(catalogue.FAILURES, 1, (event.code,))
        if event.restart_in_ms is not None:
            yield Counted(catalogue.RESTARTS, 1)
        if self._failed_ms is None:  # One that fails before it ran belongs to the same recovery.
            self._failed_ms = event.time_ms
        yield from _over()

    def _on_progress(self, event: ProgressMade) -> Iterator[Change]:
        yield from self._on_rows(event)
        yield from self._on_operators(event.operators)
        yield from _shown(_OF_OPERATORS, event.operators)
        yield from _shown(_OF_SOURCES, event.sources)
        yield from _shown(_OF_SINKS, event.sinks)
        yield _one(catalogue.CHECKPOINTS_PENDING, event.pending_checkpoints)
        yield _one(catalogue.UNCOMMITTED, event.uncommitted_checkpoints)
        yield _maybe(catalogue.COMMIT_DURATION, _seconds(event.commit_ms))
        yield _maybe(catalogue.WATERMARK, _event_time_s(event.watermark_us))
        cuts = event.unaligned
        yield self._grown(catalogue.COMMIT_RETRIES, event.commit_retries)
        yield self._grown(catalogue.FENCED, event.fenced)
        yield self._grown(catalogue.UNALIGNED_CUTS, cuts.unaligned_count)
        yield self._grown(catalogue.UNALIGNED_SWITCHES, cuts.threshold_switches)

    def _on_rows(self, event: ProgressMade | Finished) -> Iterator[Change]:
        bad = event.bad_rows
        yield self._continued(catalogue.ROWS_READ, event.rows_in)
        yield self._continued(catalogue.ROWS_WRITTEN, event.rows_out)
        yield self._continued(catalogue.ROWS_LATE, event.rows_late)
        yield self._continued(catalogue.BAD_ROWS, bad.letters, ("letters",))
        yield self._continued(catalogue.BAD_ROWS, bad.dropped, ("dropped",))
        yield self._continued(catalogue.BAD_ROWS, bad.skipped, ("skipped",))

    def _on_operators(self, operators: Mapping[str, OperatorNumbers]) -> Iterator[Change]:
        for name, numbers in operators.items():
            labels = (name,)
            yield self._grown(catalogue.OPERATOR_ROWS_IN, numbers.rows_in, labels)
            yield self._grown(catalogue.OPERATOR_ROWS_OUT, numbers.rows_out, labels)
            expired = numbers.rows_expired
            yield self._continued(catalogue.OPERATOR_ROWS_EXPIRED, expired, labels)
            yield self._grown(catalogue.OPERATOR_BUSY, numbers.busy_ms / 1000, labels)
            stopped_s = numbers.backpressured_ms / 1000
            yield self._grown(catalogue.OPERATOR_BACKPRESSURED, stopped_s, labels)

    def _grown(self, metric: Metric, total: float, labels: Labels = ()) -> Change:
        """Count what was added to a total of this generation."""
        before = self._totals.get((metric, labels), 0.0)
        self._totals[metric, labels] = total
        return Counted(metric, max(total - before, 0.0), labels)

    def _continued(self, metric: Metric, total: float, labels: Labels = ()) -> Change:
        """Count what was added to a total of the job's history."""
        before = self._history.get((metric, labels), 0.0 if self._is_fresh else total)
        self._history[metric, labels] = total
        return Counted(metric, max(total - before, 0.0), labels)


def _on_completed(event: CheckpointCompleted) -> Iterator[Change]:
    yield Counted(catalogue.CHECKPOINTS, 1, ("completed", event.kind.value, event.mode))
    yield Observed(catalogue.CHECKPOINT_DURATION, event.duration_ms / 1000)
    phases = {
        "start_delay": event.start_delay_ms,
        "alignment": event.alignment_ms,
        "sync": event.sync_ms,
        "async": event.async_ms,
    }
    for phase, took_ms in phases.items():
        yield Observed(catalogue.CHECKPOINT_PHASE, took_ms / 1000, (phase,))
    yield _one(catalogue.CHECKPOINT_SIZE, event.size_bytes)
    yield _one(catalogue.CHECKPOINT_INFLIGHT, event.inflight_bytes)
    yield _one(catalogue.CHECKPOINT_COMPLETED_AT, event.time_ms / 1000)
    yield Counted(catalogue.CHECKPOINT_WRITTEN, event.written_bytes)
    yield Counted(catalogue.CHECKPOINT_INFLIGHT_WRITTEN, event.inflight_bytes)
    sizes = {(name,): float(part.size_bytes) for name, part in event.operators.items()}
    yield Shown(catalogue.OPERATOR_SIZE, sizes)
    for name, part in event.operators.items():
        yield Counted(catalogue.OPERATOR_WRITTEN, part.written_bytes, (name,))
    waits = {
        (each.vertex_id, each.upstream, str(each.sender)): each.barrier_ms / 1000
        for each in event.channels
    }
    yield Shown(catalogue.CHANNEL_ALIGNMENT, waits)


def _over() -> Iterator[Change]:
    yield _one(catalogue.RUNNING, 0)
    for metric in _OF_A_RUNNING_GENERATION:
        yield Shown(metric, {})


def _shown(
    metrics: tuple[tuple[Metric, Callable[[N], float | None]], ...], numbers: Mapping[str, N]
) -> Iterator[Change]:
    """Yield gauges by name; a number that is unknown has no value."""
    for metric, value_of in metrics:
        found = {name: value_of(each) for name, each in numbers.items()}
        yield Shown(metric, {(name,): v for name, v in found.items() if v is not None})


def _one(metric: Metric, value: float) -> Change:
    return Shown(metric, {(): value})


def _maybe(metric: Metric, value: float | None) -> Change:
    return Shown(metric, {} if value is None else {(): value})


def _seconds(duration_ms: float | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000


def _event_time_s(watermark_us: int | None) -> float | None:
    """Return the time in seconds; None: there is none yet, or the input has ended."""
    known = watermark_us is not None and watermark_us < WATERMARK_END_US
    return watermark_us / 1_000_000 if known and watermark_us is not None else None
