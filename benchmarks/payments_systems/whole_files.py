"""Engines that have whole files: the question in DuckDB, Polars and DataFusion.

    python -m benchmarks.payments_systems.whole_files duckdb|polars|datafusion

They see all rows before they answer, and keep nothing for a restart. DuckDB and DataFusion get as
many threads as there are workers; Polars gets those of ``POLARS_MAX_THREADS``. They are those of
``make peers``, on ``PYTHONPATH``. Their answers are compressed as Laminar's sink does by default.
"""

# The engines are not installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.payments_systems.question import CODEC, CODEC_LEVEL, WINDOW_US, Question
from benchmarks.topics.system import DONE

Engine = Callable[[Question], object]
_WRITTEN = f"FORMAT parquet, COMPRESSION {CODEC}, COMPRESSION_LEVEL {CODEC_LEVEL}"
_TOTALS = (
    "SELECT merchant, {start} AS window_start, count(*) AS payments, "
    "CAST(sum(amount_cents) AS BIGINT) AS total_cents, min(amount_cents) AS min_cents, "
    "max(amount_cents) AS max_cents, avg(amount_cents) AS average_cents FROM {rows} GROUP BY ALL"
)
_DUCKDB = _TOTALS.format(
    start=f"make_timestamp(epoch_us(paid_at) // {WINDOW_US} * {WINDOW_US})",
    rows="read_parquet('{rows}/*.parquet')",
)
_DATAFUSION = _TOTALS.replace("ALL", "merchant, {start}").format(
    start="date_bin(INTERVAL '5 minutes', paid_at)", rows="payments"
)


def with_duckdb(question: Question) -> None:
    """Group in DuckDB, and copy the result into a file."""
    import duckdb  # noqa: PLC0415 - only this engine has it

    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {question.workers}")
        connection.execute("SET preserve_insertion_order = false")
        query = _DUCKDB.format(rows=question.rows)
        connection.execute(f"COPY ({query}) TO '{_file(question)}' ({_WRITTEN})")


def with_polars(question: Question) -> None:
    """Group in Polars' streaming engine, and sink the result into a file."""
    import polars as pl  # noqa: PLC0415 - only this engine has it

    amount = pl.col("amount_cents")
    rows = pl.scan_parquet(f"{question.rows}/*.parquet")
    totals = rows.group_by("merchant", pl.col("paid_at").dt.truncate("5m").alias("window_start"))
    found = totals.agg(
        pl.len().cast(pl.Int64).alias("payments"),
        amount.sum().alias("total_cents"),
        amount.min().alias("min_cents"),
        amount.max().alias("max_cents"),
        amount.mean().alias("average_cents"),
    )
    found.sink_parquet(
        _file(question), engine="streaming", compression=CODEC, compression_level=CODEC_LEVEL
    )


def with_datafusion(question: Question) -> None:
    """Group in DataFusion, and write the result."""
    from datafusion import SessionConfig, SessionContext  # noqa: PLC0415 - only this engine has it

    context = SessionContext(SessionConfig().with_target_partitions(question.workers))
    context.register_parquet("payments", question.rows)
    totals = context.sql(_DATAFUSION)
    totals.write_parquet(str(Path(question.output)), CODEC, CODEC_LEVEL)


def _file(question: Question) -> str:
    folder = Path(question.output)
    folder.mkdir(parents=True)
    return str(folder / "totals.parquet")


ENGINES: dict[str, Engine] = {
    "duckdb": with_duckdb,
    "polars": with_polars,
    "datafusion": with_datafusion,
}


def main(engine: str) -> None:
    """Answer the question in each line of the input."""
    for line in sys.stdin:
        ENGINES[engine](Question.of(line))
        print(DONE, flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main(*sys.argv[1:])
