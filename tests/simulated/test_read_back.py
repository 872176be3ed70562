"""The rows that are read of a checkpoint are those that a restart would continue with.

Method: simulated jobs that write their state in pieces; every checkpoint is restored by the
operators themselves, and read without them. Both have the same rows.
"""

from dataclasses import replace

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.operators import agg, windows
from laminar_core.operators.base import AnySpec, Snapshot, SubtaskContext
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.plan.state_options import SnapshotMode, StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.store.comparison import compare_operator
from laminar_core.store.state_reading import read_rows
from laminar_core.testing.jobs import DELAY, payments, windowed
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

KEYED = ("window-aggregate", "running-aggregate")
WORKERS = 2


def windows_job() -> Plan:
    """Windows over windows, of a source that takes its time."""
    p = Pipeline("windows")
    rows = p.source("in", MemorySource(payments(), gap_every=1, gap_polls=9))
    totals = windowed(rows.watermark("ts", max_delay=DELAY))
    again = (
        totals.key_by("key")
        .window(windows.tumbling("20 seconds"), time="window_start")
        .aggregate("again", agg.sum("count", name="count"), agg.max("total", name="most"))
    )
    again.sink("out", CollectSink())
    return p.plan()


def running_job() -> Plan:
    """Totals that are wanted after every batch."""
    p = Pipeline("running")
    rows = p.source("in", MemorySource(payments(), gap_every=1, gap_polls=9))
    totals = rows.key_by("key").aggregate("totals", agg.count(), agg.avg("value"))
    totals.sink("out", CollectSink())
    return p.plan()


def simulate(plan: Plan, mode: SnapshotMode) -> Simulation:
    checkpoint = CoordinatorConfig(interval_ms=4)
    simulation = Simulation(plan, parallelism=WORKERS, checkpoint=checkpoint)
    state = StateOptions(
        snapshots=mode, segments_max=3, changelog_interval_ms=3, simulated_files=True
    )
    simulation.options = replace(simulation.options, state=state)
    simulation.run()
    return simulation


def keyed_operators(simulation: Simulation) -> dict[str, tuple[AnySpec, tuple[pa.Schema, ...]]]:
    return {
        spec.operator_id: (spec, inputs)
        for vertex in simulation.plan.vertices
        for spec, inputs in vertex.operators_with_inputs()
        if spec.describe()["kind"] in KEYED
    }


def restored(
    simulation: Simulation,
    manifest: CheckpointManifest,
    entry: SubtaskEntry,
) -> pa.Table | None:
    """The state as the operator has it after a restart; None if it holds no rows."""
    spec, inputs = keyed_operators(simulation)[entry.operator_id]
    context = SubtaskContext(
        entry.operator_id,
        entry.subtask_index,
        WORKERS,
        manifest.max_parallelism,
        Generation(manifest.generation),
    )
    subtask = spec.open(context, *inputs)
    tables = map(simulation.store.parts.read_state, entry.segments)
    subtask.restore([Snapshot.of(tables, dict(entry.properties))])
    found = list(subtask.snapshot(CheckpointId(1))().rows())
    return pa.concat_tables(found) if found else None


def ordered(table: pa.Table | None) -> list[str]:
    return [] if table is None else sorted(map(str, table.to_pylist()))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["full", "incremental", "changelog"])
@pytest.mark.parametrize("build", [windows_job, running_job])
def test_rows_are_those_of_a_restart(build, mode):
    simulation = simulate(build(), mode)
    store, operators = simulation.store, keyed_operators(simulation)
    assert operators
    pieces = 0
    for checkpoint_id in store.manifests.ids():
        manifest = store.manifests.read(checkpoint_id)
        for entry in manifest.subtasks:
            if entry.operator_id in operators:
                rows = read_rows(store.parts, manifest, entry)
                assert ordered(rows) == ordered(restored(simulation, manifest, entry))
                pieces = max(pieces, len(entry.segments))
    assert (pieces > 1) == (mode != "full")


def test_between_two_checkpoints_changes_add_up():
    """Keys before, less those removed, and those added, are the keys after."""
    simulation = simulate(windows_job(), "incremental")
    store = simulation.store
    manifests = [store.manifests.read(checkpoint_id) for checkpoint_id in store.manifests.ids()]
    sizes = [count(simulation, manifest) for manifest in manifests]
    assert max(sizes) > 0
    for before, after, then, now in zip(manifests, manifests[1:], sizes, sizes[1:], strict=False):
        operators = keyed_operators(simulation)
        found = [compare_operator(store.parts, before, after, each) for each in operators]
        added, removed, changed = (
            sum(one.count(kind) for one in found) for kind in ("added", "removed", "changed")
        )
        unchanged = sum(one.unchanged_count for one in found)
        assert (then, now) == (removed + changed + unchanged, added + changed + unchanged)


def count(simulation: Simulation, manifest: CheckpointManifest) -> int:
    entries = [e for e in manifest.subtasks if e.operator_id in keyed_operators(simulation)]
    tables = [read_rows(simulation.store.parts, manifest, entry) for entry in entries]
    return sum(table.num_rows for table in tables if table is not None)
