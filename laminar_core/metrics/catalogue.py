"""The metrics that a job exports: name, unit, labels and meaning of each.

Names follow OpenTelemetry. ``Metric.prometheus`` is the same name by the rules of Prometheus, with
the unit in it. The number of series is bounded: labels name operators, sources, sinks, workers and
values of enumerations, and never a checkpoint.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["", "s", "By", "1"]
"""Units as OpenTelemetry writes them; empty: a number of what the name says. ``1``: a share."""

_SUFFIX: dict[Unit, str] = {"": "", "s": "_seconds", "By": "_bytes", "1": "_ratio"}

JOB_LABEL = "laminar_job"
"""Label of every series. Prometheus gives each target a label ``job`` with another meaning."""

DURATION_BOUNDS_S = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
"""Upper bounds of the buckets of all durations."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Equal names are equal metrics."""

    name: str
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    """Labels beside ``laminar_job``."""
    meaning: str

    @property
    def family(self) -> str:
        """Its name in Prometheus, without the endings of counters and of buckets."""
        return self.name.replace(".", "_") + _SUFFIX[self.unit]

    @property
    def prometheus(self) -> str:
        """Its name in Prometheus."""
        return self.family + ("_total" if self.kind == "counter" else "")


def _counter(name: str, meaning: str, *labels: str, unit: Unit = "") -> Metric:
    return Metric(f"laminar.{name}", "counter", unit, labels, meaning)


def _gauge(name: str, meaning: str, *labels: str, unit: Unit = "") -> Metric:
    return Metric(f"laminar.{name}", "gauge", unit, labels, meaning)


def _duration(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"laminar.{name}", "histogram", "s", labels, meaning)


RUNNING = _gauge("job.running", "1 while all workers run, otherwise 0")
GENERATION = _gauge("job.generation", "Number of the running generation, or of the last one")
WORKERS = _gauge("job.workers", "Number of workers")
FAILURES = _counter("job.failures", "Generations that failed, by error code", "code")
RESTARTS = _counter("job.restarts", "Restarts after a failure")
RECOVERY = _duration(
    "job.recovery", "Time from a failure until all workers run again with their state"
)
STORE_LOST = _gauge("store.lost", "1 while the store is not the one in which the job was claimed")

ROWS_READ = _counter("rows.read", "Rows that sources have read; those read again count again")
ROWS_WRITTEN = _counter("rows.written", "Rows that sinks have taken; repetitions count again")
ROWS_LATE = _counter("rows.late", "Rows that came too late for their window")
BAD_ROWS = _counter("rows.bad", "Messages that were no rows: letters, dropped, skipped", "outcome")
WATERMARK = _gauge(
    "watermark.timestamp", "Event time of the slowest vertex, in seconds since 1970", unit="s"
)

OPERATOR_ROWS_IN = _counter("operator.rows.in", "Rows that the operator has taken", "operator")
OPERATOR_ROWS_OUT = _counter(
    "operator.rows.out", "Rows that it has passed on, without side outputs", "operator"
)
OPERATOR_ROWS_EXPIRED = _counter(
    "operator.rows.expired",
    "Rows and values of its state that went because of their time",
    "operator",
)
OPERATOR_BUSY = _counter(
    "operator.busy.time", "Time at work, summed over the workers", "operator", unit="s"
)
OPERATOR_BACKPRESSURED = _counter(
    "operator.backpressured.time",
    "Time for which full outputs have stopped it, summed over the workers",
    "operator",
    unit="s",
)
OPERATOR_BUSY_SHARE = _gauge(
    "operator.busy",
    "Share of its time that the busiest worker has lately spent in it, 0 to 1",
    "operator",
    unit="1",
)
OPERATOR_BACKPRESSURED_SHARE = _gauge(
    "operator.backpressured",
    "Share of the time for which full outputs have lately stopped it, in the worker where that is "
    "most, 0 to 1",
    "operator",
    unit="1",
)
OPERATOR_QUEUED = _gauge(
    "operator.queued.batches",
    "Batches that wait at its inputs; only the first operator of a vertex has any",
    "operator",
)
OPERATOR_SIZE = _gauge(
    "operator.checkpoint.size",
    "Its part of the newest checkpoint, as a restore reads it",
    "operator",
    unit="By",
)
OPERATOR_WRITTEN = _counter(
    "operator.checkpoint.written", "State that it has uploaded for checkpoints", "operator",
    unit="By",
)  # fmt: skip

CHECKPOINTS = _counter(
    "checkpoints",
    "Checkpoints that ended: completed, declined, expired, subsumed or aborted. mode: aligned, "
    "unaligned (from the start), switched (while it was under way), none (not completed)",
    *("outcome", "kind", "mode"),
)
CHECKPOINT_DURATION = _duration(
    "checkpoint.duration", "Time from the trigger of a completed checkpoint until it was durable"
)
CHECKPOINT_PHASE = _duration(
    "checkpoint.phase.duration",
    "Parts of it, of the slowest subtask: start_delay, alignment, sync, async. They overlap",
    "phase",
)
CHECKPOINT_SIZE = _gauge(
    "checkpoint.last.size", "Size of the newest checkpoint, as a restore reads it", unit="By"
)
CHECKPOINT_INFLIGHT = _gauge(
    "checkpoint.last.inflight", "Part of it that was in flight", unit="By"
)  # fmt: skip
CHECKPOINT_COMPLETED_AT = _gauge(
    "checkpoint.last.completed.timestamp",
    "When the newest checkpoint was complete, in seconds since 1970",
    unit="s",
)
CHECKPOINT_WRITTEN = _counter(
    "checkpoint.written", "Bytes uploaded for completed checkpoints", unit="By"
)
CHECKPOINT_INFLIGHT_WRITTEN = _counter(
    "checkpoint.inflight.written", "Data in flight in completed checkpoints", unit="By"
)
CHECKPOINTS_PENDING = _gauge("checkpoints.pending", "Checkpoints under way")
CHANNEL_ALIGNMENT = _gauge(
    "channel.alignment",
    "How long the last checkpoint's barrier was missing at the slowest subtask of the vertex, on "
    "the channel from worker sender of the vertex upstream; the slowest channels only",
    *("vertex", "upstream", "sender"),
    unit="s",
)
UNALIGNED_CUTS = _counter("unaligned.cuts", "Snapshots of subtasks whose barrier overtook data")
UNALIGNED_SWITCHES = _counter(
    "unaligned.switches", "Those of them that began aligned and switched"
)  # fmt: skip

UNCOMMITTED = _gauge(
    "checkpoints.uncommitted", "Completed checkpoints whose output waits for its commit"
)
COMMIT_DURATION = _gauge(
    "commit.last.duration", "Duration of the last commit, with all its attempts", unit="s"
)
COMMIT_RETRIES = _counter("commit.retries", "Attempts of commits that failed")
FENCED = _counter("commit.fenced", "Attempts that failed because of another driver")
SINK_RATE = _gauge("sink.publish.rows_per_second", "Rows per second of the last commit", "sink")
SINK_EXPIRY = _gauge(
    "sink.transaction.expires_in",
    "Time until the target gives up output that waits for its commit",
    "sink",
    unit="s",
)

SOURCE_LAG_ROWS = _gauge("source.lag.rows", "Rows that are there and were not read", "source")
SOURCE_LAG = _gauge("source.lag", "Age of the oldest row that was not read", "source", unit="s")
SOURCE_SPLITS = _gauge("source.splits", "Splits that are not read to their end", "source")
SOURCE_IDLE = _gauge("source.splits.idle", "Those of them without rows", "source")
SOURCE_BLOCKED = _gauge("source.splits.blocked", "Those with rows that cannot be read", "source")
SOURCE_HEADROOM_ROWS = _gauge(
    "source.headroom.rows",
    "Rows between the oldest one of the input and the oldest checkpoint; below 0: rows are lost",
    "source",
)
SOURCE_HEADROOM = _gauge(
    "source.headroom",
    "Time until the input may delete rows that the oldest checkpoint needs",
    "source",
    unit="s",
)
SOURCE_FETCH_QUEUE = _gauge(
    "source.fetch_queue", "Bytes that clients have fetched ahead", "source", unit="By"
)
SOURCE_FILES_LATE = _gauge("source.files.late", "Files that came too late", "source")
SOURCE_DISCOVERY = _gauge(
    "source.discovery", "Duration of the last search for splits", "source", unit="s"
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All of them, in the order of this file."""
