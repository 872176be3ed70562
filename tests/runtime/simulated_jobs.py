"""Small jobs with answers that plain Python computes: what a simulated cluster has to reproduce."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.connectors.collect import CollectSink
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.builder import Stream
from laminar_core.runtime.plan import Plan
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource

SECOND_US = 1_000_000
WINDOW_US = 10 * SECOND_US
JITTER_US = 3 * SECOND_US
DELAY = "6 seconds"

Row = dict[str, object]


@cache
def payments(splits: int = 3, rows: int = 40, seed: int = 1) -> list[pa.Table]:
    """Event time grows by a second a row, out of order within ``DELAY``; ``id`` is unique."""
    random = Random(seed)
    tables = []
    for split in range(splits):
        ids = [split * rows + n for n in range(rows)]
        times = [i * SECOND_US + random.randrange(2 * JITTER_US) - JITTER_US for i in ids]
        tables.append(
            pa.table(
                {
                    "id": [seed * 10_000 + i for i in ids],
                    "key": [f"k{random.randrange(7)}" for _ in ids],
                    "value": [random.randrange(100) for _ in ids],
                    "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                }
            )
        )
    return tables


def rows_of(tables: list[pa.Table]) -> list[Row]:
    return [row for table in tables for row in table.to_pylist()]


def totals(rows: list[Row]) -> list[Row]:
    """Count and sum per key and window, one row after the other."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        time_us = int(row["ts"].timestamp() * SECOND_US)
        start = time_us - time_us % WINDOW_US
        total = found.setdefault(
            (row["key"], start), {"key": row["key"], "start": start, "count": 0, "total": 0}
        )
        total["count"] += 1
        total["total"] += row["value"]
    return list(found.values())


def plain(rows: list[Row]) -> list[Row]:
    """Rows of a window as ``totals`` words them; others as they are."""
    return [
        {
            "key": row["key"],
            "start": int(row["window_start"].timestamp() * SECOND_US),
            "count": row["count"],
            "total": row["total"],
        }
        if "window_start" in row
        else row
        for row in rows
    ]


def normal(rows: list[Row]) -> list[str]:
    """Equal if and only if the same rows are there, equally often."""
    return sorted(repr(sorted(row.items())) for row in plain(rows))


@dataclass
class Job:
    """A plan, where its output goes, and what has to be there in the end."""

    plan: Plan
    expected: dict[str, list[Row]]
    ledgers: dict[str, Ledger] = field(default_factory=dict)

    def check(self) -> None:
        """Output equals the oracle's: nothing lost, nothing twice."""
        for name, ledger in self.ledgers.items():
            assert normal(ledger.rows()) == normal(self.expected[name]), name
            listed = [part for parts in ledger.commits.values() for part in parts]
            assert sorted(listed) == sorted(ledger.visible), name


def windowed(stream: Stream, name: str = "totals", window: str = "10 seconds") -> Stream:
    return (
        stream.key_by("key")
        .window(windows.tumbling(window), time="ts")
        .aggregate(name, agg.count(), agg.sum("value", name="total"))
    )


def _job(pipeline: Pipeline, outputs: dict[str, tuple[Stream, list[Row]]]) -> Job:
    ledgers = {name: Ledger() for name in outputs}
    for name, (stream, _) in outputs.items():
        stream.sink(name, LedgerSink(ledgers[name], name))
    expected = {name: rows for name, (_, rows) in outputs.items()}
    return Job(pipeline.plan(), expected, ledgers)


def windows_job(parallelism: int, name: str = "totals", window: str = "10 seconds") -> Job:
    del parallelism
    tables = payments()
    p = Pipeline("windows")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    return _job(p, {"out": (windowed(rows, name, window), totals(rows_of(tables)))})


def never_ending_job() -> Job:
    """All rows are output; then the source waits for more that never come."""
    tables = payments()
    p = Pipeline("endless")
    rows = p.source("in", MemorySource(tables, bounded=False))
    return _job(p, {"out": (rows.rebalance(), rows_of(tables))})


def collect_job(parallelism: int) -> Job:
    """Rows come back through the stage, not through a ledger."""
    del parallelism
    tables = payments()
    p = Pipeline("collect")
    p.source("in", MemorySource(tables)).rebalance().sink("rows", CollectSink())
    return Job(p.plan(), {"rows": rows_of(tables)})


def failing_job(error: Exception) -> Job:
    """Row 77 is more than the job can bear."""
    tables = payments()

    def fail_at_77(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 10_077 in batch.column("id").to_pylist():
            raise error
        return batch

    p = Pipeline("failing")
    return _job(p, {"out": (p.source("in", MemorySource(tables)).map(fail_at_77), [])})


def stateless_job(parallelism: int) -> Job:
    del parallelism
    tables = payments()
    p = Pipeline("stateless")
    kept = p.source("in", MemorySource(tables, gap_every=5)).filter(pc.field("value") >= 30)
    return _job(p, {"out": (kept, [r for r in rows_of(tables) if r["value"] >= 30])})


def union_job(parallelism: int) -> Job:
    del parallelism
    first, second = payments(2, 40), payments(3, 25, seed=2)
    p = Pipeline("union")
    a = p.source("a", MemorySource(first)).watermark("ts", max_delay=DELAY)
    b = p.source("b", MemorySource(second, batch_rows=7)).watermark("ts", max_delay=DELAY)
    return _job(p, {"out": (windowed(a.union(b)), totals(rows_of(first + second)))})


def fan_out_job(parallelism: int) -> Job:
    del parallelism
    tables = payments()
    p = Pipeline("fan-out")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    return _job(
        p,
        {
            "raw": (rows, rows_of(tables)),
            "windows": (windowed(rows), totals(rows_of(tables))),
        },
    )


def rebalance_job(parallelism: int) -> Job:
    del parallelism
    tables = payments(1, 100)
    p = Pipeline("rebalance")
    return _job(p, {"out": (p.source("in", MemorySource(tables)).rebalance(), rows_of(tables))})


def broadcast_job(parallelism: int) -> Job:
    tables = payments(2, 30)
    p = Pipeline("broadcast")
    rows = p.source("in", MemorySource(tables)).broadcast()
    return _job(p, {"out": (rows, rows_of(tables) * parallelism)})


def mesh_job(parallelism: int) -> Job:
    """Two keyed exchanges, one behind the other."""
    del parallelism
    tables = payments()
    p = Pipeline("mesh")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(_same, name="same")
    return _job(p, {"out": (windowed(dealt), totals(rows_of(tables)))})


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


JOBS: dict[str, Callable[[int], Job]] = {
    "windows": windows_job,
    "stateless": stateless_job,
    "union": union_job,
    "fan-out": fan_out_job,
    "rebalance": rebalance_job,
    "broadcast": broadcast_job,
    "mesh": mesh_job,
}
