"""The slippage job: exact arithmetic, and the batch answer whatever dies in a simulated cluster."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.connectors import KafkaSink, KafkaSource
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.jobs.slippage import (
    QUOTE,
    TRADE,
    basis_points,
    in_basis_points,
    market_sources,
    measure,
    pipeline,
    quotient,
    slippage_per_symbol,
)
from laminar_core.jobs.slippage_answer import in_order, slippages
from laminar_core.jobs.slippage_data import Market, write_market
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.jobs.markets import SMALL, quotes_of, trades_of

SPLITS = 4


@pytest.fixture(scope="module")
def expected() -> pa.Table:
    return slippages(trades_of(SMALL), quotes_of(SMALL))


def job(ledger: Ledger) -> Pipeline:
    slippage = Pipeline("slippage")
    trades, quotes = (
        slippage.source(name, MemorySource(divided(rows), batch_rows=batch_rows))
        for name, rows, batch_rows in (
            ("trades", trades_of(SMALL), 20),
            ("quotes", quotes_of(SMALL), 80),
        )
    )
    slippage_per_symbol(trades, quotes).sink("slippage", LedgerSink(ledger))
    return slippage


def divided(rows: pa.Table) -> list[pa.Table]:
    share = rows.num_rows // SPLITS
    return [rows.slice(n * share, share) for n in range(SPLITS)]


def simulation(ledger: Ledger, seed: int, alignment_timeout_ms: int | None) -> Simulation:
    return Simulation(
        job(ledger).plan(),
        parallelism=2,
        seed=seed,
        checkpoint=CoordinatorConfig(interval_ms=20, alignment_timeout_ms=alignment_timeout_ms),
    )


def visible(ledger: Ledger) -> pa.Table:
    batches = [batch for batches in ledger.visible.values() for batch in batches]
    return in_order(pa.Table.from_batches(batches))


@pytest.mark.large
@pytest.mark.sampled(3)
@pytest.mark.parametrize("alignment_timeout_ms", [None, 0])
@pytest.mark.parametrize("seed", range(3))
def test_killed_workers_leave_the_slippage_exact(
    expected: pa.Table, seed: int, alignment_timeout_ms: int | None
) -> None:
    ledger = Ledger()
    running = simulation(ledger, seed, alignment_timeout_ms)
    for number in (1, 3, 5):
        running.when(CheckpointCompleted, partial(running.kill_worker, number % 2), number)
    result = running.run()
    assert (result.outcome, result.rows_late) == ("finished", 0)
    assert result.generations > 1
    assert visible(ledger) == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("alignment_timeout_ms", [None, 0])
def test_another_number_of_workers_leaves_the_slippage_exact(
    expected: pa.Table, workers: int, alignment_timeout_ms: int | None
) -> None:
    ledger = Ledger()
    running = simulation(ledger, 7, alignment_timeout_ms)
    running.when(CheckpointCompleted, running.kill_driver, 2)
    with pytest.raises(ProcessKilledError):
        running.run()
    running.options = replace(running.options, parallelism=workers)
    result = running.run(take_over=True)
    assert (result.outcome, result.rows_late) == ("finished", 0)
    assert visible(ledger) == expected


def trade(side: str | None, price_cents: int, bid_cents: int | None, ask_cents: int) -> dict:
    quote = {"bid_cents": bid_cents, "ask_cents": ask_cents}
    return {"symbol": "s", "side": side, "price_cents": price_cents, "quantity": 3, **quote}


@pytest.mark.parametrize(
    ("row", "ppm"),
    [
        (trade("buy", 10_100, 9_999, 10_001), 10_000),
        (trade("sell", 10_100, 9_999, 10_001), -10_000),
        (trade("buy", 10_000, 9_999, 10_000), 50),  # The middle is 9,999.5 cents.
        (trade("buy", 800_003, 799_999, 800_001), 4),  # 3.75 ppm
        (trade("buy", 800_001, 799_999, 800_001), 1),  # 1.25 ppm
        (trade("buy", 400_001, 399_999, 400_001), 3),  # 2.5 ppm
        (trade("sell", 400_001, 399_999, 400_001), -2),
        (trade("buy", 10_100, None, 10_001), None),
        (trade("buy", 10_100, -5, 5), None),
        (trade("short", 10_100, 9_999, 10_001), None),
        (trade(None, 10_100, 9_999, 10_001), None),
    ],
)
def test_the_slippage_of_a_trade_is_rounded_once(row: dict, ppm: int | None) -> None:
    rows = pa.RecordBatch.from_pylist([row | {"traded_at": None}])
    assert measure(rows).drop_columns(["symbol", "traded_at"]).to_pylist() == [
        {
            "quantity": 3,
            "slippage_ppm": ppm,
            "priced_quantity": None if ppm is None else 3,
            "weighted_ppm": None if ppm is None else 3 * ppm,
        }
    ]


def test_a_quotient_that_does_not_fit_stops_the_job() -> None:
    assert quotient(pa.array([7, -7, None, 1]), pa.array([2, 2, 2, 0])).to_pylist() == [
        *(4, -3, None, None)
    ]
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        quotient(pa.array([2**62]), pa.array([2]))
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        measure(pa.RecordBatch.from_pylist([trade("buy", 10**13, 1, 1) | {"traded_at": None}]))


def test_basis_points_have_two_decimals_and_hold_every_integer() -> None:
    extremes = [-(2**63), -101, 0, 250, 2**63 - 1, None]
    assert [
        None if value is None else int(value * 100)
        for value in basis_points(pa.array(extremes, pa.int64())).to_pylist()
    ] == extremes
    totals = pa.RecordBatch.from_pylist(
        [{"symbol": "s", "priced_volume": 4, "weighted_ppm": 10, "largest_ppm": 123}]
    )
    (row,) = in_basis_points(totals).to_pylist()
    assert row.keys() == {"symbol", "priced_volume", "slippage_bps", "largest_bps"}
    assert (str(row["slippage_bps"]), str(row["largest_bps"])) == ("0.03", "1.23")


def test_an_input_is_a_folder_two_topics_or_generated(tmp_path: Path) -> None:
    market = Market(trades=100, files=1)
    write_market(tmp_path / "in", market)
    plan = pipeline(str(tmp_path / "in"), str(tmp_path / "out")).plan()
    assert {edge.upstream for edge in plan.edges} >= {"trades", "quotes", "last-quote"}
    assert market_sources("datagen", 100, None, None) == (
        Market(trades=100).trades_source(),
        Market(trades=100).quotes_source(),
    )
    topics = market_sources("kafka://localhost:9092/market?until=latest", 1, None, None)
    assert topics == tuple(
        KafkaSource(
            "localhost:9092", f"market-{name}", schema, until="latest", batch_messages=10_000
        )
        for name, schema in (("trades", TRADE), ("quotes", QUOTE))
    )


def test_topics_are_read_and_written_with_the_symbol_as_key() -> None:
    """Goal: the sink's encoder takes every column of the result."""
    plan = pipeline("kafka://localhost:9092/market", "kafka://localhost:9092/slippage").plan()
    (node,) = [vertex.sink for vertex in plan.vertices if vertex.sink is not None]
    assert node.sink == KafkaSink("localhost:9092", "slippage", key="symbol")
