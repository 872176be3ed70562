"""Compute the expected output of ``jobs/slippage.py`` with pandas, without a stream.

    python -m laminar_core.jobs.slippage_answer build/market build/slippage

compares what the job wrote with it. ``pandas.merge_asof`` takes the last of the quotes with one
time, so they are sorted by their values: the greatest is last, as the job has it.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors import read_committed
from laminar_core.jobs import comparison
from laminar_core.jobs.slippage import BASIS_POINTS, PPM, QUOTE_AGE_MAX, basis_points

Integers = npt.NDArray[np.int64]
NONE = -1
MINUTE_US = 60_000_000
TIME = pa.timestamp("us", "UTC")
SLIPPAGE = pa.schema(
    [
        ("symbol", pa.string()),
        ("window_start", TIME),
        ("window_end", TIME),
        ("trades", pa.int64()),
        ("priced_trades", pa.int64()),
        ("volume", pa.int64()),
        ("priced_volume", pa.int64()),
        ("slippage_bps", BASIS_POINTS),
        ("largest_bps", BASIS_POINTS),
    ]
)


TOTALS = [
    ("quantity", "count"),
    ("ppm", "count"),
    ("quantity", "sum"),
    ("priced_quantity", "sum"),
    ("weighted_ppm", "sum"),
    ("ppm", "max"),
]


def slippages(trades: pa.Table, quotes: pa.Table) -> pa.Table:
    """Return the slippage of each symbol and minute, in order, with the columns of ``SLIPPAGE``."""
    totals = priced(trades, quotes).group_by(["symbol", "window_us"]).aggregate(TOTALS)
    start_us = totals.column("window_us").to_numpy()
    is_unpriced = totals.column("ppm_count").to_numpy() == 0
    volume = totals.column("priced_quantity_sum").fill_null(1).to_numpy()
    average_ppm = rounded(totals.column("weighted_ppm_sum").fill_null(0).to_numpy(), volume)
    columns = [
        totals.column("symbol"),
        pa.array(start_us).cast(TIME),
        pa.array(start_us + MINUTE_US).cast(TIME),
        *(totals.column("_".join(total)) for total in TOTALS[:4]),
        basis_points(pa.array(average_ppm, mask=is_unpriced)),
        basis_points(totals.column("ppm_max").combine_chunks()),
    ]
    return in_order(pa.Table.from_arrays(columns, schema=SLIPPAGE))


def priced(trades: pa.Table, quotes: pa.Table) -> pa.Table:
    """Return the trades, each with its slippage in ``ppm``, null if it has no quote."""
    trades = comparison.in_order(trades, ["traded_at", "symbol", "side", "price_cents", "quantity"])
    quotes = comparison.in_order(quotes, ["quoted_at", "bid_cents", "ask_cents", "symbol"])
    place = last_quotes(trades, quotes)
    bid, ask = (quotes.column(name).to_numpy()[place] for name in ("bid_cents", "ask_cents"))
    sign = np.where(np.array(trades.column("side").to_pylist()) == "buy", 1, -1)
    worse_by = sign * (2 * trades.column("price_cents").to_numpy() - bid - ask)
    ppm = rounded(worse_by * PPM, bid + ask)
    quantity = trades.column("quantity").to_numpy()
    time_us = trades.column("traded_at").cast(pa.int64()).to_numpy()
    return pa.table(
        {
            "symbol": trades.column("symbol"),
            "window_us": time_us - time_us % MINUTE_US,
            "quantity": quantity,
            "ppm": pa.array(ppm, mask=place == NONE),
            "priced_quantity": pa.array(quantity, mask=place == NONE),
            "weighted_ppm": pa.array(ppm * quantity, mask=place == NONE),
        }
    )


def last_quotes(trades: pa.Table, quotes: pa.Table) -> Integers:
    """Return the position of the last quote of each trade, or ``NONE``; both are in order of time.

    Of quotes with one time it is the last one.
    """
    left, right = (
        pd.DataFrame(
            {
                "time_us": rows.column(time).cast(pa.int64()).to_numpy(),
                "symbol": rows.column("symbol").to_pandas(),
                "place": np.arange(rows.num_rows),
            }
        )
        for rows, time in ((trades, "traded_at"), (quotes, "quoted_at"))
    )
    age_max_us = QUOTE_AGE_MAX // timedelta(microseconds=1)
    merged: Any = pd.merge_asof(  # pyright: ignore[reportUnknownMemberType] - as pandas has it
        left, right, on="time_us", by="symbol", tolerance=age_max_us, suffixes=("_of_trade", "")
    )
    return merged["place"].fillna(NONE).to_numpy().astype(np.int64)


def rounded(dividends: Integers, divisors: Integers) -> Integers:
    """Return the quotients rounded to the nearest integers, halves upwards."""
    whole, rest = np.divmod(dividends, divisors)
    return whole + (2 * rest >= divisors)


def in_order(table: pa.Table) -> pa.Table:
    """Return the rows sorted by all columns, so that tables with equal rows are equal."""
    return comparison.in_order(table, SLIPPAGE.names)


@click.command()
@click.argument("market", type=click.Path(path_type=Path, exists=True))
@click.argument("output", type=click.Path(path_type=Path, exists=True))
def main(market: Path, output: Path) -> None:
    """Compare OUTPUT, written by jobs/slippage.py, with the answer for MARKET."""
    expected = slippages(*(pq.read_table(market / name) for name in ("trades", "quotes")))
    comparison.report(in_order(read_committed(str(output))), expected, "rows of slippage")


if __name__ == "__main__":
    main()
