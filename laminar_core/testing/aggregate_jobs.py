"""Jobs whose results are in the state of aggregates: wrong if a row is added twice or lost."""

import statistics

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import (
    BuildJob,
    Burden,
    Job,
    Row,
    payments,
    rows_of,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource


def running_totals_job(parallelism: int, pace: float | None = None) -> Job:
    """Return a job of running totals; the last total of each key is its output.

    ``pace`` is in rows per second, None: unlimited. The earlier totals depend on the order of
    arrival. The last one counts all rows of its key: it is emitted once, and never if a row was
    lost or counted twice.
    """
    del parallelism
    tables, burden = payments(), Burden()
    expected = _last_totals(rows_of(tables))
    keys = pa.array([row["key"] for row in expected])
    counts = pa.array([row["count"] for row in expected])

    def is_last(batch: pa.RecordBatch) -> pa.Array:
        places = pc.call_function("index_in", [batch["key"]], pc.SetLookupOptions(keys))
        return pc.call_function("equal", [batch["count"], counts.take(places)])

    p = Pipeline("running-totals")
    rows = (
        p.source("in", MemorySource(tables), rows_per_second=pace)
        .rebalance()
        .map(burden.carry, name="slow")
    )
    changing = rows.key_by("key").aggregate(
        "running",
        agg.count(),
        agg.sum("value", name="total"),
        agg.max("value", name="highest"),
        agg.first("id", by="ts", name="first_id"),
        agg.count_distinct("value", name="kinds"),
        agg.percentile("value", 0.5, name="median"),
    )
    return with_ledgers(p, {"out": (changing.filter(is_last, name="last"), expected)}, burden)


def _last_totals(rows: list[Row]) -> list[Row]:
    """Return the final totals of each key."""
    of_key: dict[str, list[Row]] = {}
    for row in rows:
        of_key.setdefault(row["key"], []).append(row)
    return [
        {
            "key": key,
            "count": len(mine),
            "total": sum(row["value"] for row in mine),
            "highest": max(row["value"] for row in mine),
            "first_id": min((row["ts"], row["id"]) for row in mine)[1],
            "kinds": len({row["value"] for row in mine}),
            "median": float(statistics.median(row["value"] for row in mine)),
        }
        for key, mine in of_key.items()
    ]


AGGREGATE_JOBS: dict[str, BuildJob] = {"running-totals": running_totals_job}
