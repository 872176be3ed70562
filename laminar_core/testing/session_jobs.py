"""Jobs with session windows: wrong if a session is cut, joined to another, or emitted twice."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from laminar_core.operators import agg, windows
from laminar_core.operators.weights import WEIGHT
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.testing.event_time_jobs import LATE_EVERY, with_late_rows
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
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource

GAP_US = 5 * SECOND_US


def sessions_job(parallelism: int, pace: float | None = None) -> Job:
    """Return a job with sessions behind an exchange; ``pace`` is in rows per second."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("sessions")
    source = p.source("in", MemorySource(tables, abreast=True), rows_per_second=pace)
    rows = source.watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(burden.carry, name="slow")
    job = with_ledgers(p, {"out": (_sessions(dealt), sessions_of(rows_of(tables)))}, burden)
    job.judge = exactly(sessions_of(rows_of(tables)))
    return job


def late_sessions_job(parallelism: int) -> Job:
    """Return a job with rows that arrive after their session may have been emitted."""
    del parallelism
    tables, burden = with_late_rows(), Burden()
    p = Pipeline("late-sessions")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(burden.carry, name="slow")
    job = with_ledgers(p, {"out": (_sessions(dealt), sessions_of(rows_of(tables)))}, burden)
    in_time = [row for row in rows_of(tables) if row["id"] % LATE_EVERY]
    job.judge = sessions_between(in_time, rows_of(tables))
    return job


def early_sessions_job(parallelism: int, pace: float | None = None) -> Job:
    """Return a job whose sessions are emitted while they grow, and taken back.

    ``pace`` is in rows per second. Which results are emitted in between depends on the order of
    events; added up, the final ones are left.
    """
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("early-sessions")
    source = p.source("in", MemorySource(tables, abreast=True), rows_per_second=pace)
    rows = source.watermark("ts", max_delay=DELAY)
    dealt = rows.rebalance().map(burden.carry, name="slow")
    found = _sessions(dealt, early="1 second")
    job = with_ledgers(p, {"out": (found, sessions_of(rows_of(tables)))}, burden)
    job.judge = added_up(exactly(sessions_of(rows_of(tables))))
    return job


def windows_behind_sessions_job(parallelism: int) -> Job:
    """Return a job of windows over the ends of sessions, which are older than the watermark."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("windows-behind-sessions")
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    ended = (
        _sessions(rows)
        .map(burden.carry, name="slow")
        .key_by("key")
        .window(windows.tumbling("10 seconds"), time="window_end")
        .aggregate("ended", agg.sum("count", name="count"), agg.sum("total", name="total"))
    )
    found: dict[tuple[str, int], Row] = {}
    for row in sessions_of(rows_of(tables)):
        start = row["end"] - row["end"] % WINDOW_US
        total = found.setdefault(
            (row["key"], start), {"key": row["key"], "start": start, "count": 0, "total": 0}
        )
        total["count"] += row["count"]
        total["total"] += row["total"]
    return with_ledgers(p, {"out": (ended, list(found.values()))}, burden)


def _sessions(rows: Stream, early: str | None = None) -> Stream:
    return (
        rows.key_by("key")
        .session("5 seconds", time="ts")
        .aggregate("sessions", agg.count(), agg.sum("value", name="total"), early=early)
    )


def sessions_of(rows: Sequence[Row]) -> list[Row]:
    """Return the sessions of all rows, found one sorted row after the other."""
    found: list[Row] = []
    newest: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row["ts"]):
        time_us, session = round(row["ts"].timestamp() * SECOND_US), newest.get(row["key"])
        if session is None or time_us > session["end"]:
            session = {"key": row["key"], "start": time_us, "end": 0, "count": 0, "total": 0}
            newest[row["key"]] = session
            found.append(session)
        session["end"] = time_us + GAP_US
        session["count"] += 1
        session["total"] += row["value"]
    return found


def exactly(sessions: Sequence[Row]) -> Judge:
    """Return a judge that wants these sessions, each once."""
    expected = _sorted(sessions)

    def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
        found = _sorted(map(plain_session, rows))
        if found != expected or rows_late:
            yield f"{rows_late} rows are late, and of sessions there are {found}, not {expected}"

    return judge


def added_up(judge: Judge) -> Judge:
    """Return a judge of the rows that are there once the weights of equal ones are added up."""

    def of_what_is_there(rows: list[Row], rows_late: int) -> Iterator[str]:
        weights: Counter[tuple[tuple[str, Any], ...]] = Counter()
        for row in rows:
            weights[tuple((name, row[name]) for name in row if name != WEIGHT)] += row[WEIGHT]
        if too_few := [row for row, weight in weights.items() if weight < 0]:
            yield f"more of these rows went than came: {too_few}"
        yield from judge([dict(row) for row in weights.elements()], rows_late)

    return of_what_is_there


def sessions_between(least: Sequence[Row], most: Sequence[Row]) -> Judge:
    """Return a judge for sessions where the order of events decides whether a late row counts.

    Sessions of a key never touch. All rows of ``least`` are in one; each row of ``most`` is, or it
    is counted as late.
    """

    def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
        sessions = [plain_session(row) for row in rows]
        for key in {session["key"] for session in sessions}:
            of_key = sorted((s["start"], s["end"]) for s in sessions if s["key"] == key)
            for (_, end), (start, _) in pairwise(of_key):
                if start <= end:
                    yield f"two sessions of {key} touch: {of_key}"
        for wanted in sessions_of(least):
            if not any(_covers(session, wanted) for session in sessions):
                yield f"no session has the rows of {wanted}, which were in time"
        if (seen := sum(row["count"] for row in sessions) + rows_late) != len(most):
            yield f"{len(most)} rows came and {seen} are counted, {rows_late} of them as late"

    return judge


def _covers(session: Row, wanted: Row) -> bool:
    return (
        session["key"] == wanted["key"]
        and session["start"] <= wanted["start"]
        and wanted["end"] <= session["end"]
        and wanted["count"] <= session["count"]
    )


def plain_session(row: Row) -> Row:
    """Return a session in the form of ``sessions_of``."""
    start, end = (round(row[f"window_{side}"].timestamp() * SECOND_US) for side in ("start", "end"))
    return {
        "key": row["key"],
        "start": start,
        "end": end,
        "count": row["count"],
        "total": row["total"],
    }


def _sorted(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


SESSION_JOBS: dict[str, BuildJob] = {
    "sessions": sessions_job,
    "late-sessions": late_sessions_job,
    "windows-behind-sessions": windows_behind_sessions_job,
}

EARLY_SESSION_JOBS: dict[str, BuildJob] = {"early-sessions": early_sessions_job}
