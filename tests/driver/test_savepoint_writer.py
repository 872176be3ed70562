"""Savepoints that are written from tables: jobs start from them, and go on as if they had run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.savepoint_writer import SavepointWriter
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.opening import open_object_store
from laminar_core.operators import agg, windows
from laminar_core.operators.base import StatefulSpec
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.state.splits import at_rows
from laminar_core.store.savepoint_export import export_savepoint
from laminar_core.store.savepoints import read_savepoint
from laminar_core.store.source_positions import positions_of
from laminar_core.store.state_reading import read_operator
from laminar_core.testing.jobs import DELAY, Job, normal, payments, rows_of
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.scenarios import SCENARIOS
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


class Half:
    """A job of the campaign that is stopped in the midst, with all that it keeps as tables."""

    def __init__(self, name: str) -> None:
        self.name, self.job = name, SCENARIOS[name](2)
        self.simulation = Simulation(
            paced(self.job.plan), parallelism=2, checkpoint=CoordinatorConfig(interval_ms=60)
        )
        self.simulation.when(CheckpointCompleted, self.simulation.stop)
        assert self.simulation.run().outcome == "stopped"
        manifests = self.simulation.store.manifests
        self.cut = manifests.read(manifests.ids()[-1])

    @property
    def rows_late(self) -> int:
        counts = (e.properties.get("late_row_count", 0) for e in self.cut.subtasks)
        return sum(count for count in counts if isinstance(count, int))

    def event_time_us(self) -> int | None:
        known = [a.watermark_us for a in self.cut.alignment if a.watermark_us is not None]
        return min(known, default=None)

    def tables(self, plan: Plan) -> Iterator[tuple[str, str, pa.Table]]:
        """Yield the rows of each table of state, as any program reads them."""
        for vertex in plan.vertices:
            for spec, inputs in vertex.operators_with_inputs():
                names = spec.state_tables(*inputs) if isinstance(spec, StatefulSpec) else ()
                for name in names:
                    parts = self.simulation.store.parts
                    rows = read_operator(parts, self.cut, spec.operator_id, name)
                    if rows is not None:
                        yield spec.operator_id, name, rows.drop_columns(["key_group"])

    def moved(self, later: Job, place: str) -> dict[str, int]:
        """Write it as a savepoint of a new job; return how many rows each table has."""
        writer, counts = SavepointWriter(later.plan, "simulated"), dict[str, int]()
        for operator_id, name, rows in self.tables(later.plan):
            writer.state(operator_id, rows, name)
            counts[f"{operator_id}.{name}"] = rows.num_rows
        for node in later.plan.sources():
            splits = positions_of(node.operator_id, self.simulation.store, self.cut)
            assert splits is not None
            writer.positions(node.operator_id, splits)
        if (time_us := self.event_time_us()) is not None:
            writer.event_time(time_us)
        writer.write(place, ANN, 7)
        return counts


def paced(plan: Plan) -> Plan:
    """Return the plan with sources that read slowly enough to be stopped in the midst."""
    vertices = tuple(
        vertex
        if vertex.source is None
        else replace(vertex, source=replace(vertex.source, rows_per_second=200))
        for vertex in plan.vertices
    )
    return replace(plan, vertices=vertices)


KINDS = {
    "interval-join": {"join.left", "join.right"},
    "full-join": {"join.left", "join.right"},
    "as-of-join": {"join.newest", "join.right"},
    "sessions": {"sessions.sessions"},
    "late-sessions": {"sessions.sessions"},
    "windows-behind-sessions": {"sessions.sessions", "ended."},
    "process": {"by-hand.open", "by-hand.streak", "by-hand.event-timers"},
    "copies": {"once."},
    "sliding": {"sliding."},
    "running-totals": {"running."},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_state_moves_to_a_new_job(name: str, workers: int, tmp_path: Path) -> None:
    """Both jobs together have emitted the rows of one job that was not moved."""
    half, later, place = Half(name), SCENARIOS[name](workers), str(tmp_path / "moved")
    counts = half.moved(later, place)
    assert {table for table, count in counts.items() if count} >= KINDS[name], counts
    result = Simulation(paced(later.plan), parallelism=workers).run(from_savepoint=place)
    assert result.outcome == "finished"
    for output, ledger in later.ledgers.items():
        assert ledger.rows(), output
        rows = [*half.job.ledgers[output].rows(), *ledger.rows()]
        if later.judge is None:
            assert normal(rows) == normal(later.expected[output])
        else:
            assert list(later.judge(rows, half.rows_late + result.rows_late)) == []


def test_without_event_time_windows_that_ended_before_would_be_emitted_again(
    tmp_path: Path,
) -> None:
    half, later = Half("sliding"), SCENARIOS["sliding"](2)
    half.event_time_us = lambda: None
    half.moved(later, str(tmp_path / "moved"))
    Simulation(paced(later.plan)).run(from_savepoint=str(tmp_path / "moved"))
    rows = [*half.job.ledgers["out"].rows(), *later.ledgers["out"].rows()]
    assert len(rows) > len(later.expected["out"])


@pytest.mark.large
@pytest.mark.parametrize("workers", [1, 3])
def test_one_key_of_a_table_with_a_name_is_repaired(tmp_path: Path, workers: int) -> None:
    half, before, after = Half("process"), str(tmp_path / "before"), str(tmp_path / "after")
    export_savepoint(half.simulation.store, half.cut.checkpoint_id, before, ANN, 7)
    writer = SavepointWriter(half.simulation.plan, "simulated", base=before)
    rows = writer.rows("by-hand", "streak").to_pylist()
    (wrong,) = [row for row in rows if row["key"] == "k5"]
    wrong["streak"] += 1_000
    columns = writer.columns("by-hand", "streak")
    writer.state("by-hand", pa.Table.from_pylist(rows, columns), "streak")
    writer.write(after, ANN, 8)
    simulation = half.simulation
    assert simulation.run(from_savepoint=after, parallelism=workers).outcome == "finished"
    ledger = half.job.ledgers["out"]
    repaired = [row for row in ledger.rows() if int(str(row["streak"])) > 1_000]
    assert {row["key"] for row in repaired} == {"k5"}
    plain = [{**row, "streak": int(str(row["streak"])) % 1_000} for row in ledger.rows()]
    assert normal(plain) == normal(half.job.expected["out"])


def test_a_base_has_event_time_of_its_own(tmp_path: Path) -> None:
    SavepointWriter(totals_of(Ledger()), "simulated").write(str(tmp_path / "first"), ANN, 7)
    writer = SavepointWriter(totals_of(Ledger()), "simulated", base=str(tmp_path / "first"))
    with pytest.raises(ConfigurationError, match="a base has its own event time"):
        writer.event_time(7)


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


def test_nothing_is_given_twice() -> None:
    writer = SavepointWriter(totals_of(Ledger()), "simulated")
    writer.state("totals", earlier())
    with pytest.raises(ConfigurationError, match="the rows of totals are given twice"):
        writer.state("totals", earlier(7))
    writer.positions("in", writer.beginning("in"))
    with pytest.raises(ConfigurationError, match="the positions of in are given twice"):
        writer.positions("in", writer.beginning("in"))


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        (None, "a row of totals has no window_start"),
        (7, r"no window_start 1970-01-01T00:00:00.000007.00:00: .* tumbling windows of 10 s"),
    ],
)
def test_rows_of_windows_need_a_start(start: int | None, problem: str) -> None:
    writer = SavepointWriter(windows_of(Ledger()), "simulated")
    starts = pa.array([-10_000_000, start], writer.columns("totals").field("window_start").type)
    rows = {"key": ["k1", "k2"], "window_start": starts, "count(*)": [1, 1], "sum(value)": [1, 1]}
    with pytest.raises(ConfigurationError, match=problem):
        writer.state("totals", pa.table(rows))


def test_what_an_operator_cannot_restore_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    writer = SavepointWriter(SCENARIOS["sessions"](2).plan, "simulated")
    columns = writer.columns("sessions", "sessions")
    rows = [{"key": "k1", "window_start": 0, "count(*)": 1, "sum(value)": 1}]
    writer.state("sessions", pa.Table.from_pylist(rows, columns), "sessions")
    with pytest.raises(
        ConfigurationError, match=r"sessions cannot be restored .* nulls are _expires"
    ):
        writer.write(str(tmp_path / "first"), ANN, 7)
    assert not (tmp_path / "first").exists()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("split_id", None, "these are not the 4 splits of in"),
        ("offset", None, "a split of in has no offset: give one for each split"),
        ("done", None, "a split of in has no done"),
        ("rows_read", None, "a split of in has no rows_read"),
        ("rows_read", -5, "a split of in has a negative rows_read"),
        ("rows_total", -5, "a split of in has a negative rows_total"),
        ("rows_read", "many", "these are no positions of in"),
    ],
)
def test_each_split_has_a_position(name: str, value: object, problem: str) -> None:
    writer = SavepointWriter(totals_of(Ledger()), "simulated")
    splits = writer.beginning("in")
    column = pa.array([value] * splits.num_rows)
    changed = splits.set_column(splits.schema.get_field_index(name), name, column)
    with pytest.raises(ConfigurationError, match=problem):
        writer.positions("in", changed)


def test_a_savepoint_of_another_pipeline_is_no_base(tmp_path: Path) -> None:
    place = str(tmp_path / "first")
    SavepointWriter(totals_of(Ledger()), "simulated").write(place, ANN, 7)
    with pytest.raises(ConfigurationError, match=r"is of another pipeline \(.*totals"):
        SavepointWriter(windows_of(Ledger()), "simulated", base=place)
