"""The batch answer of the slippage job, against one trade after the other in fractions."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import floor
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from laminar_core.jobs import slippage_answer
from laminar_core.jobs.slippage_answer import slippages
from laminar_core.jobs.slippage_data import Market, write_market
from tests.jobs.markets import SMALL, quotes_of, trades_of

QUOTE_AGE_MAX = timedelta(seconds=30)


def nearest(value: Fraction) -> int:
    return floor(value + Fraction(1, 2))


def slippage_ppm(trade: dict, quotes: list[dict]) -> int | None:
    """Return the slippage of one trade, or None if it has no quote."""
    past = [
        (quote["quoted_at"], quote["bid_cents"], quote["ask_cents"])
        for quote in quotes
        if quote["symbol"] == trade["symbol"]
        and timedelta(0) <= trade["traded_at"] - quote["quoted_at"] <= QUOTE_AGE_MAX
    ]
    if not past:
        return None
    _, bid, ask = max(past)
    mid = Fraction(bid + ask, 2)
    worse_by = (trade["price_cents"] - mid) * (1 if trade["side"] == "buy" else -1)
    return nearest(worse_by / mid * 1_000_000)


def one_after_the_other(trades: list[dict], quotes: list[dict]) -> Iterator[dict]:
    windows: dict[tuple[str, datetime], list[tuple[int, int | None]]] = {}
    for trade in trades:
        window = (trade["symbol"], trade["traded_at"].replace(second=0, microsecond=0))
        measured = (trade["quantity"], slippage_ppm(trade, quotes))
        windows.setdefault(window, []).append(measured)
    for (symbol, start), rows in sorted(windows.items()):
        found = [(quantity, ppm) for quantity, ppm in rows if ppm is not None]
        volume = sum(quantity for quantity, _ in found)
        cost = sum(quantity * ppm for quantity, ppm in found)
        yield {
            "symbol": symbol,
            "window_start": start,
            "window_end": start + timedelta(minutes=1),
            "trades": len(rows),
            "priced_trades": len(found),
            "volume": sum(quantity for quantity, _ in rows),
            "priced_volume": volume if found else None,
            "slippage_bps": Decimal(nearest(Fraction(cost, volume))) / 100 if found else None,
            "largest_bps": Decimal(max(ppm for _, ppm in found)) / 100 if found else None,
        }


def test_the_answer_is_that_of_one_trade_after_the_other() -> None:
    trades, quotes = trades_of(SMALL), quotes_of(SMALL)
    found = slippages(trades, quotes).to_pylist()
    assert found == list(one_after_the_other(trades.to_pylist(), quotes.to_pylist()))
    kinds = [(row["priced_trades"] > 0, row["priced_trades"] < row["trades"]) for row in found]
    assert all(kinds.count(kind) > 10 for kind in ((True, False), (True, True), (False, True)))


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [(None, 0, "rows of slippage, exactly as expected"), (5, 1, "5 rows of slippage differ from")],
)
def test_the_command_tells_right_output_from_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int | None, code: int, said: str
) -> None:
    market = Market(trades=100, files=1, symbols=5)
    write_market(tmp_path / "in", market)
    written = slippages(trades_of(market), quotes_of(market)).slice(0, rows)
    monkeypatch.setattr(slippage_answer, "read_committed", lambda _: written)
    outcome = CliRunner().invoke(slippage_answer.main, [str(tmp_path / "in"), str(tmp_path)])
    assert outcome.exit_code == code
    assert said in outcome.output


def test_the_order_of_rows_does_not_matter() -> None:
    trades, quotes = trades_of(SMALL), quotes_of(SMALL)
    turned = [table.take(pa.array(range(table.num_rows))[::-1]) for table in (trades, quotes)]
    assert slippages(*turned) == slippages(trades, quotes)
