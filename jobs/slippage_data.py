"""Write the trades and quotes that ``jobs/slippage.py`` joins: the same for the same arguments.

    python -m laminar_core.jobs.slippage_data build/market --rows 1000000

There are four quotes for each trade, in folders of their own. Both are out of order by up to
``max_disorder_s``, so a reader of row groups in order, of all or of every n-th one, never meets a
row further behind than that and a tick. Times are whole ticks of a millisecond, so often several
rows of a symbol have one time. Symbols are Zipf-distributed: the rare ones have no quote for longer
than the job accepts one.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.connectors import DatagenSource, EventTime, UniformInt, ZipfKey
from laminar_core.jobs.data_sets import (
    MICROSECONDS,
    Part,
    invalid,
    show_writing,
    start_us,
    write_data_set,
)

Rows = npt.NDArray[np.int64]
QUOTES_PER_TRADE = 4
MICROSECONDS_PER_MS = 1_000
GENERATOR_VERSION = 1
"""Raised when the same parameters give other rows."""


@dataclass(frozen=True, slots=True)
class Side:
    """Buys and sells, equally likely."""

    @property
    def type(self) -> pa.DataType:
        """Always dictionary<int32, string>."""
        return pa.dictionary(pa.int32(), pa.string())

    def column(self, rows: Rows, key: int) -> pa.Array:
        """Return the values of ``rows``."""
        sides = UniformInt(0, 2).column(rows, key).cast(pa.int32())
        return pa.DictionaryArray.from_arrays(sides, pa.array(["buy", "sell"]))


@dataclass(frozen=True, slots=True)
class TickTime:
    """Event time in whole ticks, rounded down."""

    times: EventTime
    tick_us: int

    @property
    def type(self) -> pa.DataType:
        """Always timestamp[us, UTC]."""
        return self.times.type

    def column(self, rows: Rows, key: int) -> pa.Array:
        """Return the values of ``rows``."""
        times_us = self.times.column(rows, key).cast(pa.int64()).to_numpy()
        return pa.array(times_us - times_us % self.tick_us).cast(self.type)


@dataclass(frozen=True, slots=True)
class Market:
    """Trades and quotes, and everything that their rows and files depend on.

    ``trades_per_second`` counts seconds of event time: the default of a million trades spans
    83 windows of a minute.
    """

    trades: int = 1_000_000
    files: int = 4
    symbols: int = 2_000
    zipf_exponent: float = 1.1
    seed: int = 1
    start: str = "2026-01-01T00:00:00Z"
    trades_per_second: int = 200
    max_disorder_s: int = 5
    tick_ms: int = 1
    generator_version: int = GENERATOR_VERSION

    def __post_init__(self) -> None:
        counts = (self.trades, self.files, self.symbols, self.tick_ms)
        if min(counts) < 1 or self.max_disorder_s < 0:
            raise invalid("trades, files, symbols and tick_ms must be at least 1, max_disorder_s 0")
        if not 1 <= self.trades_per_second <= MICROSECONDS // QUOTES_PER_TRADE:
            raise invalid("trades_per_second must be from 1 to 250,000")

    @property
    def rows(self) -> int:
        """The number of trades and quotes together."""
        return self.trades * (1 + QUOTES_PER_TRADE)

    def trades_source(self) -> DatagenSource:
        """Return the trades as generated rows."""
        fields = {
            "symbol": self._symbol(),
            "side": Side(),
            "price_cents": UniformInt(9_900, 10_101),
            "quantity": UniformInt(1, 1_000),
            "traded_at": self._time(self.trades_per_second),
        }
        return DatagenSource(fields, rows=self.trades, seed=self.seed)

    def quotes_source(self) -> DatagenSource:
        """Return the quotes as generated rows."""
        fields = {
            "symbol": self._symbol(),
            "bid_cents": UniformInt(9_900, 10_000),
            "ask_cents": UniformInt(10_000, 10_101),
            "quoted_at": self._time(self.trades_per_second * QUOTES_PER_TRADE),
        }
        rows = self.trades * QUOTES_PER_TRADE
        return DatagenSource(fields, rows=rows, seed=self.seed + 1)

    def _symbol(self) -> ZipfKey:
        return ZipfKey(self.symbols, self.zipf_exponent, "S")

    def _time(self, rows_per_second: int) -> TickTime:
        times = EventTime(
            start_us=start_us(self.start),
            step_us=MICROSECONDS // rows_per_second,
            jitter_us=self.max_disorder_s * MICROSECONDS,
        )
        return TickTime(times, self.tick_ms * MICROSECONDS_PER_MS)


def write_market(
    path: str | os.PathLike[str],
    market: Market,
    progress: Callable[[int], None] = lambda _: None,
) -> bool:
    """Write trades and quotes into folders of these names, unless the same ones are there already.

    ``progress`` gets the number of rows just written, and is called from several threads.

    Returns:
        True if they were written, False if they were there.

    Raises:
        ConfigurationError: ``path`` holds something else (INVALID_OPTION).
    """
    parts = [
        Part("trades/trades-", market.trades_source(), ("symbol", "side")),
        Part("quotes/quotes-", market.quotes_source(), ("symbol",)),
    ]
    return write_data_set(path, "market", asdict(market), parts, market.files, progress)


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--rows", default=1_000_000, show_default=True, help="Trades; quotes are four times.")
@click.option("--files", default=4, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(path: Path, rows: int, files: int, seed: int) -> None:
    """Write trades and quotes as Parquet files into the directory PATH."""

    def write(progress: Callable[[int], None]) -> bool:
        return write_market(path, Market(trades=rows, files=files, seed=seed), progress)

    show_writing("trades and quotes", path, rows * (1 + QUOTES_PER_TRADE), write)


if __name__ == "__main__":
    main()
