"""Savepoints that are written from tables: jobs start from them, and go on as if they had run."""

from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.savepoint_writer import SavepointWriter
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.opening import open_object_store
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.state.splits import at_rows
from laminar_core.store.savepoint_export import export_savepoint
from laminar_core.store.savepoints import read_savepoint
from laminar_core.store.state_reading import read_operator
from laminar_core.testing.jobs import DELAY, payments, rows_of
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

ANN = Actor("ann", ActorKind.PERSON, "a test")
TABLES = payments(4, 60)
KEYS = sorted({str(row["key"]) for row in rows_of(TABLES)})


def totals_of(ledger: Ledger) -> Plan:
    p = Pipeline("simulated")
    rows = p.source("in", MemorySource(TABLES), rows_per_second=400)
    totals = rows.key_by("key").aggregate("totals", agg.sum("value", name="total"), agg.count())
    totals.sink("out", LedgerSink(ledger))
    return p.plan()


def windows_of(ledger: Ledger, *, late_rows: bool = False) -> Plan:
    p = Pipeline("simulated")
    rows = p.source("in", MemorySource(TABLES), rows_per_second=400)
    by_key = rows.watermark("ts", max_delay=DELAY, name="time").key_by("key")
    totals = by_key.window(windows.tumbling("10 seconds")).aggregate(
        "totals", agg.count(), agg.sum("value", name="total"), late_rows=late_rows
    )
    totals.sink("out", LedgerSink(ledger))
    return p.plan()


def earlier(total: int = 1000) -> pa.Table:
    """Return state of each key, and of one that never comes again."""
    names = [*KEYS, "old"]
    count = len(names)
    columns = {"key": names, "count(*)": [1] * count, "sum(value)": [total] * count}
    return pa.table(columns)


def counted(since: int = 0) -> dict[str, int]:
    """Return the sums of all rows from this one on, of each split."""
    found = dict.fromkeys(KEYS, 0)
    for table in TABLES:
        for row in table.slice(since).to_pylist():
            found[row["key"]] += row["value"]
    return found


def last_totals(ledger: Ledger) -> dict[str, int]:
    return {str(row["key"]): int(str(row["total"])) for row in ledger.rows()}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_new_job_begins_with_state_that_somebody_computed(tmp_path: Path, workers: int) -> None:
    ledger, place = Ledger(), str(tmp_path / "first")
    plan = totals_of(ledger)
    writer = SavepointWriter(plan, "simulated")
    writer.state("totals", earlier())
    record = writer.write(place, ANN, 7)
    assert (record.actor, record.reason, record.created_at_ms) == ("ann", "a test", 7)
    assert read_savepoint(open_object_store(place)).verify().problem is None
    simulation = Simulation(plan, parallelism=workers)
    assert simulation.run(from_savepoint=place).outcome == "finished"
    assert last_totals(ledger) == {key: total + 1000 for key, total in counted().items()}
    manifests = simulation.store.manifests
    state = read_operator(simulation.store.parts, manifests.read(manifests.ids()[-1]), "totals")
    assert state is not None
    (old,) = (row for row in state.to_pylist() if row["key"] == "old")
    assert (old["count(*)"], old["sum(value)"]) == (1, 1000)


def test_sources_go_on_at_positions_that_are_given(tmp_path: Path) -> None:
    ledger, place = Ledger(), str(tmp_path / "first")
    plan = totals_of(ledger)
    writer = SavepointWriter(plan, "simulated")
    splits = writer.beginning("in")
    writer.positions("in", at_rows(splits, pa.array([50] * splits.num_rows).to_numpy()))
    writer.write(place, ANN, 7)
    assert Simulation(plan).run(from_savepoint=place).outcome == "finished"
    assert last_totals(ledger) == {k: n for k, n in counted(50).items() if k in last_totals(ledger)}
    assert sum(last_totals(ledger).values()) == sum(counted(50).values())


@pytest.mark.parametrize("late_rows", [False, True])
def test_windows_that_are_open_get_the_rows_that_are_given(
    tmp_path: Path, *, late_rows: bool
) -> None:
    ledger, place = Ledger(), str(tmp_path / "first")
    plan = windows_of(ledger, late_rows=late_rows)
    writer = SavepointWriter(plan, "simulated")
    kind = writer.columns("totals").field("window_start").type
    given = {"key": ["k1"], "window_start": pa.array([0], kind)}
    writer.state("totals", pa.table({**given, "count(*)": [100], "sum(value)": [5_000]}))
    writer.write(place, ANN, 7)
    assert Simulation(plan).run(from_savepoint=place).outcome == "finished"
    counts = [int(str(row["count"])) for row in ledger.rows()]
    assert sum(counts) == sum(table.num_rows for table in TABLES) + 100
    assert max(counts) >= 100


def stopped(ledger: Ledger) -> Simulation:
    simulation = Simulation(totals_of(ledger), parallelism=2)
    simulation.when(CheckpointCompleted, simulation.stop, 1)
    assert simulation.run().outcome == "stopped"
    return simulation


@pytest.mark.parametrize("workers", [1, 2])
def test_one_key_is_repaired_and_the_job_goes_on(tmp_path: Path, workers: int) -> None:
    ledger, before, after = Ledger(), str(tmp_path / "before"), str(tmp_path / "after")
    simulation = stopped(ledger)
    newest = simulation.store.manifests.ids()[-1]
    export_savepoint(simulation.store, newest, before, ANN, 7)
    found = read_savepoint(open_object_store(before))
    writer = SavepointWriter(totals_of(ledger), "simulated", base=before)
    rows = writer.rows("totals").to_pylist()
    wrong = next(row for row in rows if row["key"] == "k1")
    wrong["sum(value)"] += 1_000_000
    writer.state("totals", pa.Table.from_pylist(rows, writer.columns("totals")))
    writer.write(after, ANN, 8)
    repaired = read_savepoint(open_object_store(after)).record
    assert repaired.origin == found.record.origin
    again = simulation.run(from_savepoint=after, parallelism=workers)
    assert again.outcome == "finished"
    assert last_totals(ledger) == {
        key: total + 1_000_000 * (key == "k1") for key, total in counted().items()
    }


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("important")
    writer = SavepointWriter(totals_of(Ledger()), "simulated")
    with pytest.raises(ConfigurationError, match="is not empty") as refused:
        writer.write(str(tmp_path), ANN, 7)
    assert refused.value.code is ErrorCode.TARGET_NOT_EMPTY


def test_rows_that_are_no_state_are_refused() -> None:
    writer = SavepointWriter(totals_of(Ledger()), "simulated")
    with pytest.raises(ConfigurationError, match=r"sum\(value\) was absent, is int64"):
        writer.state("totals", earlier().drop_columns(["sum(value)"]))
    with pytest.raises(ConfigurationError, match="16 rows of totals have 8 keys"):
        writer.state("totals", pa.concat_tables([earlier(), earlier()]))
    with pytest.raises(ConfigurationError, match=r"no operator sums .* it has: totals"):
        writer.state("sums", earlier())
    with pytest.raises(ConfigurationError, match="totals has no table 'left' of state"):
        writer.state("totals", earlier(), "left")
    with pytest.raises(ConfigurationError, match="no source out; it has: in"):
        writer.beginning("out")
    with pytest.raises(ConfigurationError, match="these are not the 4 splits of in"):
        writer.positions("in", writer.beginning("in").slice(1))


def test_a_savepoint_of_another_pipeline_is_no_base(tmp_path: Path) -> None:
    place = str(tmp_path / "first")
    SavepointWriter(totals_of(Ledger()), "simulated").write(place, ANN, 7)
    with pytest.raises(ConfigurationError, match=r"is of another pipeline \(.*totals"):
        SavepointWriter(windows_of(Ledger()), "simulated", base=place)
