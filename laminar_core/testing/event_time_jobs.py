"""Jobs that fail when event time or order is wrong.

Late rows, overlapping windows, idle sources.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache

import pyarrow as pa

from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.dedup import Retention
from laminar_core.testing.jobs import (
    DELAY,
    SECOND_US,
    WINDOW_US,
    BuildJob,
    Burden,
    Job,
    Judge,
    Row,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource

LATE_EVERY, LATE_BY = 7, timedelta(seconds=45)


def sliding_job(parallelism: int) -> Job:
    """Return a job with overlapping windows: rows of a fired window are needed by the next."""
    del parallelism
    tables, burden = payments(rows=30), Burden()
    p = Pipeline("sliding")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    fired = (
        rows.rebalance()
        .map(burden.carry, name="slow")
        .key_by("key")
        .window(windows.sliding("20 seconds", "10 seconds"), time="ts")
        .aggregate("sliding", agg.count(), agg.sum("value", name="total"))
    )
    later = [{**row, "ts": row["ts"] - timedelta(seconds=10)} for row in rows_of(tables)]
    expected = _added(totals(rows_of(tables)), totals(later))
    return with_ledgers(p, {"out": (fired, expected)}, burden)


def dealt_time_job(parallelism: int) -> Job:
    """Return a job with watermarks made after an exchange, from the rows of each worker."""
    del parallelism
    tables, burden = payments(1, 100), Burden()
    p = Pipeline("dealt-time")
    dealt = p.source("in", MemorySource(tables)).rebalance().map(burden.carry, name="slow")
    timed = dealt.watermark("ts", max_delay=DELAY)
    return with_ledgers(p, {"out": (windowed(timed), totals(rows_of(tables)))}, burden)


def late_job(parallelism: int) -> Job:
    """Return a job with rows that arrive after their window has fired."""
    del parallelism
    tables, burden = with_late_rows(), Burden()
    p = Pipeline("late")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(burden.carry, name="slow")
    job = with_ledgers(p, {"out": (windowed(dealt), totals(rows_of(tables)))}, burden)
    in_time = [row for row in rows_of(tables) if row["id"] % LATE_EVERY]
    job.judge = counts_between(in_time, rows_of(tables))
    return job


def idle_job(parallelism: int) -> Job:
    """Return a job with sources that become idle; their next rows may be late."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("idle")
    source = MemorySource(tables, gap_every=4, gap_polls=40)
    rows = p.source("in", source, idle_timeout="5 milliseconds").watermark("ts", max_delay=DELAY)
    met = rows.map(burden.carry, name="slow")
    job = with_ledgers(p, {"out": (windowed(met), totals(rows_of(tables)))}, burden)
    job.judge = counts_between([], rows_of(tables))
    return job


def copied_job(parallelism: int) -> Job:
    """Return a job that broadcasts every row and deduplicates, for any number of workers."""
    del parallelism
    numbers: Counter[str] = Counter()
    rows: list[Row] = []
    for row in rows_of(payments(2, 30)):
        rows.append({"key": row["key"], "boot": 1, "n": numbers[row["key"]]})
        numbers[row["key"]] += 1
    burden, source = Burden(), MemorySource([pa.Table.from_pylist(rows)])
    p = Pipeline("copied")
    copies = p.source("in", source).broadcast().map(burden.carry, name="slow")
    once = copies.deduplicate(producer="key", generation="boot", sequence="n", name="once")
    return with_ledgers(p, {"out": (once, rows)}, burden)


def ordered_job(parallelism: int) -> Job:
    """Return a job that fails unless rows of one key keep the order of their split."""
    del parallelism
    splits: list[list[Row]] = [
        [{"key": f"s{split}-{n % 3}", "boot": 1, "n": n // 3} for n in range(40)]
        for split in range(3)
    ]
    burden, source = Burden(), MemorySource([pa.Table.from_pylist(rows) for rows in splits])
    p = Pipeline("ordered")
    in_order = p.source("in", source).deduplicate(
        producer="key",
        generation="boot",
        sequence="n",
        retention=Retention(gaps_max=0),
        name="once",
    )
    expected = [row for rows in splits for row in rows]
    return with_ledgers(p, {"out": (in_order.map(burden.carry, name="slow"), expected)}, burden)


def windows_behind_windows_job(parallelism: int) -> Job:
    """Return a job of windows behind windows, whose inputs are older than the watermark."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("windows-behind-windows")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    sums = (agg.sum("count", name="count"), agg.sum("total", name="total"))
    last = (
        rows.key_by("key")
        .window(windows.tumbling("10 seconds"))
        .aggregate(
            "first", agg.count(), agg.sum("value", name="total"), allowed_lateness="25 seconds"
        )
        .map(burden.carry, name="slow")
        .key_by("key")
        .window(windows.sliding("20 seconds", "10 seconds"), time="window_start")
        .aggregate("second", *sums)
        .key_by("key")
        .window(windows.tumbling("40 seconds"), time="window_end")
        .aggregate("third", *sums)
    )
    second_rows = _rewindowed(totals(rows_of(tables)), 2 * WINDOW_US, WINDOW_US)
    ends = [{**row, "start": row["start"] + 2 * WINDOW_US} for row in second_rows]
    expected = _rewindowed(ends, 4 * WINDOW_US, 4 * WINDOW_US)
    return with_ledgers(p, {"out": (last, expected)}, burden)


@cache
def with_late_rows() -> list[pa.Table]:
    """Return payments; every seventh is far behind its predecessors where possible."""
    tables: list[pa.Table] = []
    for table in payments():
        rows = table.to_pylist()
        for row in rows:
            if row["id"] % LATE_EVERY == 0:
                row["ts"] -= LATE_BY
        tables.append(pa.Table.from_pylist(rows, schema=table.schema))
    return tables


def counts_between(least: Sequence[Row], most: Sequence[Row]) -> Judge:
    """Return a judge for windows where the order of events decides whether a late row counts.

    Each window is emitted once, with all rows of ``least``; each row of ``most`` is in one, or
    counted as late.
    """
    at_least, at_most = _counts(totals(least)), _counts(totals(most))

    def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
        emitted = Counter(_window(row) for row in rows)
        if twice := sorted(window for window, times in emitted.items() if times > 1):
            yield f"emitted more than once: {twice}"
        found = {_window(row): row["count"] for row in rows}
        for window, count in at_least.items():
            if found.get(window, 0) < count:
                yield f"{window} lost {count - found.get(window, 0)} rows that were in time"
        for window, count in found.items():
            if count > at_most[window]:
                yield f"{window} has {count - at_most[window]} rows too many"
        if (seen := sum(found.values()) + rows_late) != len(most):
            yield f"{len(most)} rows came and {seen} are counted, {rows_late} of them as late"

    return judge


def _window(row: Row) -> tuple[str, int]:
    return row["key"], int(row["window_start"].timestamp() * SECOND_US)


def _counts(rows: Sequence[Row]) -> Counter[tuple[str, int]]:
    return Counter({(row["key"], row["start"]): row["count"] for row in rows})


def _rewindowed(rows: Sequence[Row], size_us: int, slide_us: int) -> list[Row]:
    """Sum results in windows over their ``start``, one row after the other."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        newest = row["start"] - row["start"] % slide_us
        for start in range(newest, newest - size_us, -slide_us):
            total = found.setdefault(
                (row["key"], start), {"key": row["key"], "start": start, "count": 0, "total": 0}
            )
            total["count"] += row["count"]
            total["total"] += row["total"]
    return list(found.values())


def _added(*parts: Sequence[Row]) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}
    for row in (row for part in parts for row in part):
        total = found.setdefault((row["key"], row["start"]), {**row, "count": 0, "total": 0})
        total["count"] += row["count"]
        total["total"] += row["total"]
    return list(found.values())


EVENT_TIME_JOBS: dict[str, BuildJob] = {
    "sliding": sliding_job,
    "dealt-time": dealt_time_job,
    "late": late_job,
    "idle": idle_job,
    "copied": copied_job,
    "ordered": ordered_job,
}
