"""Executors for tests, and the state that the golden files hold."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from laminar_core.operators import agg, windows
from laminar_core.operators.queries import AggregateQuery
from laminar_core.operators.stream_executor import StreamExecutor

GOLDEN = Path(__file__).parents[1] / "golden"
SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(10, 2)),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
RUNNING = AggregateQuery("totals", ("k",), (agg.sum("v"), agg.avg("v")))
WINDOWED = AggregateQuery(
    "minutes",
    ("k",),
    (agg.count(), agg.sum("v")),
    window=windows.tumbling("10 seconds"),
    time_column="ts",
)
EVERYTHING = (
    agg.count(), agg.count("v"), agg.sum("v"), agg.sum("x"), agg.sum("d"), agg.avg("d"),
    agg.min("x"), agg.max("x"), agg.avg("v"), agg.var_pop("x"), agg.stddev_samp("x"),
    agg.first("v", by="ts"), agg.last("v", by="ts"), agg.count_distinct("v"),
    agg.approx_count_distinct("v"), agg.percentile("x", 0.5), agg.approx_percentile("x", 0.5),
)  # fmt: skip
Row = tuple[str | None, int | None, int]
"""Key, value, seconds."""


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    keys, values, seconds = zip(*rows, strict=True) if rows else ((), (), ())
    reals = [value if value is None else value / 4 for value in values]
    cents = [value if value is None else Decimal(value).scaleb(-2) for value in values]
    times = [second * SECOND for second in seconds]
    columns = [keys, values, reals, cents, times]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def rows_of(results: object) -> list[tuple]:
    """Query id and values of each row."""
    return [
        (result.query_id, *row.values()) for result in results for row in result.batch.to_pylist()
    ]


def fed(executor: StreamExecutor, *batches: list[Row]) -> list[tuple]:
    return [row for rows in batches for row in rows_of(executor.process(batch_of(rows)))]


def restored(state: bytes | None, *queries: AggregateQuery) -> StreamExecutor:
    executor = StreamExecutor(queries, SCHEMA)
    assert executor.restore_state(state) == len(queries)
    assert executor.last_restore.restored == tuple(query.query_id for query in queries)
    return executor


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


GOLDEN_QUERIES = (
    AggregateQuery("running", ("k",), EVERYTHING),
    AggregateQuery(
        "windows",
        ("k",),
        EVERYTHING,
        window=windows.sliding("20 seconds", "10 seconds"),
        time_column="ts",
        allowed_lateness_us=5 * SECOND,
    ),
    AggregateQuery("idle", ("k",), (agg.count(),), filter=pa.compute.field("v") > 1_000),
)
GOLDEN_ROWS: list[Row] = [
    ("a", 1, 3), ("b", None, 4), (None, -7, 12), ("a", 1, 17), ("a", 2**26, 25), ("", 0, 31),
]  # fmt: skip
GOLDEN_LATE: list[Row] = [("a", 5, 1), ("c", 6, 29)]


def golden_executor(codec: str = "none") -> StreamExecutor:
    """Return an executor with all aggregates, a watermark, closed windows and a late row."""
    executor = StreamExecutor(GOLDEN_QUERIES, SCHEMA, codec=codec)
    fed(executor, GOLDEN_ROWS)
    list(executor.on_watermark(26 * SECOND))
    fed(executor, GOLDEN_LATE)
    return executor
