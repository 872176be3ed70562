r"""Slippage of trades against the quotes before them, per symbol and minute: an as-of join to copy.

laminar run jobs/slippage.py --set input=build/market --set output=build/slippage \
  --store build/checkpoints

laminar run jobs/slippage.py --set input=datagen --set rows=1000000 --set output=build/slippage \
  --store build/checkpoints

The slippage of a trade is how much worse its price is than the middle of the last bid and ask of
its symbol: positive if a buyer paid more, or a seller got less. All arithmetic is in integers. The
middle is half of ``bid + ask``, so both prices are doubled instead, and no half cent is lost. The
quotient is rounded once, to the nearest hundredth of a basis point (one part per million, *ppm*),
halves upwards. Sums are then exact, whatever the order of rows. The volume-weighted slippage of a
window is their quotient, rounded in the same way. An overflow stops the job.
"""

from datetime import timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
from pyarrow.compute import SetLookupOptions, call_function

from laminar_core.connectors import Source
from laminar_core.jobs.addresses import part_of, sink_at, source_at
from laminar_core.jobs.slippage_data import QUOTES_PER_TRADE, Market
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline, Stream

TRADE = pa.schema(
    [
        ("symbol", pa.string()),
        ("side", pa.string()),
        ("price_cents", pa.int64()),
        ("quantity", pa.int64()),
        ("traded_at", pa.timestamp("us", "UTC")),
    ]
)
QUOTE = pa.schema(
    [
        ("symbol", pa.string()),
        ("bid_cents", pa.int64()),
        ("ask_cents", pa.int64()),
        ("quoted_at", pa.timestamp("us", "UTC")),
    ]
)
"""The columns of messages, which are objects of JSON."""

QUOTE_AGE_MAX = timedelta(seconds=30)
"""A trade whose last quote is older has no price to be compared with."""

GENERATED = "datagen"
PPM = 1_000_000
BASIS_POINTS = pa.decimal128(19, 2)
"""Every number of ppm that fits into 64 bits, as basis points with two decimals."""


def pipeline(
    input: str,  # noqa: A002 - as on the command line
    output: str,
    rows: int = 1_000_000,
    rows_per_second: float | None = None,
) -> Pipeline:
    """Read trades and quotes, write one row per symbol and minute.

    ``input`` is a folder with ``trades`` and ``quotes``, as ``slippage_data`` writes them; or
    ``kafka://HOST:PORT/NAME`` for the topics NAME-trades and NAME-quotes; or ``datagen`` for so
    many generated ``rows`` of trades. Both are at most ten seconds out of order. ``output`` is a
    path or a topic. ``rows_per_second`` paces the trades, and quotes accordingly; None reads as
    fast as it can.
    """
    quotes_per_second = rows_per_second and rows_per_second * QUOTES_PER_TRADE
    trades, quotes = market_sources(input, rows, rows_per_second, quotes_per_second)
    slippage = Pipeline("slippage")
    slippage_per_symbol(
        slippage.source("trades", trades, rows_per_second=rows_per_second),
        slippage.source("quotes", quotes, rows_per_second=quotes_per_second),
    ).sink("slippage", sink_at(output, key="symbol"))
    return slippage


def market_sources(
    address: str, rows: int, trades_per_second: float | None, quotes_per_second: float | None
) -> tuple[Source, Source]:
    """Return the sources of trades and of quotes."""
    if address == GENERATED:
        market = Market(trades=rows)
        return market.trades_source(), market.quotes_source()
    return (
        source_at(part_of(address, "trades"), TRADE, trades_per_second),
        source_at(part_of(address, "quotes"), QUOTE, quotes_per_second),
    )


def slippage_per_symbol(trades: Stream, quotes: Stream) -> Stream:
    """Give each trade its quote, and aggregate the slippage of each symbol in windows."""
    quotes = quotes.watermark("quoted_at", max_delay="10 seconds")
    return (
        trades.watermark("traded_at", max_delay="10 seconds")
        .as_of(quotes, on="symbol", max_distance=QUOTE_AGE_MAX, name="last-quote")
        .map(measure, name="measure")
        .key_by("symbol")
        .window(windows.tumbling("1 minute"))
        .aggregate(
            "per-symbol",
            agg.count(name="trades"),
            agg.count("slippage_ppm", name="priced_trades"),
            agg.sum("quantity", name="volume"),
            agg.sum("priced_quantity", name="priced_volume"),
            agg.sum("weighted_ppm", name="weighted_ppm"),
            agg.max("slippage_ppm", name="largest_ppm"),
        )
        .map(in_basis_points, name="in-basis-points")
    )


def measure(trades: pa.RecordBatch) -> pa.RecordBatch:
    """Compute the slippage of each trade; it is null without a quote that has a positive middle."""
    twice_mid = call_function(
        "add_checked", [trades.column("bid_cents"), trades.column("ask_cents")]
    )
    twice_price = call_function("multiply_checked", [trades.column("price_cents"), 2])
    above_mid = call_function("subtract_checked", [twice_price, twice_mid])
    worse_by = call_function("multiply_checked", [above_mid, _signs(trades.column("side"))])
    slippage_ppm = quotient(call_function("multiply_checked", [worse_by, PPM]), twice_mid)
    quantity = trades.column("quantity")
    none = pa.scalar(None, pa.int64())
    is_priced = call_function("is_valid", [slippage_ppm])
    return pa.record_batch(
        {
            "symbol": trades.column("symbol"),
            "traded_at": trades.column("traded_at"),
            "quantity": quantity,
            "slippage_ppm": slippage_ppm,
            "priced_quantity": call_function("if_else", [is_priced, quantity, none]),
            "weighted_ppm": call_function("multiply_checked", [slippage_ppm, quantity]),
        }
    )


def in_basis_points(totals: pa.RecordBatch) -> pa.RecordBatch:
    """Divide the weighted sum by its volume, and write slippage as basis points."""
    average_ppm = quotient(totals.column("weighted_ppm"), totals.column("priced_volume"))
    kept = [name for name in totals.schema.names if not name.endswith("_ppm")]
    return (
        totals.select(kept)
        .append_column("slippage_bps", basis_points(average_ppm))
        .append_column("largest_bps", basis_points(totals.column("largest_ppm")))
    )


def quotient(dividends: pa.Array, divisors: pa.Array) -> pa.Array:
    """Divide integers, rounded to the nearest, halves upwards; null unless the divisor is positive.

    Raises:
        ArrowInvalid: it does not fit into 64 bits.
    """
    is_positive = call_function("greater", [divisors, 0])
    divisors = call_function("if_else", [is_positive, divisors, pa.scalar(None, pa.int64())])
    doubled = call_function("multiply_checked", [dividends, 2])
    above = call_function("add_checked", [doubled, divisors])
    below = call_function("multiply_checked", [divisors, 2])
    # Arrow divides towards zero, NumPy downwards. A missing dividend is null in ``above``.
    rounded = above.fill_null(0).to_numpy() // below.fill_null(1).to_numpy()
    return pa.array(rounded, mask=np.asarray(above.is_null()))


def basis_points(ppm: pa.Array) -> pa.Array:
    """Return parts per million as basis points with two decimals."""
    hundredth = pa.scalar(Decimal("0.01"), pa.decimal128(3, 2))
    return call_function("multiply", [ppm.cast(pa.decimal128(19, 0)), hundredth]).cast(BASIS_POINTS)


def _signs(sides: pa.Array) -> pa.Array:
    """Return 1 for those who buy, -1 for those who sell, and null for what is neither."""
    known = SetLookupOptions(value_set=pa.array(["buy", "sell"]))
    return pa.array([1, -1]).take(call_function("index_in", [sides.cast(pa.string())], known))
