"""Aggregate state in whole jobs: restarts in the middle, and a definition that has changed."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import Aggregate
from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.keyed import KeyedStream
from laminar_core.plan.plan import Plan
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

KEYS = ("a", "b", "c", None)
ROWS_PER_SPLIT = 120
TIME = pa.timestamp("us", "UTC")
MANY = (
    agg.count(), agg.sum("v", name="total"), agg.avg("v"), agg.var_pop("v"), agg.max("v"),
    agg.first("v", by="ts"), agg.count_distinct("v"), agg.percentile("v", 0.5),
)  # fmt: skip
Build = Callable[[KeyedStream], object]


def splits() -> list[pa.Table]:
    return [
        pa.table(
            {
                "k": [KEYS[(i * 7 + split) % 4] for i in range(ROWS_PER_SPLIT)],
                "v": [i % 5 + split for i in range(ROWS_PER_SPLIT)],
                "ts": pa.array(
                    [i * 1_000_000 for i in range(ROWS_PER_SPLIT)], pa.timestamp("us", "UTC")
                ),
            }
        )
        for split in range(2)
    ]


def rows() -> list[dict]:
    return [row for split in splits() for row in split.to_pylist()]


def source() -> MemorySource:
    return MemorySource(splits(), batch_rows=3, gap_every=1, gap_polls=6)


def running(ledger: Ledger, *aggregates: Aggregate, name: str = "totals") -> Plan:
    p = Pipeline("p")
    keyed = p.source("in", source()).rebalance().key_by("k")
    keyed.aggregate(name, *aggregates).sink("out", LedgerSink(ledger))
    return p.plan()


def windowed(ledger: Ledger) -> Plan:
    p = Pipeline("p")
    stream = p.source(
        "in", MemorySource(splits(), batch_rows=3, gap_every=1, gap_polls=6)
    ).watermark("ts")
    keyed = stream.key_by("k").window(windows.tumbling("20 seconds"))
    keyed.aggregate("windows", *MANY).sink("out", LedgerSink(ledger))
    return p.plan()


def stopped_after(
    plan: Plan, checkpoints: int, *, seed: int, state: StateOptions | None = None
) -> Simulation:
    """Run until so many checkpoints have completed, then stop with one more."""
    config = CoordinatorConfig(interval_ms=10)
    simulation = Simulation(plan, seed=seed, parallelism=2, checkpoint=config)
    simulation.when(CheckpointCompleted, simulation.stop, checkpoints)
    assert simulation.run(state=state or StateOptions()).outcome == "stopped"
    return simulation


def continued(before: Simulation, plan: Plan, *, parallelism: int = 2) -> Simulation:
    return Simulation(plan, seed=9, parallelism=parallelism, objects=before.objects, first_driver=2)


def expected(of: list[dict]) -> dict:
    values = [row["v"] for row in of]
    mean = sum(values) / len(values)
    middle = sorted(values)
    half = len(values) // 2
    earliest = min(row["ts"] for row in of)
    return {
        "count": len(values),
        "total": sum(values),
        "avg_v": pytest.approx(mean),
        "var_pop_v": pytest.approx(sum((value - mean) ** 2 for value in values) / len(values)),
        "max_v": max(values),
        "first_v": min(row["v"] for row in of if row["ts"] == earliest),
        "count_distinct_v": len(set(values)),
        "percentile_v": (middle[half] + middle[(len(values) - 1) // 2]) / 2,
    }


def newest_totals(ledger: Ledger) -> dict:
    """An upsert stream as a table: the last row of each key."""
    return {row["k"]: {n: v for n, v in row.items() if n != "k"} for row in ledger.rows()}


def assert_whole(ledger: Ledger) -> None:
    of_key = {key: [row for row in rows() if row["k"] == key] for key in KEYS}
    assert newest_totals(ledger) == {key: expected(of) for key, of in of_key.items()}
    for key, of in of_key.items():
        counts = [row["count"] for row in ledger.rows() if row["k"] == key]
        assert counts == sorted(set(counts)), "no total is told twice, or goes back"
        assert counts[-1] == len(of)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("parallelism", "state"),
    [
        (2, StateOptions()),
        (3, StateOptions(segments_max=2)),
        (1, StateOptions(snapshots="full")),
        (2, StateOptions(snapshots="changelog", changelog_interval_ms=5)),
    ],
)
def test_running_totals_continue_after_a_restart(parallelism: int, state: StateOptions) -> None:
    """The document: checkpoint, restart, restore, totals continue; here rescaled, too."""
    ledger = Ledger()
    first = stopped_after(running(ledger, *MANY), 4, seed=parallelism, state=state)
    so_far = sum(row["count"] for row in newest_totals(ledger).values())
    assert 0 < so_far < 2 * ROWS_PER_SPLIT, "the stop is in the middle"
    second = continued(first, running(ledger, *MANY), parallelism=parallelism)
    assert second.run().outcome == "finished"
    assert_whole(ledger)


@pytest.mark.large
@pytest.mark.parametrize("seed", range(2))
def test_running_totals_survive_kills(seed: int) -> None:
    ledger = Ledger()
    config = CoordinatorConfig(interval_ms=15)
    simulation = Simulation(running(ledger, *MANY), seed=seed, checkpoint=config)
    simulation.world.at_turn(150 + 40 * seed, lambda: simulation.kill_worker(seed % 2))
    simulation.world.at_turn(450 + 60 * seed, simulation.kill_driver)
    simulation.run_to_end()
    assert_whole(ledger)


@pytest.mark.parametrize(
    "state", [StateOptions(), StateOptions(backend="rocksdb", simulated_files=True)]
)
def test_a_window_that_was_open_at_the_checkpoint_closes_right(state: StateOptions) -> None:
    """The document: checkpoint with EOWC, restart in mid-window, the window closes correctly."""
    ledger = Ledger()
    first = stopped_after(windowed(ledger), 2, seed=1, state=state)
    assert len(ledger.rows()) < 6 * len(KEYS), "the stop is in the middle"
    assert continued(first, windowed(ledger)).run(state=state).outcome == "finished"
    windows_of: dict = {}
    for row in rows():
        windows_of.setdefault((row["k"], row["ts"].timestamp() // 20), []).append(row)
    found = {}
    for row in ledger.rows():
        start = row.pop("window_start")
        del row["window_end"]
        key = row.pop("k"), start.timestamp() // 20
        assert key not in found, "a window fires once"
        found[key] = row
    assert found == {key: expected(of) for key, of in windows_of.items()}


def floats_and_structs() -> list[pa.Table]:
    """Keys with both zeros, NaN, and structs with nulls."""
    numbers = [0.0, -0.0, float("nan"), -1.5, None]
    places = [{"shop": "a", "x": 0.0}, {"shop": "a", "x": -0.0}, {"shop": None, "x": None}, None]
    return [
        table.append_column("x", pa.array([numbers[(i + 3 * n) % 5] for i in range(len(table))]))
        .append_column("place", pa.array([places[(i + n) % 4] for i in range(len(table))]))
        .drop_columns(["k"])
        for n, table in enumerate(splits())
    ]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_floats_and_structs_are_keys(parallelism: int, backend: str) -> None:
    """Goal: one group per key over an exchange, a restart and a rescale, as Spark groups."""
    ledger, tables = Ledger(), floats_and_structs()
    state = StateOptions(backend=backend, simulated_files=True)  # type: ignore[arg-type]

    def plan() -> Plan:
        p = Pipeline("p")
        stream = p.source("in", MemorySource(tables, batch_rows=3, gap_every=1, gap_polls=6))
        keyed = stream.watermark("ts", max_delay="2 minutes").rebalance().key_by("x", "place")
        counts = keyed.window(windows.tumbling("30 seconds")).aggregate("n", agg.count())
        counts.sink("out", LedgerSink(ledger))
        return p.plan()

    first = stopped_after(plan(), 2, seed=1, state=state)
    second = continued(first, plan(), parallelism=parallelism)
    assert second.run(state=state).outcome == "finished"
    expected: dict[str, int] = {}
    for row in (row for table in tables for row in table.to_pylist()):
        key = str((row["x"], row["place"], row["ts"].timestamp() // 30)).replace("-0.0", "0.0")
        expected[key] = expected.get(key, 0) + 1
    found = {
        str((row["x"], row["place"], row["window_start"].timestamp() // 30)): row["count"]
        for row in ledger.rows()
    }
    assert found == expected
    assert len(ledger.rows()) == len(expected)


def test_a_changed_definition_is_refused_and_reset_only_with_the_sources() -> None:
    """The document: old state discarded, new state starts fresh. ERRATA 1.1: on request only, and
    then the sources are read from their beginning, too.
    """
    ledger = Ledger()
    first = stopped_after(running(ledger, agg.sum("v", name="total")), 2, seed=1)
    changed = running(ledger, agg.count())
    with pytest.raises(
        IncompatibleStateError,
        match=r"the state of totals .* has sum\(v\), which nothing needs any more",
    ) as caught:
        continued(first, changed).run()
    assert caught.value.code is ErrorCode.OPERATORS_CHANGED
    second = continued(first, changed)
    assert second.run(reset_state=("totals",)).outcome == "finished"
    [started] = [event for event in second.events if isinstance(event, GenerationStarted)]
    assert started.restored_checkpoint_id is None
    assert "all state is dropped, all sources start anew" in started.reset[0]
    assert any(line.startswith("totals: changed, aggregates was") for line in started.reset)
    counts = {row["k"]: row["count"] for row in ledger.rows()}
    assert counts == {key: sum(row["k"] == key for row in rows()) for key in KEYS}
    assert all("total" not in row for row in ledger.rows()), "what was shown before is withdrawn"


def test_after_a_reset_the_job_goes_on_from_its_own_checkpoints() -> None:
    """Goal: a reset is for one start; a failure after it restores what came after it."""
    ledger = Ledger()
    first = stopped_after(running(ledger, agg.sum("v", name="total")), 2, seed=1)
    second = continued(first, running(ledger, *MANY))
    second.options = second.options.__class__(
        **{
            **{f: getattr(second.options, f) for f in second.options.__slots__},
            "reset_state": ("totals",),
            "checkpoint": CoordinatorConfig(interval_ms=10),
        }
    )
    second.when(CheckpointCompleted, lambda: second.kill_worker(0), 2)
    assert second.run().generations == 2
    started = [event for event in second.events if isinstance(event, GenerationStarted)]
    assert [bool(event.reset) for event in started] == [True, False]
    assert started[1].restored_checkpoint_id is not None
    assert_whole(ledger)
