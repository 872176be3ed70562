"""Generated trades and quotes: reproducible, out of order within bounds, with ties and gaps."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from laminar_core.connectors import DatagenSource
from laminar_core.errors import ConfigurationError
from laminar_core.jobs.data_sets import MICROSECONDS
from laminar_core.jobs.slippage import QUOTE, QUOTE_AGE_MAX, TRADE
from laminar_core.jobs.slippage_data import MICROSECONDS_PER_MS, Market, main, write_market

MARKET = Market(trades=20_000)


def frame(source: DatagenSource) -> pd.DataFrame:
    return source.rows_between(0, source.rows or 0).to_pandas()


@pytest.fixture(scope="module")
def quotes() -> pd.DataFrame:
    return frame(MARKET.quotes_source())


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return frame(MARKET.trades_source())


def test_the_files_have_the_columns_that_the_job_reads(tmp_path: Path) -> None:
    assert write_market(tmp_path / "x", Market(trades=100, files=2))
    for name, schema, rows in (("trades", TRADE, 100), ("quotes", QUOTE, 400)):
        assert len(list((tmp_path / "x" / name).iterdir())) == 2
        stored = pq.read_table(tmp_path / "x" / name)
        assert (stored.schema, stored.num_rows) == (schema, rows)


def test_the_files_hold_what_is_generated_and_another_seed_gives_others(tmp_path: Path) -> None:
    for seed in (1, 2):
        market = Market(trades=50, seed=seed)
        write_market(tmp_path / str(seed), market)
        written = pq.read_table(tmp_path / str(seed) / "trades")
        assert written.to_pylist() == market.trades_source().rows_between(0, 50).to_pylist()
    assert pq.read_table(tmp_path / "1" / "trades") != pq.read_table(tmp_path / "2" / "trades")


@pytest.mark.parametrize("column", ["traded_at", "quoted_at"])
def test_rows_are_out_of_order_within_the_bound(
    trades: pd.DataFrame, quotes: pd.DataFrame, column: str
) -> None:
    times = (trades if column == "traded_at" else quotes)[column].astype("int64").to_numpy()
    bound_us = MARKET.max_disorder_s * MICROSECONDS + MARKET.tick_ms * MICROSECONDS_PER_MS
    behind = np.maximum.accumulate(times) - times
    assert 0.9 * bound_us < behind.max() <= bound_us


def test_quotes_of_a_symbol_have_one_time_and_trades_the_time_of_a_quote(
    trades: pd.DataFrame, quotes: pd.DataFrame
) -> None:
    tied = quotes.duplicated(["symbol", "quoted_at"]).sum()
    values = quotes.drop_duplicates(["symbol", "quoted_at", "bid_cents", "ask_cents"])
    assert tied > 500
    assert values.duplicated(["symbol", "quoted_at"]).sum() > 0.9 * tied
    at_one_time = trades.merge(
        quotes, left_on=["symbol", "traded_at"], right_on=["symbol", "quoted_at"]
    )
    assert len(at_one_time) > 500


def test_rare_symbols_have_no_quote_for_longer_than_the_job_accepts(quotes: pd.DataFrame) -> None:
    ordered = quotes.sort_values(["symbol", "quoted_at"])
    gaps = ordered.groupby("symbol", observed=True)["quoted_at"].diff()
    with_gaps = ordered.loc[gaps > pd.Timedelta(QUOTE_AGE_MAX), "symbol"].nunique()
    assert 100 < with_gaps < MARKET.symbols


def test_there_is_no_spread_below_zero_and_both_sides_trade(
    trades: pd.DataFrame, quotes: pd.DataFrame
) -> None:
    assert (quotes["bid_cents"] < quotes["ask_cents"]).all()
    assert trades["quantity"].min() > 0
    assert 0.45 < (trades["side"] == "buy").mean() < 0.55


@pytest.mark.parametrize(
    "options",
    [
        {"trades": 0},
        {"files": 0},
        {"symbols": 0},
        {"tick_ms": 0},
        {"trades_per_second": 0},
        {"trades_per_second": 250_001},
        {"max_disorder_s": -1},
    ],
    ids=str,
)
def test_impossible_arguments_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        Market(**options)


def test_the_command_writes_once_and_says_what_it_did(tmp_path: Path) -> None:
    arguments = [str(tmp_path / "x"), "--rows", "100", "--files", "2"]
    said = [CliRunner().invoke(main, arguments) for _ in range(2)]
    assert [result.exit_code for result in said] == [0, 0]
    assert "500 trades and quotes written to" in said[0].output
    assert "500 trades and quotes were already in" in said[1].output


def test_the_columns_do_not_depend_on_how_rows_are_read() -> None:
    source = MARKET.quotes_source()
    whole = source.rows_between(0, 40)
    parts = [source.rows_between(at, at + 10) for at in range(0, 40, 10)]
    assert pa.Table.from_batches([whole]).to_pylist() == pa.Table.from_batches(parts).to_pylist()
