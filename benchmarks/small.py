"""Batches of twenty rows: what one costs an operator and a worker, and how long its rows take.

A batch costs each operator the same few dozen calls, however few rows it has. The jobs run in one
worker that is a thread of this process, with a real coordinator, sockets and files.
"""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import process_time, time_ns
from typing import Protocol

import numpy as np
import pyarrow as pa

from benchmarks.result import Result
from benchmarks.threads import ThreadCluster
from laminar_core.connectors import datagen
from laminar_core.connectors.collect import CollectSink
from laminar_core.driver.options import JobOptions
from laminar_core.driver.supervisor import Supervisor
from laminar_core.host.clock import SystemClock
from laminar_core.operators import agg, windows
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import Emitted, SubtaskContext
from laminar_core.operators.running import CombineRows, RunningAggregate
from laminar_core.operators.stateless import MapBatches
from laminar_core.pipeline import CheckpointConfig, Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.protocol.types import Generation
from laminar_core.store.checkpoint_store import CheckpointStore

BATCH_ROWS = 20
KEYS = 10_000
OPERATOR_BATCHES = 1_000
JOB_BATCHES = 10_000
ROUNDS = 3
LATENCY_SECONDS = 4
WARM_SECONDS = 1
STATELESS_ROWS_PER_SECOND = 20_000
RUNNING_ROWS_PER_SECOND = 1_000
WINDOW_ROWS_PER_SECOND = 20_000
RUNNING_P99_MS = 10.0
JOB_BATCHES_PER_S = 6_400

_AGGREGATES = (agg.count(), agg.sum("amount"), agg.max("amount"))
_WINDOW = windows.tumbling("200 milliseconds")
_TIME = pa.timestamp("us", tz="UTC")


def small() -> list[Result]:
    """Batches of 20 rows by operator and through a worker, and how long a row takes to come out.

    Raises:
        AssertionError: a total is wrong.
    """
    return [*_operators(), *_throughput(), *_latencies()]


class _Subtask(Protocol):
    def process(self, batch: pa.RecordBatch) -> Iterable[Emitted]: ...


# --- operators alone --------------------------------------------------------------------------


def _operators() -> list[Result]:
    """CPU time of each operator by itself; medians of rounds in which they take turns."""
    batches = _batches()
    measured: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, rate in _operator_round(batches).items():
            measured.setdefault(name, []).append(rate)
    return [
        Result.of_rounds(f"small_{name}", rates, "batches/s of CPU", "higher")
        for name, rates in measured.items()
    ]


def _operator_round(batches: Sequence[pa.RecordBatch]) -> dict[str, float]:
    schema = batches[0].schema
    mapping = MapBatches("map", lambda batch: batch, None)
    combining = CombineRows("combine", ("merchant",), _AGGREGATES)
    running = RunningAggregate("totals", ("merchant",), _AGGREGATES)
    panes = PartialAggregate("panes", ("merchant",), "ts", _WINDOW, _AGGREGATES)
    merging = WindowAggregate("windows", ("merchant",), _WINDOW, _AGGREGATES)
    rates: dict[str, float] = {}

    def through(
        name: str, subtask: _Subtask, rows: Sequence[pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        started = process_time()
        out = [b for some in rows for b in subtask.process(some) if isinstance(b, pa.RecordBatch)]
        rates[name] = len(rows) / (process_time() - started)
        return out

    through("map", mapping.open(_context("map"), schema), batches)
    combined = through("combine", combining.open(_context("combine"), schema), batches)
    totals = through(
        "running_totals", running.open(_context("totals"), combined[0].schema), combined
    )
    _check(batches, totals)
    paned = through("window_combine", panes.open(_context("panes"), schema), batches)
    through("window_merge", merging.open(_context("windows"), paned[0].schema), paned)
    return rates


def _context(operator_id: str) -> SubtaskContext:
    return SubtaskContext(operator_id, 0, 1, 128, Generation(1))


def _batches() -> list[pa.RecordBatch]:
    random = np.random.default_rng(7)
    names = pa.array([f"merchant-{n:06d}" for n in range(KEYS)])
    return [
        pa.record_batch(
            {
                "merchant": names.take(pa.array(random.integers(0, KEYS, BATCH_ROWS))),
                "amount": random.integers(1, 1_000, BATCH_ROWS),
                "ts": pa.array(np.full(BATCH_ROWS, n * 1_000), _TIME),
            }
        )
        for n in range(OPERATOR_BATCHES)
    ]


def _check(rows: Iterable[pa.RecordBatch], totals: Iterable[pa.RecordBatch]) -> None:
    """Compare the newest total of each key with a sum over all rows."""
    newest: dict[str, tuple[int, int, int]] = {}
    for batch in totals:
        columns = [batch.column(name).to_pylist() for name in ("merchant", *_NAMES)]
        newest |= {key: values for key, *values in zip(*columns, strict=True)}
    everything = pa.Table.from_batches([batch.select(["merchant", "amount"]) for batch in rows])
    grouped = everything.group_by("merchant").aggregate(
        [([], "count_all"), ("amount", "sum"), ("amount", "max")]
    )
    names = ["merchant", "count_all", "amount_sum", "amount_max"]
    expected = zip(*(grouped.column(name).to_pylist() for name in names), strict=True)
    assert newest == {key: values for key, *values in expected}, "a running total is wrong"


_NAMES = tuple(aggregate.name for aggregate in _AGGREGATES)


# --- a worker ---------------------------------------------------------------------------------


@dataclass
class _Probe:
    """The rows that went into a job and came out, and when; its worker is a thread here."""

    waited_from: str = "at"
    """The column of the time from which a row has waited."""
    taken: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])
    given: list[tuple[float, pa.RecordBatch]] = field(
        default_factory=list[tuple[float, pa.RecordBatch]]
    )

    cpu_s: list[float] = field(default_factory=list[float])
    """CPU time of the process whenever rows came out."""

    def stamp(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the time at which the rows came."""
        now = pa.array(np.full(batch.num_rows, time_ns() // 1_000), _TIME)
        self.taken.append(batch)
        return batch.append_column("at", now)

    def record(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Note the time at which the rows come out."""
        self.given.append((time_ns() / 1_000, batch))
        self.cpu_s.append(process_time())
        return batch

    def waits_ms(self) -> np.ndarray:
        """Return how long each row took, without the first second."""
        start_us = self.given[0][0] + WARM_SECONDS * 1e6
        return np.concatenate(
            [
                (time_us - batch.column(self.waited_from).cast(pa.int64()).to_numpy()) / 1_000
                for time_us, batch in self.given
                if time_us > start_us
            ]
        )


_Steps = Callable[[Stream], Stream]


def _run(probe: _Probe, steps: _Steps, batches: int, rows_per_second: float | None) -> None:
    """Run a job over that many batches."""
    fields = {
        "merchant": datagen.ZipfKey(KEYS, prefix="merchant-"),
        "amount": datagen.Sequence(),
    }
    source = datagen.DatagenSource(fields, batches * BATCH_ROWS, splits=1, batch_rows=BATCH_ROWS)
    p = Pipeline("small")
    rows = p.source("in", source, rows_per_second=rows_per_second)
    stamped = rows.map(probe.stamp, schema=source.schema().append(pa.field("at", _TIME)))
    steps(stamped).map(probe.record).sink("out", CollectSink())
    with tempfile.TemporaryDirectory(prefix="laminar-bench-") as store_uri:
        config = CheckpointConfig(store=store_uri, interval="1 second")
        options = JobOptions(
            job="small",
            store_uri=store_uri,
            parallelism=1,
            checkpoint=config.coordinator_config(),
        )
        store = CheckpointStore.open(store_uri, options.job)
        Supervisor(ThreadCluster(), p.plan(), options, store, SystemClock(), lambda _: None).run()


def _totals(rows: Stream) -> Stream:
    newest = agg.max("at")
    return rows.key_by("merchant").aggregate("totals", *_AGGREGATES, newest)


def _throughput() -> list[Result]:
    rates: list[float] = []
    for _ in range(ROUNDS):
        probe = _Probe("max_at")
        _run(probe, _totals, JOB_BATCHES, None)
        _check(probe.taken, (batch for _, batch in probe.given))
        rates.append(JOB_BATCHES / (probe.cpu_s[-1] - probe.cpu_s[0]))
    target = JOB_BATCHES_PER_S
    return [
        Result.of_rounds("small_job_running_totals", rates, "batches/s of CPU", "higher", target)
    ]


# --- latency ----------------------------------------------------------------------------------


def _latencies() -> list[Result]:
    def windowed(rows: Stream) -> Stream:
        timed = rows.watermark("at")
        return timed.key_by("merchant").window(_WINDOW).aggregate("totals", agg.count())

    return [
        *_latency("stateless", "at", Stream.rebalance, STATELESS_ROWS_PER_SECOND),
        *_latency("running_totals", "max_at", _totals, RUNNING_ROWS_PER_SECOND, RUNNING_P99_MS),
        *_latency("window_end", "window_end", windowed, WINDOW_ROWS_PER_SECOND),
    ]


def _latency(
    name: str, column: str, steps: _Steps, rows_per_second: int, p99_ms: float | None = None
) -> list[Result]:
    probe = _Probe(column)
    batches = LATENCY_SECONDS * rows_per_second // BATCH_ROWS
    _run(probe, steps, batches, rows_per_second)
    if column == "max_at":
        _check(probe.taken, (batch for _, batch in probe.given))
    elif column == "at":
        assert sum(batch.num_rows for _, batch in probe.given) == batches * BATCH_ROWS, name
    p50, p99 = np.percentile(probe.waits_ms(), [50, 99])
    return [
        Result(f"small_latency_{name}_p50", float(p50), "ms", "lower"),
        Result(f"small_latency_{name}_p99", float(p99), "ms", "lower", p99_ms),
    ]
