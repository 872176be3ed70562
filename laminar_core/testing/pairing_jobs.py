"""Jobs with joins by windows, by first partners, and by the row after: bounded, each row once.

A left row of a semi or anti join, and of a forward as-of join, leaves once; a row of a window join
leaves with its window. Each job is wrong if a mark is lost, or counts twice.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import (
    DELAY,
    SECOND_US,
    BuildJob,
    Burden,
    Job,
    Row,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.join_jobs import HIGH, LOW, ON, WITHIN, joined, refunds, two_streams
from laminar_core.testing.memory_source import MemorySource

_DISTANCE = timedelta(seconds=8)
_PACE = 1_000.0
"""Rows per second."""
_SIZE_US, _SLIDE_US = 8 * SECOND_US, 4 * SECOND_US


def window_join_job(parallelism: int) -> Job:
    """Return a job that pairs rows of one window, with those without partner on both sides."""
    del parallelism
    p, left, right, burden = two_streams("window-join")
    window = windows.tumbling("8 seconds")
    rows = left.join(right, on=ON, window=window, how="full", name="join")
    expected = _by_window(_SIZE_US, _full)
    return with_ledgers(p, {"out": (rows.map(_labelled, name="labelled"), expected)}, burden)


def sliding_join_job(parallelism: int) -> Job:
    """Return a job that pairs rows in each of two windows, and windows behind it."""
    del parallelism
    p, left, right, burden = two_streams("sliding-join")
    window = windows.sliding("8 seconds", "4 seconds")
    rows = left.join(right, on=ON, window=window, how="semi", name="join")
    expected = _by_window(_SLIDE_US, _semi)
    outputs = {
        "out": (rows.map(_labelled, name="labelled"), expected),
        "windows": (windowed(rows), totals(expected)),
    }
    return with_ledgers(p, outputs, burden)


def semi_join_job(parallelism: int) -> Job:
    """Return a job that lets a row pass with its first partner, and windows behind it."""
    return _left_only_job("semi-join", is_met=True, parallelism=parallelism)


def anti_join_job(parallelism: int) -> Job:
    """Return a job that lets rows without partner pass, and windows behind it."""
    return _left_only_job("anti-join", is_met=False, parallelism=parallelism)


def _left_only_job(name: str, *, is_met: bool, parallelism: int) -> Job:
    del parallelism
    p, left, right, burden = two_streams(name)
    rows = left.join(right, on=ON, within=WITHIN, how="semi" if is_met else "anti", name="join")
    partners = rows_of(refunds())

    def has_met(mine: Row) -> bool:
        return any(
            mine["key"] == one["shop"] and LOW <= one["at"] - mine["ts"] <= HIGH for one in partners
        )

    expected = [mine for mine in rows_of(payments()) if has_met(mine) == is_met]
    outputs = {"out": (rows, expected), "windows": (windowed(rows), totals(expected))}
    return with_ledgers(p, outputs, burden)


def forward_join_job(parallelism: int) -> Job:
    """Return a job that gives each row the first of another stream after it, and windows behind."""
    del parallelism
    p, left, right, burden = two_streams("forward-join")
    rows = left.as_of(right, on=ON, direction="forward", max_distance="8 seconds", name="join")
    partners = rows_of(refunds())

    def partner_of(mine: Row) -> Row | None:
        later = [one for one in partners if one["shop"] == mine["key"] and one["at"] >= mine["ts"]]
        first = min(later, key=lambda one: (one["at"], -one["refund"]), default=None)
        return first if first is not None and first["at"] - mine["ts"] <= _DISTANCE else None

    expected = [joined(mine, partner_of(mine)) for mine in rows_of(payments())]
    outputs = {"out": (rows, expected), "windows": (windowed(rows), totals(expected))}
    return with_ledgers(p, outputs, burden)


def expiring_join_job(parallelism: int) -> Job:
    """Return a job in which each left row says until when it has partners."""
    del parallelism
    p, left, right, burden = two_streams("expiring-join")
    open_ = left.map(_opened, name="opened")
    rows = open_.join(right, on=ON, within=("0 seconds", "until"), how="left", name="join")
    expected: list[Row] = []
    for mine in rows_of(payments()):
        until = mine["ts"] + timedelta(seconds=mine["value"] // 5)
        met = [
            theirs
            for theirs in rows_of(refunds())
            if theirs["shop"] == mine["key"] and mine["ts"] <= theirs["at"] <= until
        ]
        expected += [{**joined(mine, theirs), "until": until} for theirs in met or [None]]
    outputs = {"out": (rows, expected), "windows": (windowed(rows), totals(expected))}
    return with_ledgers(p, outputs, burden)


def equal_windows_job(parallelism: int) -> Job:
    """Return a job that pairs results of equal windows of both streams, and windows behind them.

    Rows come slowly, so that windows end while the job is cut; and pairs are slow, so that results
    wait in front of the join.
    """
    del parallelism
    p, burden, window = Pipeline("equal-windows"), Burden(), windows.tumbling("10 seconds")
    left = p.source("payments", MemorySource(payments()), rows_per_second=_PACE)
    left = left.watermark("ts", max_delay=DELAY)
    right = p.source("refunds", MemorySource(refunds(), batch_rows=6), rows_per_second=_PACE)
    right = right.watermark("at", max_delay=DELAY)
    paid = windowed(left, "paid")
    returned = right.key_by("shop").window(window).aggregate("returned", agg.count(name="refunds"))
    both = paid.join(returned, on=ON, equal_windows=True, how="full", name="join")
    named = both.map(burden.carry, name="slow-pairs").map(_named, name="named")
    behind = (
        named.key_by("who")
        .window(windows.tumbling("20 seconds"), time="window_start")
        .aggregate("behind", agg.sum("count", name="count"), agg.sum("refunds", name="total"))
    )
    found: dict[tuple[str, int], Row] = {}
    sides = ((rows_of(payments()), "key", "ts"), (rows_of(refunds()), "shop", "at"))
    for rows, key, time in sides:
        for row in rows:
            start = _start_us(round(row[time].timestamp() * SECOND_US), 10)
            pair = found.setdefault((row[key], start), _no_results(row[key], start))
            pair[key] = row[key]
            if key == "key":
                pair["count"] = (pair["count"] or 0) + 1
                pair["total"] = (pair["total"] or 0) + row["value"]
            else:
                pair["refunds"] = (pair["refunds"] or 0) + 1
    longer: dict[tuple[str, int], Row] = {}
    for row in found.values():
        start = _start_us(row["starts"], 20)
        none = {"who": row["who"], "starts": start, "count": None, "total": None}
        total = longer.setdefault((row["who"], start), none)
        for name, value in (("count", row["count"]), ("total", row["refunds"])):
            if value is not None:
                total[name] = (total[name] or 0) + value
    outputs = {
        "out": (named.map(_started, name="started"), list(found.values())),
        "windows": (behind.map(_started, name="behind-started"), list(longer.values())),
    }
    return with_ledgers(p, outputs, burden)


def _no_results(who: str, start: int) -> Row:
    row: Row = dict.fromkeys(("key", "count", "total", "shop", "refunds"))
    return {**row, "who": who, "starts": start}


def _start_us(time_us: int, seconds: int) -> int:
    return time_us // (seconds * SECOND_US) * seconds * SECOND_US


def _named(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Either side has the name of the key."""
    either = pc.call_function("coalesce", [batch.column("key"), batch.column("shop")])
    return batch.append_column("who", either)


def _started(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The start of the window becomes microseconds of another name, which the ledger does not know.

    It leaves out columns of windows that it knows.
    """
    kept = [name for name in batch.schema.names if name not in ("window_start", "window_end")]
    starts_us = batch.column("window_start").cast(pa.int64())
    return batch.select(kept).append_column("starts", starts_us)


def _opened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each row is open for a fifth of its value, in seconds."""
    seconds = pc.call_function("divide", [batch.column("value"), 5])
    length = pc.call_function("multiply", [seconds, SECOND_US]).cast(pa.duration("us"))
    return batch.append_column("until", pc.call_function("add", [batch.column("ts"), length]))


def _labelled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The end of the window gets another name, because the ledger knows windows by their start."""
    kept = [name for name in batch.schema.names if name != "window_start"]
    names = ["ends" if name == "window_end" else name for name in kept]
    return batch.select(kept).rename_columns(names)


def _by_window(
    every_us: int, meet: Callable[[Sequence[Row], Sequence[Row]], list[Row]]
) -> list[Row]:
    """Return the result of each key and each window of ``_SIZE_US``, one after the other."""
    found: dict[tuple[str, int], tuple[list[Row], list[Row]]] = {}
    sides = ((rows_of(payments()), "key", "ts"), (rows_of(refunds()), "shop", "at"))
    for number, (rows, key, time) in enumerate(sides):
        for row in rows:
            time_us = round(row[time].timestamp() * SECOND_US)
            last_us = time_us // every_us * every_us
            for start_us in range(last_us - _SIZE_US + every_us, last_us + 1, every_us):
                found.setdefault((row[key], start_us), ([], []))[number].append(row)
    expected: list[Row] = []
    for (_, start_us), (left, right) in found.items():
        ends = pa.scalar(start_us + _SIZE_US, pa.timestamp("us", "UTC")).as_py()
        expected += [{**row, "ends": ends} for row in meet(left, right)]
    return expected


def _full(left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    if not left or not right:
        return [joined(one, None) for one in left] + [joined(None, one) for one in right]
    return [joined(mine, theirs) for mine in left for theirs in right]


def _semi(left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    return list(left) if right else []


PAIRING_JOBS: dict[str, BuildJob] = {
    "window-join": window_join_job,
    "sliding-join": sliding_join_job,
    "semi-join": semi_join_job,
    "anti-join": anti_join_job,
    "forward-join": forward_join_job,
    "expiring-join": expiring_join_job,
}
EQUAL_WINDOWS_JOBS: dict[str, BuildJob] = {"equal-windows": equal_windows_job}
