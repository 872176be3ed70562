r"""Payments per merchant in five-minute windows: the example to copy.

laminar run jobs/payments.py --set input=build/payments --set output=build/totals \
  --store build/checkpoints
"""

from laminar_core.connectors import ParquetSink, ParquetSource
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline


def pipeline(input: str, output: str, rows_per_second: float | None = None) -> Pipeline:  # noqa: A002 - as on the command line
    """Read payments from Parquet files, write one row per merchant and window.

    ``input`` has the columns merchant, amount_cents and paid_at, at most a minute out of order.
    ``rows_per_second`` paces the source; None reads as fast as it can.
    """
    # A paced source reads twenty small batches a second, so that its pace is even.
    batch_rows = 131_072 if rows_per_second is None else max(int(rows_per_second) // 20, 1)
    source = ParquetSource(input, batch_rows=batch_rows)
    payments = Pipeline("payments")
    (
        payments.source("payments", source, rows_per_second=rows_per_second)
        .watermark("paid_at", max_delay="1 minute")
        .key_by("merchant")
        .window(windows.tumbling("5 minutes"))
        .aggregate(
            "per-merchant",
            agg.count(name="payments"),
            agg.sum("amount_cents", name="total_cents"),
            agg.min("amount_cents", name="min_cents"),
            agg.max("amount_cents", name="max_cents"),
            agg.avg("amount_cents", name="average_cents"),
        )
        .sink("totals", ParquetSink(output))
    )
    return payments
