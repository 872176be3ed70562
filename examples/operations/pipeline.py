"""The payments pipeline with a brake: an operator as slow as a file demands.

The file holds the microseconds that each row costs; without it the brake is off.
"""

from pathlib import Path

import pyarrow as pa

from laminar_core.connectors import ParquetSink, ParquetSource
from laminar_core.host.clock import SystemClock
from laminar_core.jobs.payments import totals_per_merchant
from laminar_core.pipeline import Pipeline

BATCHES_PER_SECOND = 20
"""Small batches: what is queued at the brake is worth seconds then, not minutes."""


def pipeline(
    input: str,  # noqa: A002 - as on the command line
    output: str,
    brake: str,
    rows_per_second: float | None = None,
) -> Pipeline:
    """Aggregate as ``jobs/payments.py`` does, behind a map that dawdles."""
    clock = SystemClock()

    def dawdle(batch: pa.RecordBatch) -> pa.RecordBatch:
        clock.wait_ms(batch.num_rows * row_us(Path(brake)) / 1000)
        return batch

    source_rows = 131_072 if rows_per_second is None else int(rows_per_second) // BATCHES_PER_SECOND
    source = ParquetSource(input, batch_rows=source_rows)
    payments = Pipeline("payments")
    rows = (
        payments.source("payments", source, rows_per_second=rows_per_second)
        .watermark("paid_at", max_delay="1 minute")
        .rebalance()
        .map(dawdle, name="brake")
    )
    totals_per_merchant(rows).sink("totals", ParquetSink(output))
    return payments


def row_us(brake: Path) -> float:
    """Return the microseconds that a row costs; 0 without the file."""
    try:
        return float(brake.read_text())
    except (OSError, ValueError):
        return 0.0


def set_brake(brake: Path, row_us: float | None) -> None:
    """Slow the running pipeline down; None removes the brake."""
    if row_us is None:
        brake.unlink(missing_ok=True)
        return
    new = brake.with_suffix(".new")
    new.write_text(str(row_us))
    new.replace(brake)
