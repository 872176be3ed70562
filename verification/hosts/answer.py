"""The rows that a job on hosts has to write, computed from its input without a stream.

Both jobs write a row once, when it is final: a row per merchant and window, or a payment with its
outcome. So already while the job runs, each row that is committed must be one of the answer, and
none may be there more often.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.jobs.loop_data import OUTCOME, PAYMENT, settlements
from laminar_core.jobs.payments_data import write_payments
from verification.hosts.waiting import HostsError

WINDOW_US = 5 * 60 * 1_000_000
PAYMENTS, LOOP = "jobs/payments.py", "jobs/loop.py"
_AGGREGATES = ("count", "sum", "min", "max")
_COLUMNS = ("merchant", "window_start", "payments", "total_cents", "min_cents", "max_cents")
Row = tuple[object, ...]


@dataclass(frozen=True)
class Answer:
    """A job, the folders of its input and output, and the rows that it has to write."""

    program: str
    """The file of the job, relative to the repository."""
    input: Path
    output: Path
    columns: tuple[str, ...]
    rows: Counter[Row]
    """How often each row has to be in the output."""
    bucket: str | None = None
    """The URI below which the job reads ``input`` and writes ``output``; None: the folders."""

    @property
    def input_uri(self) -> str:
        """Where the job reads."""
        return self._uri(self.input)

    @property
    def output_uri(self) -> str:
        """Where the job writes."""
        return self._uri(self.output)

    @property
    def count(self) -> int:
        """How many rows the whole output has."""
        return self.rows.total()

    def check_so_far(self) -> int:
        """Verify that committed rows are rows of the answer, none too often; return how many.

        Raises:
            HostsError: one is not, or is there too often.
        """
        committed = read_committed(str(self.output)) if self.output.exists() else None
        if committed is None or not committed.num_rows:  # Without a commit it has no columns.
            return 0
        found = Counter(rows_of(committed.select(list(self.columns))))
        wrong = [row for row in found if row not in self.rows]
        extra = [row for row in found if found[row] > self.rows[row] > 0]
        if extra or wrong:
            raise HostsError(
                f"of {found.total()} rows {len(extra)} are there too often and {len(wrong)} are "
                f"wrong, as {(extra or wrong)[0]}"
            )
        return found.total()

    def check(self) -> int:
        """Verify that the committed output is the answer; return the number of its rows.

        Raises:
            HostsError: it is not.
        """
        count = self.check_so_far()
        if count != self.count:
            raise HostsError(f"the output has {count} rows of {self.count}")
        return count

    def _uri(self, folder: Path) -> str:
        if self.bucket is None:
            return str(folder)
        place, mark, parameters = self.bucket.partition("?")
        return f"{place}/{folder.name}{mark}{parameters}"


def prepare(folder: Path, rows: int) -> Answer:
    """Write so many payments below ``folder``, and compute their totals."""
    place = _write(folder, rows)
    totals = aggregate(place)
    return Answer(PAYMENTS, place, folder / "output", _COLUMNS, Counter(rows_of(totals)))


def prepare_loop(folder: Path, rows: int) -> Answer:
    """Write so many payments below ``folder``, and compute the outcome of each."""
    place = _write(folder, rows)
    columns = (*PAYMENT, *OUTCOME)
    settled = settlements(pq.read_table(place)).select(list(columns))
    return Answer(LOOP, place, folder / "output", columns, Counter(rows_of(settled)))


def _write(folder: Path, rows: int) -> Path:
    place = folder / "input"
    write_payments(place, rows=rows, files=4, merchants=200, events_per_second=20)
    return place


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
