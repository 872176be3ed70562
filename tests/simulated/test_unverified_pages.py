"""A job that does not verify pages: its checkpoints say so, and the choice may change."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.operators.base import JsonObject
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.simulation import Simulation

ROWS = 200


def plan(folder: Path, ledger: Ledger, *, verify_pages: bool) -> Plan:
    source = ParquetSource(folder, batch_rows=3, verify_pages=verify_pages)
    p = Pipeline("pages")
    p.source("in", source).sink("out", LedgerSink(ledger, "out"))
    return p.plan()


def recorded(simulation: Simulation) -> list[tuple[int, JsonObject]]:
    """Return generation and properties of the source's subtask, of each checkpoint."""
    manifests = simulation.store.manifests
    found = [manifests.read(checkpoint_id) for checkpoint_id in manifests.ids()]
    return [
        (manifest.generation, dict(entry.properties))
        for manifest in found
        for entry in manifest.subtasks
        if entry.operator_id == "in"
    ]


def test_each_checkpoint_says_so_and_a_restart_may_verify_again(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(ROWS)}), tmp_path / "a.parquet", row_group_size=50)
    ledger = Ledger()
    trusting = plan(tmp_path, ledger, verify_pages=False)
    simulation = Simulation(trusting, parallelism=1, checkpoint=CoordinatorConfig(10))

    def verify_from_now_on() -> None:
        simulation.plan = plan(tmp_path, ledger, verify_pages=True)
        simulation.kill_driver()

    simulation.when(CheckpointCompleted, verify_from_now_on, 2)
    simulation.run_to_end()
    assert sorted(row["n"] for row in ledger.rows()) == list(range(ROWS))
    said = recorded(simulation)
    assert {generation for generation, _ in said} == {1, 2}
    for generation, properties in said:
        assert properties == ({"pages_verified": False} if generation == 1 else {})
