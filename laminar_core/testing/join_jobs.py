"""Jobs with joins: wrong if a row is kept too short, emitted twice, or matched with a late one."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pyarrow as pa

from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.testing.event_time_jobs import with_late_rows
from laminar_core.testing.jobs import (
    DELAY,
    BuildJob,
    Burden,
    Job,
    Row,
    normal,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource

_LEFT = ("id", "key", "value", "ts")
_RIGHT = ("refund", "shop", "at")
ON = {"key": "shop"}
LOW, HIGH = timedelta(seconds=-4), timedelta(seconds=9)
WITHIN = ("-4 seconds", "9 seconds")
_DISTANCE = timedelta(seconds=15)


def interval_join_job(parallelism: int) -> Job:
    """Return a job that joins a slow stream with a fast one, and windows behind it."""
    del parallelism
    p, left, right, burden = two_streams("interval-join")
    pairs = left.join(right, on=ON, within=WITHIN, name="join")
    expected = _paired(rows_of(payments()), rows_of(refunds()), how="inner")
    outputs = {"out": (pairs, expected), "windows": (windowed(pairs), totals(expected))}
    return with_ledgers(p, outputs, burden)


def full_join_job(parallelism: int) -> Job:
    """Return a job that also emits the rows of both sides without partner."""
    del parallelism
    p, left, right, burden = two_streams("full-join")
    rows = left.join(right, on=ON, within=WITHIN, how="full", name="join")
    expected = _paired(rows_of(payments()), rows_of(refunds()), how="full")
    return with_ledgers(p, {"out": (rows, expected)}, burden)


def as_of_join_job(parallelism: int) -> Job:
    """Return a job that gives each row the last of another stream, and windows behind it."""
    del parallelism
    p, left, right, burden = two_streams("as-of-join")
    rows = left.as_of(right, on=ON, max_distance="15 seconds", name="join")
    expected = _last_before(rows_of(payments()), rows_of(refunds()))
    outputs = {"out": (rows, expected), "windows": (windowed(rows), totals(expected))}
    return with_ledgers(p, outputs, burden)


def late_join_job(parallelism: int) -> Job:
    """Return a job that keeps the late rows of both sides; the others are joined."""
    del parallelism
    tables, burden = with_late_rows(), Burden()
    p = Pipeline("late-join")
    left = p.source("payments", MemorySource(tables, batch_rows=4)).watermark("ts", max_delay=DELAY)
    left = left.rebalance().map(burden.carry, name="slow")
    right = p.source("refunds", MemorySource(refunds(), batch_rows=6)).watermark("at")
    rows = left.join(right, on=ON, within=WITHIN, how="full", name="join")
    both = (rows_of(tables), "id"), (rows_of(refunds()), "refund")
    given = [of for of, _ in both]
    outputs = {"out": (rows, _paired(*given, how="full"))}
    sides = ("late_left", "late_right")
    for side, of in zip(sides, given, strict=True):
        outputs[side] = rows.side(side).rebalance(), of
    job = with_ledgers(p, outputs, burden)

    def judge(_: list[Row], rows_late: int) -> Iterator[str]:
        late = [job.ledgers[side].rows() for side in sides]
        if sum(map(len, late)) != rows_late:
            yield f"{rows_late} rows were counted as late, and {late} are kept"
        kept = [
            [row for row in of if row[name] not in {one[name] for one in gone}]
            for gone, (of, name) in zip(late, both, strict=True)
        ]
        if sum(map(len, kept)) + rows_late != sum(map(len, given)):
            yield f"late rows came twice: {late}"
        found, expected = normal(job.ledgers["out"].rows()), normal(_paired(*kept, how="full"))
        if found != expected:
            yield f"of the rows that were not late there are {found}, not {expected}"

    job.judge = judge
    return job


def two_streams(name: str) -> tuple[Pipeline, Stream, Stream, Burden]:
    """Return a slow stream of payments and one of refunds."""
    p, burden = Pipeline(name), Burden()
    payers = MemorySource(payments(), batch_rows=4)  # With two, seeds find no late row.
    left = p.source("payments", payers).watermark("ts", max_delay=DELAY)
    left = left.rebalance().map(burden.carry, name="slow")
    source = MemorySource(refunds(), batch_rows=6, gap_every=9)
    right = p.source("refunds", source).watermark("at", max_delay=DELAY)
    return p, left, right, burden


def refunds() -> list[pa.Table]:
    """Return payments of another seed, with other names and some times that are equal."""
    return [
        pa.table(
            {
                "refund": table.column("id"),
                "shop": table.column("key"),
                "at": table.column("ts").cast(pa.timestamp("s", tz="UTC"), safe=False),
            }
        )
        for table in payments(2, 50, seed=5)
    ]


def _paired(left: Sequence[Row], right: Sequence[Row], how: str) -> list[Row]:
    """Return all pairs within the bounds, one row after the other, and the rows without."""
    pairs = [(mine, theirs) for mine in left for theirs in right if _are_partners(mine, theirs)]
    rows = [joined(mine, theirs) for mine, theirs in pairs]
    if how == "full":
        met = {mine["id"] for mine, _ in pairs}, {theirs["refund"] for _, theirs in pairs}
        rows += [joined(mine, None) for mine in left if mine["id"] not in met[0]]
        rows += [joined(None, theirs) for theirs in right if theirs["refund"] not in met[1]]
    return rows


def _are_partners(mine: Row, theirs: Row) -> bool:
    return mine["key"] == theirs["shop"] and LOW <= theirs["at"] - mine["ts"] <= HIGH


def _last_before(left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """Return each row with the last one at or before it, by a search through all of them."""

    def partner_of(mine: Row) -> Row | None:
        past = [one for one in right if one["shop"] == mine["key"] and one["at"] <= mine["ts"]]
        last = max(past, key=lambda one: (one["at"], one["refund"]), default=None)
        is_near = last is not None and mine["ts"] - last["at"] <= _DISTANCE
        return last if is_near else None

    return [joined(mine, partner_of(mine)) for mine in left]


def joined(mine: Row | None, theirs: Row | None) -> Row:
    """Return the row of a payment and a refund; either can be missing."""
    row: Row = dict.fromkeys((*_LEFT, *_RIGHT))
    return row | (mine or {}) | (theirs or {})


JOIN_JOBS: dict[str, BuildJob] = {
    "interval-join": interval_join_job,
    "full-join": full_join_job,
    "as-of-join": as_of_join_job,
}
LATE_JOIN_JOBS: dict[str, BuildJob] = {"late-join": late_join_job}
