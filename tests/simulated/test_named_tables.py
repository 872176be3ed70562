"""Jobs whose operator keeps several tables, in simulated clusters that crash and change workers."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.errors import IncompatibleStateError
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Keyed, Plan
from laminar_core.plan.state_options import BackendName, SnapshotMode, StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.actor import Actor
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.state.named_tables import TableLayout
from laminar_core.store import compare_operator, read_operator, table_names
from laminar_core.store.savepoints import read_savepoint, write_savepoint
from laminar_core.store.state_reading import SavepointFiles
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.driver.drill.test_drill import drill
from tests.operators import outer_join
from tests.operators.outer_join import LAYOUTS, SECOND_US, OuterJoin, OuterJoiner, expected

ROWS = 60


def tables() -> list[pa.Table]:
    """Three splits; times go up, so with a delay of some seconds no row is late."""
    return [
        pa.Table.from_pylist(
            [
                {
                    "key": f"k{(n + split) % 5}",
                    "ts": (n // 3) * SECOND_US,
                    "side": "left" if (n + split) % 4 else "right",
                    "value": n,
                }
                for n in range(ROWS)
            ],
            schema=outer_join.INPUT,
        )
        for split in range(3)
    ]


def build() -> tuple[Plan, Ledger]:
    p, ledger = Pipeline("simulated"), Ledger()
    source = p.source("in", MemorySource(tables(), batch_rows=5, abreast=True), rows_per_second=80)
    stream = source.watermark("ts", max_delay="5 seconds")
    stream.then(OuterJoin("join"), Keyed(("key",))).sink("out", LedgerSink(ledger))
    return p.plan(), ledger


def simulated(
    plan: Plan, snapshots: SnapshotMode, backend: BackendName = "memory", **options: Any
) -> Simulation:
    checkpoint = CoordinatorConfig(interval_ms=4, alignment_timeout_ms=0, tolerable_failures=None)
    simulation = Simulation(plan, checkpoint=checkpoint, **options)
    state = StateOptions(
        snapshots,
        segments_max=2,
        changelog_interval_ms=3,
        backend=backend,
        memory_bytes=64 << 20,
        simulated_files=True,
    )
    simulation.options = replace(simulation.options, state=state)
    return simulation


def manifests(simulation: Simulation) -> list[CheckpointManifest]:
    return [simulation.store.manifests.read(n) for n in simulation.store.manifests.ids()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("snapshots", ["full", "incremental", "changelog"])
def test_from_one_to_three_to_two_workers_the_result_is_exact(
    snapshots: SnapshotMode, backend: BackendName
) -> None:
    """One part ends without a word, the next one is stopped, or all if there are files to close."""
    plan, ledger = build()
    objects, names = SimulatedDisk(), set()
    for part, parallelism in enumerate((1, 3, 3, 2)):
        simulation = simulated(
            plan,
            snapshots,
            backend,
            parallelism=parallelism,
            objects=objects,
            first_driver=part + 1,
        )
        if part in (0, 1, 2):
            killed = backend == "memory" and part != 1
            end = simulation.kill_driver if killed else simulation.stop
            simulation.when(CheckpointCompleted, end, 2)
            with pytest.raises(ProcessKilledError) if killed else nullcontext():
                assert simulation.run(take_over=True).outcome == "stopped"
        else:
            assert simulation.run(take_over=True).rows_late == 0
        made = manifests(simulation)
        names.update(name for manifest in made for name in table_names("join", manifest))
    assert Counter(tuple(row.values()) for row in ledger.rows()) == expected(
        [row for table in tables() for row in table.to_pylist()]
    )
    assert names == LAYOUTS.keys()


def interrupted(snapshots: SnapshotMode = "incremental", checkpoints: int = 7) -> Simulation:
    simulation = simulated(build()[0], snapshots, parallelism=2, objects=SimulatedDisk())
    simulation.when(CheckpointCompleted, simulation.kill_driver, checkpoints)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return simulation


def test_chains_are_merged_and_dropped_table_by_table() -> None:
    made = manifests(interrupted(checkpoints=12))
    assert made[-1].subtasks
    lengths = {
        name: max(
            sum(segment.table == name for segment in entry.segments)
            for manifest in made
            for entry in manifest.subtasks
        )
        for name in LAYOUTS
    }
    assert all(1 < length <= 4 * 2 for length in lengths.values()), lengths
    expired = [entry.expired_us for entry in made[-1].subtasks if entry.operator_id == "join"]
    assert all(at.keys() == {"left", "right"} for at in expired), expired


@pytest.mark.parametrize("snapshots", ["full", "incremental"])
def test_a_drill_proves_every_table(snapshots: SnapshotMode) -> None:
    simulation = interrupted(snapshots)
    record, _ = drill(simulation)
    assert (record.outcome, record.problems) == ("passed", ())
    (join,) = [operator for operator in record.operators if operator.operator_id == "join"]
    assert join.is_equal
    assert join.digest_expected is not None
    assert join.rows_restored > 0


def test_a_drill_notices_rows_of_a_table_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = interrupted()
    restore = OuterJoiner.restore

    def without_right(self, snapshots) -> None:
        left = [[table for table in s.tables if table.name != "right"] for s in snapshots]
        restore(self, [replace(s, tables=t) for s, t in zip(snapshots, left, strict=True)])

    monkeypatch.setattr(OuterJoiner, "restore", without_right)
    record, _ = drill(simulation)
    assert record.outcome == "failed"


def test_a_table_with_other_columns_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = interrupted()
    changed = outer_join.RIGHT.schema.set(3, pa.field("said", pa.binary()))
    other = TableLayout("right", changed, ("key",), "append")
    monkeypatch.setitem(LAYOUTS, "right", other)
    with pytest.raises(
        IncompatibleStateError, match=r"table right of join .*said was string, is binary"
    ):
        simulation.run(take_over=True)
    monkeypatch.delitem(LAYOUTS, "right")
    with pytest.raises(IncompatibleStateError):
        simulation.run(take_over=True)


@pytest.mark.parametrize("snapshots", ["full", "incremental"])
def test_a_savepoint_has_the_rows_of_every_table(snapshots: SnapshotMode) -> None:
    simulation = interrupted(snapshots)
    store, manifest = simulation.store, manifests(simulation)[-1]
    target = MemoryObjectStore()
    write_savepoint(store, manifest, target, Actor("ann", reason="a test"), 0)
    savepoint = read_savepoint(target)
    cut = savepoint.record.cut()
    assert savepoint.record.canonical == (snapshots == "full")
    assert table_names("join", cut) == table_names("join", manifest) == tuple(sorted(LAYOUTS))
    for name in LAYOUTS:
        assert rows(read_operator(SavepointFiles(savepoint), cut, "join", name)) == rows(
            read_operator(store.parts, manifest, "join", name)
        )


def rows(table: pa.Table | None) -> list[str]:
    assert table is not None
    assert table.num_rows
    return sorted(map(str, table.to_pylist()))


def test_differences_of_checkpoints_add_up_for_every_table() -> None:
    simulation = interrupted()
    parts = simulation.store.parts
    for before, after in pairwise(manifests(simulation)):
        for name in table_names("join", before, after):
            one = compare_operator(parts, before, after, "join", name)
            assert one.notes == ()
            then, now = (counted(read_operator(parts, m, "join", name)) for m in (before, after))
            added, removed = one.count("added"), one.count("removed")
            changed, unchanged = one.count("changed"), one.unchanged_count
            assert (then, now) == (removed + changed + unchanged, added + changed + unchanged)
            assert not changed or name == "seen"


def counted(table: pa.Table | None) -> int:
    return 0 if table is None else len({str(row) for row in table.to_pylist()})
