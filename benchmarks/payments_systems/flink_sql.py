"""Flink SQL with the same question: its statements."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.payments_systems.question import Question

_ROWS = (
    "merchant {merchant}, amount_cents BIGINT, paid_at TIMESTAMP(6), "
    "paid AS CAST(paid_at AS TIMESTAMP(3)), WATERMARK FOR paid AS paid - INTERVAL '30' DAY"
)
"""Event time in Flink has milliseconds at most. It reads files in no order, so no row is late only
if windows wait for all of them."""
_TOTALS = (
    "merchant {merchant}, window_start TIMESTAMP(3), payments BIGINT, total_cents BIGINT, "
    "min_cents BIGINT, max_cents BIGINT, average_cents DOUBLE"
)
_INSERT = (
    "INSERT INTO `{out}` SELECT merchant, window_start, COUNT(*), SUM(amount_cents), "
    "MIN(amount_cents), MAX(amount_cents), AVG(CAST(amount_cents AS DOUBLE)) FROM "
    "TABLE(TUMBLE(TABLE `{rows}`, DESCRIPTOR(paid), INTERVAL '5' MINUTES)) "
    "GROUP BY merchant, window_start, window_end"
)


def statements(question: Question, number: int, *, named: bool) -> list[str]:
    """Return the statements of one run; the last one does it. Tables are made anew in each.

    ``named``: merchants have names, not numbers.
    """
    rows, out = (f"{name} {number}" for name in ("rows", "out"))
    merchant = "STRING" if named else "BIGINT"
    reading = {"path": question.rows, "format": "parquet"}
    writing = {"path": question.output, "format": "csv"}
    return [
        _table(rows, _ROWS.format(merchant=merchant), reading),
        _table(out, _TOTALS.format(merchant=merchant), writing),
        _INSERT.format(out=out, rows=rows),
    ]


def _table(name: str, columns: str, options: Mapping[str, str]) -> str:
    written = {"connector": "filesystem"} | dict(options)
    written["path"] = Path(written["path"]).absolute().as_uri()
    options_text = ", ".join(f"'{option}'='{value}'" for option, value in written.items())
    return f"CREATE TABLE `{name}` ({columns}) WITH ({options_text})"
