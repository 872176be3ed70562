"""A job with slow calls: wrong if a row is lost, repeated, out of order or overtaken by time."""

import asyncio

import pyarrow as pa

from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import (
    DELAY,
    BuildJob,
    Burden,
    Job,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource

ADDED = pa.schema({"double": pa.int64()})
FAILS_EVERY = 7
"""Calls for the ids that this divides fail for good; for the ones after them, once."""
PACE = 40.0
"""Rows per second of the source."""


class Doubling:
    """A service that answers after up to 225 ms, the later the greater the last digit of an id."""

    def __init__(self) -> None:
        self.calls = 0
        self.running = self.running_max = 0
        self._failed = set[int]()

    async def call(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return twice the value of each row."""
        self.calls += 1
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        try:
            ids = rows.column("id").to_pylist()
            await asyncio.sleep((ids[0] * 7 % 10) / 40)
            if any(n % FAILS_EVERY == 0 for n in ids):
                message = "not for such an id"
                raise ConnectionError(message)
            if ids[0] % FAILS_EVERY == 1 and ids[0] not in self._failed:
                self._failed.add(ids[0])
                message = "not now"
                raise ConnectionError(message)
        finally:
            self.running -= 1
        doubled = [2 * value for value in rows.column("value").to_pylist()]
        return pa.record_batch([pa.array(doubled, pa.int64())], schema=ADDED)


def enrich_job(parallelism: int) -> Job:
    """Return a job that calls a service for rows, and has windows behind it."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("enrich")
    source = p.source("in", MemorySource(tables, gap_every=5), rows_per_second=PACE)
    rows = source.watermark("ts", max_delay=DELAY).rebalance().map(burden.carry, name="slow")
    doubled = rows.enrich(
        "double",
        Doubling().call,
        schema=ADDED,
        concurrency=6,
        attempts=2,
        rows_per_call=1,
        pending_rows_max=20,
        on_error="side",
    )
    expected = rows_of(tables)
    good = [row for row in expected if row["id"] % FAILS_EVERY]
    bad = [
        {"id": row["id"], "error": "ConnectionError: not for such an id"}
        for row in expected
        if row["id"] % FAILS_EVERY == 0
    ]
    outputs = {
        "out": (
            doubled.select("id", "double").rebalance(),
            [{"id": row["id"], "double": 2 * row["value"]} for row in good],
        ),
        "failed": (doubled.side("failed").select("id", "error").rebalance(), bad),
        "windows": (windowed(doubled.select("id", "key", "ts", "value"), "totals"), totals(good)),
    }
    return with_ledgers(p, outputs, burden)


ENRICH_JOBS: dict[str, BuildJob] = {"enrich": enrich_job}
