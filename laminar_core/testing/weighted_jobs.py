"""Jobs that aggregate totals which change: wrong if an old total stays, or goes twice."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from laminar_core.operators import agg
from laminar_core.operators.base import OutputMode
from laminar_core.operators.weights import WEIGHT
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.testing.jobs import (
    BuildJob,
    Burden,
    Job,
    Judge,
    Row,
    payments,
    rows_of,
    with_ledgers,
)
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource

Values = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class TableSink(LedgerSink):
    """A ledger of rows that replace and delete each other by their number of keys."""

    accepts: ClassVar[frozenset[OutputMode]] = frozenset({"append", "upsert"})
    updates_by: ClassVar[tuple[str, ...]] = ("keys",)

    def with_deletions(self) -> "TableSink":
        """Return the same: a deletion is a row like others."""
        return self


def totals_of_totals_job(parallelism: int, pace: float | None = None) -> Job:
    """Return a job that counts the keys with each number of rows, behind a slow exchange.

    ``pace`` is in rows per second, None: unlimited. Which totals are emitted in between depends on
    the order of arrival; added up, the last ones are left.
    """
    del parallelism
    p, burden = Pipeline("totals-of-totals"), Burden()
    expected = totals_of_totals(rows_of(payments()))
    job = with_ledgers(p, {"out": (_totals_of_totals(p, burden, pace), expected)}, burden)
    job.judge = adding_up_to(expected)
    return job


def rows_by_key_job(parallelism: int, pace: float | None = None) -> Job:
    """Return a job whose sink has one row per number of keys, out of totals that come and go."""
    del parallelism
    p, burden, ledger = Pipeline("rows-by-key"), Burden(), Ledger()
    expected = greatest_by_keys(totals_of_totals(rows_of(payments())))
    _totals_of_totals(p, burden, pace).sink("table", TableSink(ledger))
    job = Job(p.plan(), {"table": expected}, {"table": ledger}, burden, pipeline=p)
    job.judge = leaving_in_a_table(expected)
    return job


def _totals_of_totals(p: Pipeline, burden: Burden, pace: float | None) -> Stream:
    rows = p.source("in", MemorySource(payments()), rows_per_second=pace).rebalance()
    of_keys = rows.key_by("key").aggregate(
        "of-keys", agg.count(), agg.sum("value", name="total"), emit="retract"
    )
    return (
        of_keys.map(burden.carry, name="slow")
        .key_by("count")
        .aggregate(
            "of-counts",
            agg.count(name="keys"),
            agg.sum("total", name="total"),
            agg.max("key", name="last_key"),
        )
    )


def totals_of_totals(rows: Sequence[Row]) -> list[Row]:
    """Return, for each number of rows that a key has, what all keys with so many rows have."""
    counts = Counter(row["key"] for row in rows)
    return [
        {
            "count": count,
            "keys": sum(often == count for often in counts.values()),
            "total": sum(row["value"] for row in rows if counts[row["key"]] == count),
            "last_key": max(key for key, often in counts.items() if often == count),
        }
        for count in sorted(set(counts.values()))
    ]


def greatest_by_keys(rows: Sequence[Row]) -> list[Row]:
    """Return the greatest row of each number of keys."""
    return list({row["keys"]: row for row in sorted(rows, key=_values)}.values())


def adding_up_to(expected: Sequence[Row]) -> Judge:
    """Return a judge that adds up the weights of rows, and wants these rows to be left."""
    wanted = Counter(_values(row) for row in expected)

    def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
        left: Counter[Values] = Counter()
        for row in rows:
            left[_values(row)] += row[WEIGHT]
        found = {values: weight for values, weight in left.items() if weight}
        if found != wanted or rows_late:
            yield f"weights add up to {found}, not to {dict(wanted)}; {rows_late} rows are late"

    return judge


def leaving_in_a_table(expected: Sequence[Row]) -> Judge:
    """Return a judge that replaces and deletes rows by key, and wants these to be left."""
    wanted = {row["keys"]: _values(row) for row in expected}

    def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
        table: dict[int, Values] = {}
        for row in rows:
            if row[WEIGHT] > 0:
                table[row["keys"]] = _values(row)
            elif table.pop(row["keys"], None) != _values(row):
                yield f"{row} is deleted, and is not there"
        if table != wanted or rows_late:
            yield f"the table has {table}, not {wanted}; {rows_late} rows are late"

    return judge


def _values(row: Row) -> Values:
    return tuple(row[name] for name in ("count", "keys", "total", "last_key"))


WEIGHTED_JOBS: dict[str, BuildJob] = {
    "totals-of-totals": totals_of_totals_job,
    "rows-by-key": rows_by_key_job,
}
