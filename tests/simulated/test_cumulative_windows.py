"""Cumulative windows in whole jobs are those of a loop over all rows, whatever happens."""

from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

SECONDS, STEP, SIZE = 120, 10, 60
TIME = pa.timestamp("us", "UTC")
Window = tuple[str, int, int]


def splits() -> list[pa.Table]:
    """Two splits, each a little out of order."""
    return [
        pa.table(
            {
                "k": [f"k{(i * 5 + split) % 3}" for i in range(SECONDS)],
                "v": [i % 7 + split for i in range(SECONDS)],
                "ts": pa.array([(i ^ 1) * 1_000_000 for i in range(SECONDS)], pa.int64()).cast(
                    TIME
                ),
            }
        )
        for split in range(2)
    ]


def expected() -> dict[Window, tuple[int, int]]:
    """A batch over all rows: each row counts in every window of its minute that it is before."""
    counts: Counter[Window] = Counter()
    totals: Counter[Window] = Counter()
    for row in (row for table in splits() for row in table.to_pylist()):
        second = int(row["ts"].timestamp())
        start = second // SIZE * SIZE
        for end in range(start + STEP, start + SIZE + 1, STEP):
            if second < end:
                counts[row["k"], start, end] += 1
                totals[row["k"], start, end] += row["v"]
    return {window: (counts[window], totals[window]) for window in counts}


def plan(ledger: Ledger) -> Plan:
    p = Pipeline("p")
    rows = p.source("in", MemorySource(splits(), batch_rows=3, gap_every=1, gap_polls=6))
    keyed = rows.watermark("ts", max_delay="2 minutes").rebalance().key_by("k")
    growing = keyed.window(windows.cumulative(timedelta(seconds=SIZE), timedelta(seconds=STEP)))
    growing.aggregate("so-far", agg.count(), agg.sum("v", name="total")).sink(
        "out", LedgerSink(ledger)
    )
    return p.plan()


def assert_whole(ledger: Ledger) -> None:
    found = [
        (
            (row["k"], int(row["window_start"].timestamp()), int(row["window_end"].timestamp())),
            (row["count"], row["total"]),
        )
        for row in ledger.rows()
    ]
    assert dict(found) == expected()
    assert len(found) == len(expected()), "a window fires once"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize(
    "state",
    [
        StateOptions(),
        StateOptions(snapshots="full"),
        StateOptions(snapshots="changelog", changelog_interval_ms=5),
        StateOptions(backend="rocksdb", simulated_files=True),
    ],
    ids=["increments", "full", "changelog", "rocksdb"],
)
def test_windows_are_those_of_a_batch_over_a_restart(parallelism: int, state: StateOptions) -> None:
    ledger, config = Ledger(), CoordinatorConfig(interval_ms=10)
    first = Simulation(plan(ledger), seed=parallelism, parallelism=2, checkpoint=config)
    first.when(CheckpointCompleted, first.stop, 3)
    assert first.run(state=state).outcome == "stopped"
    assert len(ledger.rows()) < len(expected())
    second = Simulation(
        plan(ledger), seed=9, parallelism=parallelism, objects=first.objects, first_driver=2
    )
    assert second.run(state=state).outcome == "finished"
    assert_whole(ledger)


@pytest.mark.parametrize("alignment_timeout_ms", [None, 0], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("seed", range(2))
def test_windows_are_those_of_a_batch_over_kills(
    seed: int, alignment_timeout_ms: int | None
) -> None:
    ledger = Ledger()
    config = CoordinatorConfig(interval_ms=15, alignment_timeout_ms=alignment_timeout_ms)
    simulation = Simulation(plan(ledger), seed=seed, checkpoint=config)
    simulation.world.at_turn(150 + 40 * seed, lambda: simulation.kill_worker(seed % 2))
    simulation.world.at_turn(450 + 60 * seed, simulation.kill_driver)
    simulation.run_to_end()
    assert_whole(ledger)
