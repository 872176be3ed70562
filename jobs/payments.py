r"""Payments per merchant in five-minute windows: the example to copy.

laminar run jobs/payments.py --set input=build/payments --set output=build/totals \
  --store build/checkpoints

laminar run jobs/payments.py --set input=kafka://localhost:9092/payments \
  --set output=kafka://localhost:9092/totals --store build/checkpoints
"""

import pyarrow as pa

from laminar_core.jobs.addresses import sink_at, source_at
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline, Stream

PAYMENT = pa.schema(
    [
        ("merchant", pa.string()),
        ("amount_cents", pa.int64()),
        ("paid_at", pa.timestamp("us", "UTC")),
    ]
)
"""The columns of a message, which is an object of JSON."""


def pipeline(input: str, output: str, rows_per_second: float | None = None) -> Pipeline:  # noqa: A002 - as on the command line
    """Read payments from Parquet files or a Kafka topic, write one row per merchant and window.

    ``input`` has the columns merchant, amount_cents and paid_at, at most a minute out of order: a
    path, or ``kafka://HOST:PORT/TOPIC``, which ends at the messages that are there at the start if
    ``?until=latest`` is behind it. ``output`` is a path or a topic as well; the messages are
    objects of JSON, with the merchant as key. ``rows_per_second`` paces the source; None reads as
    fast as it can.
    """
    source = source_at(input, PAYMENT, rows_per_second)
    payments = Pipeline("payments")
    rows = payments.source("payments", source, rows_per_second=rows_per_second)
    totals = totals_per_merchant(rows.watermark("paid_at", max_delay="1 minute"))
    totals.sink("totals", sink_at(output, key="merchant"))
    return payments


def totals_per_merchant(payments: Stream) -> Stream:
    """Aggregate the payments of each merchant in windows of five minutes."""
    return (
        payments.key_by("merchant")
        .window(windows.tumbling("5 minutes"))
        .aggregate(
            "per-merchant",
            agg.count(name="payments"),
            agg.sum("amount_cents", name="total_cents"),
            agg.min("amount_cents", name="min_cents"),
            agg.max("amount_cents", name="max_cents"),
            agg.avg("amount_cents", name="average_cents"),
        )
    )
