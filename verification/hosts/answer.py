"""The payments that hosts aggregate, and the answer that Arrow alone computes from the same files.

``jobs/payments.py`` writes a row per merchant and window once, when the window is complete. So
already while the job runs, each row that is committed must be one of the answer, and none twice.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.jobs.payments_data import write_payments
from verification.hosts.waiting import HostsError

WINDOW_US = 5 * 60 * 1_000_000
_AGGREGATES = ("count", "sum", "min", "max")
_COLUMNS = ("merchant", "window_start", "payments", "total_cents", "min_cents", "max_cents")
Row = tuple[object, ...]


@dataclass(frozen=True)
class PaymentsAnswer:
    """The folders of a payments job, and its answer as rows."""

    input: Path
    output: Path
    rows: frozenset[Row]

    def check_so_far(self) -> int:
        """Verify that committed rows are rows of the answer, each once; return how many.

        Raises:
            HostsError: one is not, or is there twice.
        """
        committed = read_committed(str(self.output)) if self.output.exists() else None
        if committed is None or not committed.num_rows:  # Without a commit it has no columns.
            return 0
        found = Counter(rows_of(committed.select(list(_COLUMNS))))
        twice = [row for row, count in found.items() if count > 1]
        wrong = [row for row in found if row not in self.rows]
        if twice or wrong:
            raise HostsError(
                f"of {len(found)} rows {len(twice)} are there twice and {len(wrong)} are wrong, "
                f"as {(twice or wrong)[0]}"
            )
        return len(found)

    def check(self) -> int:
        """Verify that the committed output is the answer; return the number of its rows.

        Raises:
            HostsError: it is not.
        """
        count = self.check_so_far()
        if count != len(self.rows):
            raise HostsError(f"the output has {count} rows of {len(self.rows)}")
        return count


def prepare(folder: Path, rows: int) -> PaymentsAnswer:
    """Write so many payments below ``folder``, and compute the answer."""
    place = folder / "input"
    write_payments(place, rows=rows, files=4, merchants=200, events_per_second=20)
    return PaymentsAnswer(place, folder / "output", frozenset(rows_of(aggregate(place))))


def aggregate(payments: Path) -> pa.Table:
    """Return a row per merchant and window, in the columns of the output."""
    rows = pq.read_table(payments)
    paid_us = rows.column("paid_at").cast(pa.int64()).to_numpy()
    starts = pa.array(paid_us - paid_us % WINDOW_US).cast(pa.timestamp("us", tz="UTC"))
    rows = rows.append_column("window_start", starts)
    grouped = rows.group_by(["merchant", "window_start"]).aggregate(
        [("amount_cents", name) for name in _AGGREGATES]
    )
    names = [f"amount_cents_{name}" for name in _AGGREGATES]
    return grouped.select(["merchant", "window_start", *names]).rename_columns(list(_COLUMNS))


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows as plain values."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))
