"""Jobs that keep late rows, and jobs with early results.

Which rows are late depends on the order of events. But each row is in a result or in the side
output, and once; so the side output tells what the results have to be. ``pace`` is in rows per
second, None: unlimited.
"""

from collections.abc import Callable, Iterator, Sequence

from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.testing.event_time_jobs import with_late_rows
from laminar_core.testing.jobs import (
    DELAY,
    BuildJob,
    Burden,
    Job,
    Judge,
    Row,
    normal,
    payments,
    rows_of,
    totals,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.session_jobs import plain_session, sessions_of

Results = Callable[[Sequence[Row]], list[Row]]
"""Computes what a job emits in the end, of the rows that are not late."""


def late_windows_job(parallelism: int, pace: float | None = None) -> Job:
    """Return a job that keeps the late rows of windows; most rows are combined on their way."""
    del parallelism
    tables, burden = with_late_rows(), Burden()
    p = Pipeline("late-windows")
    rows = p.source("in", MemorySource(tables), rows_per_second=pace)
    rows = rows.watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(burden.carry, name="slow")
    found = _windows(dealt)
    return _keeping_late(p, found, rows_of(tables), burden, totals)


def idle_late_windows_job(parallelism: int, pace: float | None = None) -> Job:
    """Return a job that keeps late rows behind sources that become idle."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("idle-late-windows")
    source = MemorySource(tables, gap_every=4, gap_polls=40)
    rows = p.source("in", source, rows_per_second=pace, idle_timeout="5 milliseconds")
    met = rows.watermark("ts", max_delay=DELAY).map(burden.carry, name="slow")
    return _keeping_late(p, _windows(met), rows_of(tables), burden, totals)


def kept_late_sessions_job(parallelism: int, pace: float | None = None) -> Job:
    """Return a job that keeps the late rows of sessions; no two sessions of a key touch."""
    del parallelism
    tables, burden = with_late_rows(), Burden()
    p = Pipeline("kept-late-sessions")
    rows = p.source("in", MemorySource(tables), rows_per_second=pace)
    rows = rows.watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(burden.carry, name="slow")
    found = (
        dealt.key_by("key")
        .session("5 seconds", time="ts")
        .aggregate("sessions", agg.count(), agg.sum("value", name="total"), late_rows=True)
    )
    return _keeping_late(p, found, rows_of(tables), burden, sessions_of)


def early_windows_job(parallelism: int, pace: float | None = None) -> Job:
    """Return a job with early results and late rows; of each window the last result counts."""
    del parallelism
    tables, burden = with_late_rows(), Burden()
    p = Pipeline("early-windows")
    rows = p.source("in", MemorySource(tables), rows_per_second=pace)
    rows = rows.watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(burden.carry, name="slow")
    found = _windows(dealt, early="2 seconds", allowed_lateness="5 seconds")
    return _keeping_late(p, found, rows_of(tables), burden, totals, early=True)


def _windows(rows: Stream, **options: str) -> Stream:
    return (
        rows.key_by("key")
        .window(windows.tumbling("10 seconds"), time="ts")
        .aggregate("totals", agg.count(), agg.sum("value", name="total"), late_rows=True, **options)
    )


def _keeping_late(
    pipeline: Pipeline,
    found: Stream,
    rows: Sequence[Row],
    burden: Burden,
    results: Results,
    *,
    early: bool = False,
) -> Job:
    late = found.side("late").rebalance()
    outputs = {"out": (found, results(rows)), "late": (late, list(rows))}  # If none, or all, are.
    job = with_ledgers(pipeline, outputs, burden)
    job.judge = whole(job, rows, results, early=early)
    return job


def whole(job: Job, rows: Sequence[Row], results: Results, *, early: bool = False) -> Judge:
    """Return a judge that wants each row once: in a result of ``out``, or in ``late``.

    With ``early`` the last result of each key and window counts. The judge looks at both outputs,
    whichever it is asked about.
    """
    by_id = {row["id"]: row for row in rows}

    def judge(_: list[Row], rows_late: int) -> Iterator[str]:
        late = job.ledgers["late"].rows()
        taken = {row["id"] for row in late}
        if normal(late) != normal([by_id[row_id] for row_id in taken]):
            yield f"late rows came twice, or not as they were: {late}"
        if len(late) != rows_late:
            yield f"{len(late)} rows are in the late output, and {rows_late} were counted as late"
        expected = results([row for row_id, row in by_id.items() if row_id not in taken])
        found = job.ledgers["out"].rows()
        if early:
            yield from _shrinking(found)
            found = list(last_results(found).values())
        if results is sessions_of:
            found = [plain_session(row) for row in found]
        if normal(found) != normal(expected):
            yield f"of the rows that were not late there are {found}, not {expected}"

    return judge


def _window(row: Row) -> tuple[str, object, object]:
    return row["key"], row["window_start"], row["window_end"]


def last_results(rows: Sequence[Row]) -> dict[tuple[str, object, object], Row]:
    """Return the last row of each key and window."""
    return {_window(row): row for row in rows}


def _shrinking(rows: Sequence[Row]) -> Iterator[str]:
    """Yield results with fewer rows than an earlier one of their window."""
    counts: dict[tuple[str, object, object], int] = {}
    for row in rows:
        before = counts.get(_window(row), 0)
        if row["count"] < before:
            yield f"{row} comes after a result with {before} rows"
        counts[_window(row)] = row["count"]


LATE_JOBS: dict[str, BuildJob] = {
    "late-windows": late_windows_job,
    "idle-late-windows": idle_late_windows_job,
    "kept-late-sessions": kept_late_sessions_job,
    "early-windows": early_windows_job,
}
