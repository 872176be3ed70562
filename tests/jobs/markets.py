"""A small market as tables: rare symbols have no quotes for long, and many times are equal."""

import pyarrow as pa

from laminar_core.connectors import DatagenSource
from laminar_core.jobs.slippage_data import Market

SMALL = Market(trades=800, symbols=40, trades_per_second=1, max_disorder_s=8, tick_ms=500)


def trades_of(market: Market) -> pa.Table:
    """Return all trades, in the order in which a single reader meets them."""
    return _all(market.trades_source())


def quotes_of(market: Market) -> pa.Table:
    """Return all quotes, in the order in which a single reader meets them."""
    return _all(market.quotes_source())


def _all(source: DatagenSource) -> pa.Table:
    return pa.Table.from_batches([source.rows_between(0, source.rows or 0)])
