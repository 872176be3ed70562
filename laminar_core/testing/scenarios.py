"""Small jobs with expected output computed in plain Python, for a simulated cluster.

A scenario is a function from a parallelism to a ``Job``. Two calls make jobs that are equal except
for their ledgers, so one can restore the other's checkpoints.
"""

import asyncio

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.testing.aggregate_jobs import AGGREGATE_JOBS
from laminar_core.testing.connected_jobs import CONNECTED_JOBS
from laminar_core.testing.enrich_jobs import ENRICH_JOBS
from laminar_core.testing.event_time_jobs import EVENT_TIME_JOBS, windows_behind_windows_job
from laminar_core.testing.growing_source import GrowingSource
from laminar_core.testing.input_jobs import INPUT_JOBS
from laminar_core.testing.jobs import (
    DELAY,
    HALF,
    KEPT_FROM,
    WORK,
    BuildJob,
    Burden,
    Job,
    Row,
    doubled_windows,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.join_jobs import JOIN_JOBS, LATE_JOIN_JOBS
from laminar_core.testing.kept_state_jobs import KEPT_STATE_JOBS
from laminar_core.testing.late_jobs import LATE_JOBS
from laminar_core.testing.lookup_jobs import LOOKUP_JOBS
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.pairing_jobs import EQUAL_WINDOWS_JOBS, PAIRING_JOBS
from laminar_core.testing.process_jobs import PROCESS_JOBS
from laminar_core.testing.session_jobs import EARLY_SESSION_JOBS, SESSION_JOBS
from laminar_core.testing.updating_jobs import RANKED_JOBS, RETRACTED_JOBS, UPDATING_JOBS
from laminar_core.testing.weighted_jobs import WEIGHTED_JOBS


def windows_job(
    parallelism: int, name: str = "totals", window: str = "10 seconds", pace: float | None = None
) -> Job:
    """Return a job with one keyed exchange; ``pace`` is in rows per second, None: unlimited."""
    del parallelism
    tables = payments()
    p = Pipeline("windows")
    source = p.source("in", MemorySource(tables), rows_per_second=pace)
    rows = source.watermark("ts", max_delay=DELAY)
    return with_ledgers(p, {"out": (windowed(rows, name, window), totals(rows_of(tables)))})


def stateless_job(parallelism: int) -> Job:
    """Return a job without an exchange, whose source pauses now and then."""
    del parallelism
    tables = payments()
    p = Pipeline("stateless")
    kept = p.source("in", MemorySource(tables, gap_every=5)).filter(pc.field("value") >= KEPT_FROM)
    return with_ledgers(p, {"out": (kept, [r for r in rows_of(tables) if r["value"] >= KEPT_FROM])})


def union_job(parallelism: int) -> Job:
    """Return a job that merges two sources of different length."""
    del parallelism
    first, second = payments(2, 40), payments(3, 25, seed=2)
    p = Pipeline("union")
    a = p.source("a", MemorySource(first)).watermark("ts", max_delay=DELAY)
    b = p.source("b", MemorySource(second, batch_rows=7)).watermark("ts", max_delay=DELAY)
    return with_ledgers(p, {"out": (windowed(a.union(b)), totals(rows_of(first + second)))})


def fan_out_job(parallelism: int) -> Job:
    """Return a job with one stream and two sinks."""
    del parallelism
    tables = payments()
    p = Pipeline("fan-out")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    return with_ledgers(
        p,
        {
            "raw": (rows, rows_of(tables)),
            "windows": (windowed(rows), totals(rows_of(tables))),
        },
    )


def rebalance_job(parallelism: int) -> Job:
    """Return a job that rebalances one split over all workers."""
    del parallelism
    tables = payments(1, 100)
    p = Pipeline("rebalance")
    rows = p.source("in", MemorySource(tables)).rebalance()
    return with_ledgers(p, {"out": (rows, rows_of(tables))})


def broadcast_job(parallelism: int) -> Job:
    """Return a job that broadcasts every row."""
    tables = payments(2, 30)
    p = Pipeline("broadcast")
    rows = p.source("in", MemorySource(tables)).broadcast()
    job = with_ledgers(p, {"out": (rows, rows_of(tables) * parallelism)})
    job.rescales = False
    return job


def mesh_job(parallelism: int) -> Job:
    """Return a job with two exchanges in a row."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("mesh")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(burden.carry, name="same")
    return with_ledgers(p, {"out": (windowed(dealt), totals(rows_of(tables)))}, burden)


def diamond_job(parallelism: int) -> Job:
    """Return a job that divides a stream, slows one half down, and merges both."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("diamond")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    low = rows.filter(pc.field("value") < HALF, name="low").rebalance()
    high = rows.filter(pc.field("value") >= HALF, name="high")
    met = low.map(burden.carry, name="slow").union(high)
    return with_ledgers(p, {"out": (windowed(met), totals(rows_of(tables)))}, burden)


def broadcast_keyed_job(parallelism: int) -> Job:
    """Return a job that merges a small broadcast stream with a large rebalanced one."""
    small, large, burden = payments(1, 12, seed=3), payments(), Burden()
    p = Pipeline("broadcast-keyed")
    a = p.source("small", MemorySource(small, batch_rows=2)).watermark("ts", max_delay=DELAY)
    b = p.source("large", MemorySource(large)).watermark("ts", max_delay=DELAY)
    met = b.rebalance().union(a.broadcast()).map(burden.carry, name="slow")
    rows = rows_of(small) * parallelism + rows_of(large)
    job = with_ledgers(p, {"out": (windowed(met), totals(rows))}, burden)
    job.rescales = False
    return job


def two_windows_job(parallelism: int) -> Job:
    """Return a job with two keyed, stateful exchanges in a row."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("two-windows")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    again = (
        windowed(rows)
        .map(burden.carry, name="slow")
        .key_by("key")
        .window(windows.tumbling("20 seconds"), time="window_start")
        .aggregate("again", agg.sum("count", name="count"), agg.sum("total", name="total"))
    )
    expected = doubled_windows(totals(rows_of(tables)))
    return with_ledgers(p, {"out": (again.rebalance(), expected)}, burden)


def finished_source_job(parallelism: int) -> Job:
    """Return a job with a source that ends long before the other, paced one."""
    del parallelism
    short, long, burden = payments(1, 6, seed=4), payments(), Burden()
    p = Pipeline("finished-source")
    a = p.source("short", MemorySource(short)).watermark("ts", max_delay=DELAY)
    b = p.source("long", MemorySource(long), rows_per_second=600)
    b = b.watermark("ts", max_delay=DELAY)
    met = a.union(b).rebalance().map(burden.carry, name="slow")
    rows = rows_of([*short, *long])
    return with_ledgers(p, {"out": (windowed(met), totals(rows))}, burden)


def copies_job(parallelism: int) -> Job:
    """Return a job whose source delivers every row twice, in different splits."""
    del parallelism
    burden = Burden()
    numbers: dict[object, int] = {}
    rows: list[Row] = []
    for row in rows_of(payments()):
        number = numbers[row["key"]] = numbers.get(row["key"], -1) + 1
        rows.append({"key": row["key"], "boot": 1, "n": number, "value": row["value"]})
    table, late = pa.Table.from_pylist(rows), pa.Table.from_pylist(rows)
    p = Pipeline("copies")
    read = p.source("in", MemorySource([table, late.slice(40), late.slice(0, 60)], batch_rows=6))
    once = read.map(burden.carry, name="slow").deduplicate(
        producer="key", generation="boot", sequence="n", name="once"
    )
    return with_ledgers(p, {"out": (once.rebalance(), rows)}, burden)


def _round(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Some of the value is worked off, and the round is counted."""
    left = pc.call_function("subtract", [batch.column("value"), WORK])
    rounds = pc.call_function("add", [batch.column("rounds"), 1])
    columns = [batch.column("id"), batch.column("key"), left, rounds]
    return pa.record_batch(columns, schema=batch.schema)


def _settled(row: Row) -> Row:
    rounds = max(-(-row["value"] // WORK), 1)
    left = row["value"] - rounds * WORK
    return {"id": row["id"], "key": row["key"], "value": left, "rounds": rounds}


def loop_job(parallelism: int) -> Job:
    """Return a loop that reduces values to nothing, with an exchange inside and one back."""
    del parallelism
    tables, burden = payments(rows=20), Burden()
    fresh = [
        table.select(["id", "key", "value"]).append_column(
            "rounds", pa.array([0] * table.num_rows, pa.int64())
        )
        for table in tables
    ]

    def body(entering: Stream) -> tuple[Stream, Stream]:
        worked = entering.rebalance().map(_round, name="work").map(burden.carry, name="slow")
        again = worked.filter(pc.field("value") > 0, name="again")
        return again.rebalance(), worked.filter(pc.field("value") <= 0, name="settled")

    p = Pipeline("loop")
    rows = p.source("in", MemorySource(fresh)).rebalance().iterate(body, name="rounds")
    expected = [_settled(row) for row in rows_of(tables)]
    job = with_ledgers(p, {"out": (rows.rebalance(), expected)}, burden)
    job.rescales = False
    return job


LEFT = pa.schema({"left": pa.int64()})


async def _worked_off(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return what is left of the value, after a time that depends on the row."""
    await asyncio.sleep((rows.column("id")[0].as_py() * 7 % 10) / 20)
    left = pc.call_function("subtract", [rows.column("value"), WORK])
    return pa.record_batch([left], schema=LEFT)


def _with_left(batch: pa.RecordBatch) -> pa.RecordBatch:
    rounds = pc.call_function("add", [batch.column("rounds"), 1])
    columns = [batch.column("id"), batch.column("key"), batch.column("left"), rounds]
    return pa.record_batch(columns, names=["id", "key", "value", "rounds"])


def enrich_loop_job(parallelism: int) -> Job:
    """Return the same loop, in which a service is called for each row and round."""
    del parallelism
    tables, burden = payments(rows=20), Burden()
    fresh = [
        table.select(["id", "key", "value"]).append_column(
            "rounds", pa.array([0] * table.num_rows, pa.int64())
        )
        for table in tables
    ]

    def body(entering: Stream) -> tuple[Stream, Stream]:
        called = entering.rebalance().map(burden.carry, name="slow")
        called = called.enrich("work", _worked_off, schema=LEFT, concurrency=4, rows_per_call=2)
        worked = called.map(_with_left, name="round")
        again = worked.filter(pc.field("value") > 0, name="again")
        return again.rebalance(), worked.filter(pc.field("value") <= 0, name="settled")

    p = Pipeline("enrich-loop")
    rows = p.source("in", MemorySource(fresh)).rebalance().iterate(body, name="rounds")
    expected = [_settled(row) for row in rows_of(tables)]
    job = with_ledgers(p, {"out": (rows.rebalance(), expected)}, burden)
    job.rescales = False
    return job


BAD_EVERY = 5
"""One of this number of rows becomes a letter."""


def bad_rows_job(parallelism: int) -> Job:
    """Return a job with letters in a slow sink of their own, beside windows over good rows."""
    del parallelism
    tables, burden = payments(), Burden()
    source = MemorySource(tables, bad_every=BAD_EVERY, gap_every=7)
    p = Pipeline("bad-rows")
    rows = p.source("in", source, on_bad_row="letters", bad_share_max="100%")
    letters = rows.side("letters").rebalance().map(burden.carry, name="slow")
    good, bad = _good_and_bad(source)
    out = windowed(rows.watermark("ts", max_delay=DELAY))
    return with_ledgers(p, {"out": (out, totals(good)), "bad": (letters, bad)}, burden)


def gathered_job(parallelism: int) -> Job:
    """Return a job whose source's batches of a few rows, with letters between, are gathered."""
    del parallelism
    burden = Burden()
    source = MemorySource(payments(), bad_every=BAD_EVERY, gap_every=3, gathered=True)
    p = Pipeline("gathered")
    rows = p.source("in", source, on_bad_row="letters", bad_share_max="100%")
    letters = rows.side("letters").rebalance()
    good, bad = _good_and_bad(source)
    slow = rows.rebalance().map(burden.carry, name="slow")
    return with_ledgers(p, {"out": (slow.rebalance(), good), "bad": (letters, bad)}, burden)


def _good_and_bad(source: MemorySource) -> tuple[list[Row], list[Row]]:
    """Return the rows of the source, and its letters."""
    places = [(split, table.to_pylist()) for split, table in enumerate(source.splits)]
    good = [row for _, all_ in places for n, row in enumerate(all_) if not source.is_bad(n)]
    bad = [
        {
            "source": "in",
            "split": str(split),
            "offset": str(n),
            "value": str(row).encode(),
            "defect": "malformed",
            "reason": "bad on purpose",
        }
        for split, all_ in places
        for n, row in enumerate(all_)
        if source.is_bad(n)
    ]
    return good, bad


def growing_job(parallelism: int) -> Job:
    """Return a job whose source finds more splits while it runs, and another one of fixed splits.

    There is no event time: how late a row is depends on when its split was found.
    """
    del parallelism
    growing, fixed, burden = payments(9, 20), payments(2, 30, seed=2), Burden()
    p = Pipeline("growing")
    found = p.source("growing", GrowingSource(growing)).rebalance()
    rows = found.union(p.source("fixed", MemorySource(fixed)).rebalance())
    rows = rows.map(burden.carry, name="slow").rebalance()
    return with_ledgers(p, {"out": (rows, rows_of([*growing, *fixed]))}, burden)


def abreast_job(parallelism: int) -> Job:
    """Return a job of partitions whose event times are far apart, read side by side.

    A row counts as late only if it is late in its own split.
    """
    del parallelism
    tables = payments(4, 30)
    p = Pipeline("abreast")
    source = p.source("in", MemorySource(tables, abreast=True), idle_timeout="10 minutes")
    rows = source.watermark("ts", max_delay=DELAY)
    return with_ledgers(p, {"out": (windowed(rows), totals(rows_of(tables)))})


SCENARIOS: dict[str, BuildJob] = {
    "windows": windows_job,
    "stateless": stateless_job,
    "union": union_job,
    "fan-out": fan_out_job,
    "rebalance": rebalance_job,
    "broadcast": broadcast_job,
    "mesh": mesh_job,
    "diamond": diamond_job,
    "broadcast-keyed": broadcast_keyed_job,
    "two-windows": two_windows_job,
    "finished-source": finished_source_job,
    "copies": copies_job,
    "loop": loop_job,
    **EVENT_TIME_JOBS,
    **AGGREGATE_JOBS,
    "windows-behind-windows": windows_behind_windows_job,
    "bad-rows": bad_rows_job,
    "growing": growing_job,
    "abreast": abreast_job,
    **INPUT_JOBS,
    **JOIN_JOBS,
    **SESSION_JOBS,
    **PROCESS_JOBS,
    **PAIRING_JOBS,
    **UPDATING_JOBS,
    **WEIGHTED_JOBS,
    **KEPT_STATE_JOBS,
    **ENRICH_JOBS,
    **LOOKUP_JOBS,
    **LATE_JOBS,
    **LATE_JOIN_JOBS,
    **CONNECTED_JOBS,
    "enrich-loop": enrich_loop_job,
    **RETRACTED_JOBS,
    **RANKED_JOBS,
    **EQUAL_WINDOWS_JOBS,
    **EARLY_SESSION_JOBS,
    "gathered": gathered_job,
}
"""New ones go to the end: what a seed stands for depends on the order."""
