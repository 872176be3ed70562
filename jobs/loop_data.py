"""Compute the expected output of ``jobs/loop.py`` without a loop, a stream or a pipeline.

    python -m laminar_core.jobs.loop_data build/payments build/settled

compares what the job wrote with it.
"""

from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors import read_committed
from laminar_core.jobs import comparison
from laminar_core.jobs.loop import ATTEMPT_FEE_CENTS, ATTEMPTS_MAX, SUCCESS_PERCENT
from laminar_core.operators import hash_columns

PAYMENT = ["merchant", "amount_cents", "paid_at"]
OUTCOME = ["attempts", "fee_cents", "settled"]


def settlements(payments: pa.Table) -> pa.Table:
    """Return each payment with the attempt that settled it, or with all of them if none did."""
    batch = payments.select(PAYMENT).combine_chunks()
    columns = [batch.column(name).combine_chunks() for name in PAYMENT]
    outcomes = np.stack([_succeeds(columns, batch.num_rows, n + 1) for n in range(ATTEMPTS_MAX)])
    settled = outcomes.any(axis=0)
    attempts = np.where(settled, outcomes.argmax(axis=0) + 1, ATTEMPTS_MAX)
    for name, values in zip(
        OUTCOME, (attempts, attempts * ATTEMPT_FEE_CENTS, settled), strict=True
    ):
        batch = batch.append_column(name, pa.array(values))
    return batch


def _succeeds(columns: list[pa.Array], rows: int, attempt: int) -> np.ndarray:
    attempts = pa.array(np.full(rows, attempt, np.int64))
    return hash_columns([*columns, attempts], rows) % np.uint64(100) < SUCCESS_PERCENT


def in_order(table: pa.Table) -> pa.Table:
    """Return the rows sorted by all columns, so that tables with equal rows are equal."""
    return comparison.in_order(table, PAYMENT + OUTCOME)


@click.command()
@click.argument("payments", type=click.Path(path_type=Path, exists=True))
@click.argument("output", type=click.Path(path_type=Path, exists=True))
def main(payments: Path, output: Path) -> None:
    """Compare OUTPUT, written by jobs/loop.py, with the answer for PAYMENTS."""
    expected = in_order(settlements(pq.read_table(payments)))
    found = in_order(read_committed(str(output)))
    comparison.report(found, expected, "settlements")


if __name__ == "__main__":
    main()
