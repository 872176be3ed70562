"""Whole jobs as every released format left them: they go on, exactly, with any number of workers.

All were killed after their second checkpoint, which has window state, rows in flight on the keyed
edge, collected rows and two sources in the middle of their splits. ``store_v1`` was written by the
code before manifest version 2 (state as plain Arrow files, bases without a digest or a copy).

Commits that added the stores: 2741c6a (versions 1 and 2), 8a887fc (3), 73f0b24 (4), 2327e7c
(5), "Manifest 6 has a golden store, a benchmark and its documents" (6) and "Manifest 7 has a golden
store and its documents" (7).
"""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from laminar_core.worker.outputs import edge_entry

GOLDEN = Path(__file__).parent.parent / "golden"
VERSIONS = [1, 2, 3, 4, 5, 6, 7]
"""Versions of the manifest."""
SECOND, SIZE = 1_000_000, 20
ROWS = [
    [{"k": f"k{(7 * i + split) % 5}", "v": 10 * split + i, "ts": i * SECOND} for i in range(60)]
    for split in range(2)
]
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def plan() -> Plan:
    """Nothing in it is described by its code."""
    tables = [pa.Table.from_pylist(rows, schema=SCHEMA) for rows in ROWS]
    p = Pipeline("simulated")
    read = p.source("in", MemorySource(tables, batch_rows=2), rows_per_second=400)
    keyed = read.watermark("ts", max_delay="5 seconds").rebalance().key_by("k")
    wanted = (agg.count(), agg.sum("v"), agg.avg("v"), agg.min("v"))
    totals = keyed.window(windows.tumbling(f"{SIZE} seconds")).aggregate("totals", *wanted)
    totals.sink("out", CollectSink())
    return p.plan()


def expected() -> list[tuple]:
    values: dict[tuple[str, int], list[int]] = {}
    for row in (row for rows in ROWS for row in rows):
        start = row["ts"] // SECOND // SIZE * SIZE
        values.setdefault((row["k"], start), []).append(row["v"])
    return sorted((*k, len(v), sum(v), sum(v) / len(v), min(v)) for k, v in values.items())


def write(folder: Path) -> None:
    """Make a golden store with the code of today.

    Both splits have to be in their last window: a single worker reads one after the other, and
    earlier rows of the second one would be late.
    """
    overtaking = CoordinatorConfig(interval_ms=80, alignment_timeout_ms=0)
    simulation = Simulation(plan(), checkpoint=overtaking, objects=LocalObjectStore(folder))
    simulation.when(CheckpointCompleted, simulation.kill_driver, 2)
    with pytest.raises(ProcessKilledError):
        simulation.run()


def manifests(version: int) -> list[CheckpointManifest]:
    """Return the manifests of a golden store, oldest first."""
    folder = GOLDEN / f"store_v{version}" / "simulated" / "checkpoints"
    return [parse_manifest(path.read_bytes()) for path in sorted(folder.glob("*/manifest.json"))]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_of_an_old_store_goes_on(version: int, workers: int, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / f"store_v{version}", tmp_path / "store")
    simulation = Simulation(
        plan(), parallelism=workers, objects=LocalObjectStore(tmp_path / "store"), first_driver=9
    )
    manifest = simulation.store.manifests.read(simulation.store.manifests.ids()[-1])
    assert manifest.inflight_data
    assert all(
        any(e.segments for e in manifest.subtasks if e.operator_id == operator_id)
        for operator_id in ("in", "totals", "out")
    )
    result = simulation.run()
    start = next(event for event in simulation.events if isinstance(event, GenerationStarted))
    assert (start.restored_checkpoint_id, start.rejected) == (2, ())
    found = [
        (r["k"], r["window_start"].timestamp(), r["count"], r["sum_v"], r["avg_v"], r["min_v"])
        for r in result.collected["out"].to_pylist()
    ]
    assert sorted(found) == expected()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unchanged_pipeline_has_the_fingerprints_that_it_always_had(version: int) -> None:
    (manifest, _), now = manifests(version), plan().descriptions()
    assert manifest.fingerprint == {name: fingerprint_of(text) for name, text in now.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_manifest_has_the_edges_of_its_pipeline(version: int) -> None:
    edges = tuple(edge_entry(plan(), edge) for edge in plan().edges)
    assert [manifest.edges for manifest in manifests(version)] == [edges, edges]
    assert {str(edge.partitioning) for edge in edges} == {"rebalance", "keyed"}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_checkpoint_of_an_old_store_is_whole(version: int, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / f"store_v{version}", tmp_path / "store")
    store = Simulation(plan(), objects=LocalObjectStore(tmp_path / "store")).store
    assert [store.verify(i).problem for i in store.manifests.ids()] == [None, None]
