"""Jobs that update their results: wrong if a row is not taken back, or taken back twice."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from laminar_core.operators import agg, windows
from laminar_core.operators.weights import WEIGHT
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import (
    DELAY,
    SECOND_US,
    BuildJob,
    Burden,
    Job,
    Judge,
    Row,
    payments,
    rows_of,
    totals,
    with_ledgers,
)
from laminar_core.testing.join_jobs import ON, joined, refunds, two_streams
from laminar_core.testing.memory_source import MemorySource

KEPT = 3
_SHOPS = ("k0", "k1", "k2")


def first_rows_job(parallelism: int) -> Job:
    """Return a job of distinct rows, and of the first payment of each key and value in time."""
    del parallelism
    p, tables, burden = Pipeline("first-rows"), payments(), Burden()
    source = MemorySource(tables, batch_rows=6, gap_every=9)
    rows = p.source("in", source).watermark("ts", max_delay=DELAY)
    rows = rows.rebalance().map(burden.carry, name="slow")
    kinds = rows.select("key", "value").distinct(name="distinct")
    firsts = rows.key_by("key", "value").first("first")
    earliest: dict[tuple[str, int], Row] = {}
    for row in sorted(rows_of(tables), key=lambda row: (row["ts"], row["id"]), reverse=True):
        earliest[row["key"], row["value"]] = row
    pairs: list[Row] = [{"key": key, "value": value} for key, value in earliest]
    return with_ledgers(
        p, {"kinds": (kinds, pairs), "firsts": (firsts, list(earliest.values()))}, burden
    )


def best_rows_job(parallelism: int) -> Job:
    """Return a job of the largest payments of each key, with their places, and of the last one."""
    del parallelism
    p, tables, burden = Pipeline("best-rows"), payments(), Burden()
    rows = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    rows = rows.rebalance().map(burden.carry, name="slow").key_by("key")
    best = rows.top("best-rows", KEPT, by=("value desc", "id"), rank="place")
    last = rows.last("last-rows")
    places = [
        {**row, "place": place}
        for of_key in _by_key(rows_of(tables)).values()
        for place, row in enumerate(_best(of_key), 1)
    ]
    newest = [
        max(of_key, key=lambda row: row["ts"]) for of_key in _by_key(rows_of(tables)).values()
    ]
    job = with_ledgers(p, {"best": (best, places), "last": (last, newest)}, burden)
    job.judge = _either(weights_add_up_to(places), newest_are(newest))
    return job


def updating_join_job(parallelism: int) -> Job:
    """Return a job that joins the largest payments of each key, which change, with refunds."""
    del parallelism
    p, left, right, burden = two_streams("updating-join")
    best = left.key_by("key").top("best", KEPT, by=("value desc", "id"))
    some = right.filter(pc.field("shop").isin(_SHOPS), name="some")
    rows = best.join(some, on=ON, unbounded=True, how="full", name="join")
    payments_of = _by_key(rows_of(payments()))
    kept = [row for of_key in payments_of.values() for row in _best(of_key)]
    return _judged(p, rows, _paired(kept, _some_refunds()), burden)


def join_with_ttl_job(parallelism: int) -> Job:
    """Return a job with a join whose rows would expire, had they been kept for longer."""
    del parallelism
    p, left, right, burden = two_streams("join-with-ttl")
    some = right.filter(pc.field("shop").isin(_SHOPS), name="some")
    rows = left.join(some, on=ON, ttl="1 hour", how="left", name="join")
    return _judged(p, rows, _paired(rows_of(payments()), _some_refunds()), burden)


def retracted_rows_job(parallelism: int) -> Job:
    """Return a job that counts the values of the last payments of keys, which replace each other.

    What takes them back is slow, so they are in flight when the job is cut.
    """
    del parallelism
    p, burden = Pipeline("retracted-rows"), Burden()
    rows = p.source("in", MemorySource(payments(3, 20))).watermark("ts", max_delay=DELAY)
    last = rows.key_by("key").last("last-rows").to_retract(name="taken-back")
    counts = (
        last.map(burden.carry, name="slow")
        .key_by("value")
        .aggregate("of-values", agg.count(name="keys"), agg.max("id", name="last_id"))
    )
    found: dict[int, list[Row]] = {}
    for of_key in _by_key(rows_of(payments(3, 20))).values():
        newest = max(of_key, key=lambda row: row["ts"])
        found.setdefault(newest["value"], []).append(newest)
    expected: list[Row] = [
        {"value": value, "keys": len(those), "last_id": max(row["id"] for row in those)}
        for value, those in found.items()
    ]
    return _judged(p, counts, expected, burden)


def retracted_windows_job(parallelism: int) -> Job:
    """Return a job that adds up early and corrected results of windows over all keys."""
    del parallelism
    p, burden = Pipeline("retracted-windows"), Burden()
    rows = p.source("in", MemorySource(payments(3, 20))).watermark("ts", max_delay=DELAY)
    of_keys = (
        rows.key_by("key")
        .window(windows.tumbling("10 seconds"), time="ts")
        .aggregate(
            "of-keys",
            agg.count(),
            agg.sum("value", name="total"),
            early="2 seconds",
            allowed_lateness="5 seconds",
        )
        .to_retract(name="taken-back")
    )
    sums = (
        of_keys.map(burden.carry, name="slow")
        .key_by("window_start")
        .aggregate("of-windows", agg.count(name="keys"), agg.sum("total", name="total"))
    )
    found: dict[int, list[Row]] = {}
    for row in totals(rows_of(payments(3, 20))):
        found.setdefault(row["start"], []).append(row)
    expected: list[Row] = [
        {
            "window_start": datetime.fromtimestamp(start // SECOND_US, UTC),
            "keys": len(those),
            "total": sum(row["total"] for row in those),
        }
        for start, those in found.items()
    ]
    return _judged(p, sums, expected, burden)


def top_of_totals_job(parallelism: int) -> Job:
    """Return a job that ranks how often values come, of each key: totals that change.

    The totals take different ways to the ranking, so one can go before it has come.
    """
    del parallelism
    p, burden = Pipeline("top-of-totals"), Burden()
    rows = p.source("in", MemorySource(payments(2, 24))).watermark("ts", max_delay=DELAY)
    counts = rows.key_by("key", "value").aggregate(
        "counts", agg.count(name="n"), agg.max("id", name="last_id"), emit="retract"
    )
    best = (
        counts.rebalance()
        .map(burden.carry, name="slow")
        .key_by("key")
        .top("ranking", KEPT, by="n desc", rank="place")
    )
    found: dict[tuple[str, int], Row] = {}
    for row in rows_of(payments(2, 24)):
        kind = row["key"], row["value"]
        before = found.get(kind, {"n": 0, "last_id": row["id"]})
        last_id = max(before["last_id"], row["id"])
        found[kind] = {"key": kind[0], "value": kind[1], "n": before["n"] + 1, "last_id": last_id}
    expected = [
        {**row, "place": place}
        for of_key in _by_key(list(found.values())).values()
        for place, row in enumerate(
            sorted(of_key, key=lambda row: (-row["n"], row["value"]))[:KEPT], 1
        )
    ]
    return _judged(p, best, expected, burden)


def _judged(pipeline: Pipeline, rows: Any, expected: Sequence[Row], burden: Burden) -> Job:  # noqa: ANN401
    job = with_ledgers(pipeline, {"out": (rows, list(expected))}, burden)
    job.judge = weights_add_up_to(expected)
    return job


def weights_add_up_to(expected: Sequence[Row]) -> Judge:
    """Return a judge that adds up the weights of equal rows: these are there, and no others."""
    wanted = Counter(map(_fixed, expected))

    def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
        found: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            found[_fixed(row)] += row[WEIGHT]
        too_few = {row: n - found[row] for row, n in wanted.items() if found[row] != n}
        too_many = {row: n for row, n in found.items() if n and row not in wanted}
        if too_few or too_many or rows_late:
            yield f"{rows_late} rows are late, {too_few} are too few, {too_many} too many"

    return judge


def newest_are(expected: Sequence[Row]) -> Judge:
    """Return a judge that takes the newest row of each key: they are these."""
    wanted = {row["key"]: row for row in expected}

    def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
        found = {row["key"]: row for row in rows}
        if found != wanted or rows_late:
            yield f"{rows_late} rows are late, and there is {found}, not {wanted}"

    return judge


def _either(with_weights: Judge, without: Judge) -> Judge:
    """Return a judge of two outputs; the rows of one have weights."""

    def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
        if not rows:
            yield "there are no rows"
        else:
            yield from (with_weights if WEIGHT in rows[0] else without)(rows, rows_late)

    return judge


def _fixed(row: Row) -> tuple[Any, ...]:
    return tuple(sorted((name, value) for name, value in row.items() if name != WEIGHT))


def _by_key(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append(row)
    return found


def _best(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-row["value"], row["id"]))[:KEPT]


def _some_refunds() -> list[Row]:
    return [row for row in rows_of(refunds()) if row["shop"] in _SHOPS]


def _paired(left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """Return all pairs of equal keys, one row after the other, and the rows of both without."""
    rows = [
        joined(mine, theirs) for mine in left for theirs in right if mine["key"] == theirs["shop"]
    ]
    shops, keys = {row["shop"] for row in right}, {row["key"] for row in left}
    rows += [joined(mine, None) for mine in left if mine["key"] not in shops]
    return rows + [joined(None, theirs) for theirs in right if theirs["shop"] not in keys]


UPDATING_JOBS: dict[str, BuildJob] = {
    "first-rows": first_rows_job,
    "best-rows": best_rows_job,
    "updating-join": updating_join_job,
    "join-with-ttl": join_with_ttl_job,
}

RETRACTED_JOBS: dict[str, BuildJob] = {
    "retracted-rows": retracted_rows_job,
    "retracted-windows": retracted_windows_job,
}

RANKED_JOBS: dict[str, BuildJob] = {"top-of-totals": top_of_totals_job}
