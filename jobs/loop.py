r"""Charge payments until they are settled or given up: rows that circulate in a loop.

laminar run jobs/loop.py --set input=build/payments --set output=build/settled \
  --store build/checkpoints
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.connectors import ParquetSink, ParquetSource
from laminar_core.operators import hash_columns
from laminar_core.pipeline import Pipeline, Stream

ATTEMPTS_MAX = 5
"""Attempts after which a payment is given up."""

SUCCESS_PERCENT = 60
"""Share of payments settled by one attempt; it depends on the payment and the attempt alone."""

ATTEMPT_FEE_CENTS = 25

SETTLED = pc.field("settled")
OVER = SETTLED | (pc.field("attempts") >= ATTEMPTS_MAX)


def enter(payments: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns of the loop: no payment has been attempted yet."""
    rows = payments.num_rows
    nothing = pa.array(np.zeros(rows, np.int64))
    return (
        payments.append_column("attempts", nothing)
        .append_column("fee_cents", nothing)
        .append_column("settled", pa.array(np.zeros(rows, np.bool_)))
    )


def charge(payments: pa.RecordBatch) -> pa.RecordBatch:
    """Attempt each payment once more."""
    attempts = pa.array(payments.column("attempts").to_numpy() + 1)
    fee_cents = pa.array(payments.column("fee_cents").to_numpy() + ATTEMPT_FEE_CENTS)
    settled = pa.array(succeeds(payments, attempts))
    names = payments.schema.names
    changed = {"attempts": attempts, "fee_cents": fee_cents, "settled": settled}
    columns = [changed.get(name, payments.column(name)) for name in names]
    return pa.record_batch(columns, schema=payments.schema)


def succeeds(payments: pa.RecordBatch, attempts: pa.Array) -> np.ndarray:
    """Decide by a hash, so that every run, and a batch query, comes to the same result."""
    by = [payments.column(name) for name in ("merchant", "amount_cents", "paid_at")]
    return hash_columns([*by, attempts], payments.num_rows) % np.uint64(100) < SUCCESS_PERCENT


def retry(payments: Stream) -> tuple[Stream, Stream]:
    """Return failed payments for another round, spread over all workers, and the finished ones."""
    tried = payments.map(charge, name="charge")
    again = tried.filter(~OVER, name="again")
    return again.rebalance(), tried.filter(OVER, name="over")


def pipeline(input: str, output: str, rows_per_second: float | None = None) -> Pipeline:  # noqa: A002 - as on the command line
    """Read payments from Parquet files, write each one with its attempts, fees and outcome.

    ``input`` has the columns merchant, amount_cents and paid_at. ``rows_per_second`` paces the
    source; None reads as fast as it can.
    """
    batch_rows = 65_536 if rows_per_second is None else max(int(rows_per_second) // 20, 1)
    source = ParquetSource(input, batch_rows=batch_rows)
    loop = Pipeline("loop")
    (
        loop.source("payments", source, rows_per_second=rows_per_second)
        .map(enter, name="enter")
        .iterate(retry, name="retry")
        .sink("settlements", ParquetSink(output))
    )
    return loop
