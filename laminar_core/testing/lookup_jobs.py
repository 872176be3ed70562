"""Jobs with lookups: wrong if a row comes twice, meets another table, or an older version.

Which version a row meets depends on the order of arrival, so a judge looks for an order that
explains the output: of each key, rows met versions that never went back.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from laminar_core.operators.base import JsonObject
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import (
    DELAY,
    JITTER_US,
    SECOND_US,
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

KEYS = [f"k{number}" for number in range(7)]
_TTL = timedelta(seconds=45)


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """A table in memory that is pinned by the number of its rows."""

    rows: pa.Table
    size_max_bytes: int = 1 << 20
    batch_rows: int = 3

    @property
    def schema(self) -> pa.Schema:
        """Return the columns."""
        return self.rows.schema

    def pinned(self, columns: Sequence[str]) -> "MemoryTable":
        """Return the table: it does not change."""
        del columns
        return self

    def describe(self) -> JsonObject:
        """Return the number of rows."""
        return {"rows": self.rows.num_rows}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, so many at a time."""
        yield from self.rows.to_batches(max_chunksize=self.batch_rows)


def table_lookup_job(parallelism: int) -> Job:
    """Return a job that looks a slow stream up in a table, and windows behind it."""
    del parallelism
    # One key has two rows, one has none, and nothing has the key null.
    names = [*KEYS[:-1], KEYS[1], None]
    table = pa.table({"shop": names, "city": [f"c{n}" for n in range(len(names))]})
    p, burden = Pipeline("table-lookup"), Burden()
    payers = MemorySource(payments(), batch_rows=4)  # With two, few rows lack a version.
    rows = p.source("payments", payers).watermark("ts", max_delay=DELAY)
    rows = rows.rebalance().map(burden.carry, name="slow")
    found = rows.lookup(MemoryTable(table), "cities", on={"key": "shop"}, matches="all")
    there: dict[object, list[Row]] = defaultdict(list)
    for row in table.to_pylist():
        there[row["shop"]].append(row)
    expected = [
        {**row, **other}
        for row in rows_of(payments())
        for other in there.get(row["key"], [{"shop": None, "city": None}])
    ]
    outputs = {"out": (found, expected), "windows": (windowed(found), totals(expected))}
    return with_ledgers(p, outputs, burden)


def version_lookup_job(parallelism: int) -> Job:
    """Return a job that looks a slow stream up in one of versions, and windows behind it.

    Keys are deleted and come again, and versions expire.
    """
    del parallelism
    p, burden = Pipeline("version-lookup"), Burden()
    payers = MemorySource(payments(), batch_rows=4)  # With two, few rows lack a version.
    rows = p.source("payments", payers).watermark("ts", max_delay=DELAY)
    rows = rows.map(burden.carry, name="slow")
    source = MemorySource(versions(), batch_rows=5, gap_every=3, gap_polls=4)
    known = p.source("versions", source).watermark("at", max_delay=DELAY)
    found = rows.lookup(
        known, "newest", on={"key": "shop"}, columns=["n"], deleted="is_closed", ttl=_TTL
    )
    given = rows_of(payments())  # Which version each row has is for the judge.
    outputs = {"out": (found, given), "windows": (windowed(found), totals(given))}
    job = with_ledgers(p, outputs, burden)
    job.judge = judge
    return job


def versions() -> list[pa.Table]:
    """Return versions of each key, all of a key in one split; every ninth deletes it."""
    tables: list[pa.Table] = []
    for split in range(2):
        shops = [key for number, key in enumerate(KEYS) if number % 2 == split]
        numbers = range(60)
        jitters = [(n * 7_919_777) % (2 * JITTER_US) - JITTER_US for n in numbers]
        times = [n * 2 * SECOND_US + jitters[n] for n in numbers]
        tables.append(
            pa.table(
                {
                    "shop": [shops[(5 * n + n // 4) % len(shops)] for n in numbers],
                    "n": [split * 1_000 + n for n in numbers],
                    "is_closed": [n % 9 == 8 for n in numbers],  # noqa: PLR2004 - every ninth
                    "at": pa.array(times, pa.timestamp("us", tz="UTC")),
                }
            )
        )
    return tables


def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
    """Find rows that are lost, doubled, or met versions in an order that cannot be."""
    if rows_late:
        yield f"{rows_late} rows were late"
    if rows and "window_start" in rows[0]:
        if normal(rows) != normal(totals(rows_of(payments()))):
            yield "other windows"
        return
    given = [{name: row[name] for name in ("id", "key", "value", "ts")} for row in rows]
    if normal(given) != normal(rows_of(payments())):
        yield f"{len(rows)} rows, and not each once"
    known: dict[str, list[Row]] = defaultdict(list)
    for version in rows_of(versions()):
        known[version["shop"]].append(version)
    reached = dict.fromkeys(KEYS, 0)
    """By key, how many versions have come at least."""
    for row in rows:
        of_key = known[row["key"]]
        places = range(reached[row["key"]], len(of_key) + 1)
        explained = [place for place in places if _seen(of_key[:place], row) == row["n"]]
        if explained:
            reached[row["key"]] = explained[0]
        else:
            yield f"row {row['id']} met version {row['n']} after number {reached[row['key']]}"


def _seen(come: Sequence[Row], row: Row) -> int | None:
    """Return the version that a row meets after these."""
    if not come or come[-1]["is_closed"]:
        return None
    number: int = come[-1]["n"]
    return number if max(one["at"] for one in come) + _TTL >= row["ts"] else None


LOOKUP_JOBS: dict[str, BuildJob] = {
    "table-lookup": table_lookup_job,
    "version-lookup": version_lookup_job,
}
