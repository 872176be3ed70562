"""Columns of another type are found before anything is changed, wherever rows of them are."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.driver.recovery.stored_columns import column_mismatches
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

ROWS = 80
SPLITS = [
    pa.table(
        {
            "k": [f"k{i % 3}" for i in range(ROWS)],
            "v": [10 * split + i for i in range(ROWS)],
            "ts": pa.array([i * 1_000_000 for i in range(ROWS)], pa.timestamp("us", "UTC")),
        }
    )
    for split in range(2)
]


def as_they_are(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def floating(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "v", batch.column("v").cast(pa.float64()))


Build = Callable[[Callable, Ledger], Plan]


def running(function: Callable, ledger: Ledger) -> Plan:
    p = Pipeline("simulated")
    rows = (
        p.source("in", MemorySource(SPLITS), rows_per_second=400)
        .map(function, name="values")
        .key_by("k")
    )
    rows.aggregate("totals", agg.sum("v")).sink("out", LedgerSink(ledger))
    return p.plan()


def windowed(function: Callable, ledger: Ledger) -> Plan:
    p = Pipeline("simulated")
    rows = p.source("in", MemorySource(SPLITS), rows_per_second=400).map(function, name="values")
    rows = rows.watermark("ts", max_delay="5 seconds").key_by("k").window(windows.tumbling("1 day"))
    rows.aggregate("totals", agg.sum("v")).sink("out", LedgerSink(ledger))
    return p.plan()


def killed(simulation: Simulation) -> Simulation:
    simulation.when(CheckpointCompleted, simulation.kill_driver, 2)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return simulation


def newest(simulation: Simulation) -> CheckpointManifest:
    return simulation.store.manifests.read(simulation.store.manifests.ids()[-1])


@pytest.mark.parametrize("build", [running, windowed])
def test_state_of_another_type_is_refused_before_the_start(build: Build) -> None:
    ledger = Ledger()
    often = CoordinatorConfig(interval_ms=10)
    simulation = killed(Simulation(build(as_they_are, ledger), checkpoint=often))
    manifest, store = newest(simulation), simulation.store
    assert any(e.segments for e in manifest.subtasks if e.operator_id == "totals")
    assert list(column_mismatches(manifest, simulation.plan, store)) == []
    starts = sum(isinstance(event, GenerationStarted) for event in simulation.events)
    simulation.plan = build(floating, ledger)
    with pytest.raises(
        IncompatibleStateError, match=r"state of totals .*sum\(v\) was int64, is double;"
    ) as refused:
        simulation.run()
    assert refused.value.code is ErrorCode.OPERATORS_CHANGED
    assert sum(isinstance(event, GenerationStarted) for event in simulation.events) == starts
    assert store.generations.bases()[-1].generation == 1  # Nothing was written down.


def test_rows_in_flight_of_other_columns_are_found_once_for_each_edge() -> None:
    job = SCENARIOS["mesh"](2)
    overtaking = CoordinatorConfig(interval_ms=10, alignment_timeout_ms=0)
    simulation = Simulation(job.plan, checkpoint=overtaking, objects=SimulatedDisk(), seed=3)
    job.burden.row_ms, job.burden.spend = 20.0, simulation.world.spend
    killed(simulation)
    manifest, store, plan = newest(simulation), simulation.store, job.plan
    assert manifest.inflight_data
    assert list(column_mismatches(manifest, plan, store)) == []
    other = tuple(replace(edge, schema=pa.schema([("x", pa.int8())])) for edge in plan.edges)
    found = list(column_mismatches(manifest, replace(plan, edges=other), store))
    assert len(found) == len({entry.edge for entry in manifest.inflight_data})
    said = str(found[0].error)
    in_flight = [e for e in manifest.inflight_data if e.edge.downstream == "same"]
    rows, number = sum(entry.row_count for entry in in_flight), manifest.checkpoint_id
    where = f"than {rows} rows in flight from in to same in checkpoint {number}"
    assert f"{where}: id was int64, is absent" in said
    assert rows
