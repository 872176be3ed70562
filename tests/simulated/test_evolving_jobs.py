"""A job whose pipeline changes between runs: what it kept goes on, and the rest begins or is gone.

Drivers are killed in between, and the number of workers changes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.aggregates.accumulators import Aggregate
from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.driver.recovery.start_texts import Rename
from laminar_core.errors import ConfigurationError, IncompatibleStateError
from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.state.splits import rows_read
from laminar_core.store.state_reading import read_operator
from laminar_core.testing.jobs import DELAY, Burden, normal, payments, rows_of, totals, windowed
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

TABLES = payments(4, 60)
TOTAL = agg.sum("value", name="total")
OFTEN = CoordinatorConfig(interval_ms=40)
UNALIGNED = CoordinatorConfig(interval_ms=40, alignment_timeout_ms=0)

Build = Callable[[Stream, "Evolving"], None]


@dataclass
class Evolving:
    """One job. Each run may have another pipeline than the run before."""

    checkpoint: CoordinatorConfig = OFTEN
    seed: int = 3
    tables: list[pa.Table] = field(default_factory=lambda: list(TABLES))
    ledgers: dict[str, Ledger] = field(default_factory=dict[str, Ledger])
    burden: Burden = field(default_factory=Burden)
    """Unaligned checkpoints have rows in flight if the operator before the sink is slow."""

    def plan(self, build: Build) -> Plan:
        p = Pipeline("evolving")
        rows = p.source("in", MemorySource(self.tables), rows_per_second=80)
        build(rows.watermark("ts", max_delay=DELAY, name="time"), self)
        return p.plan()

    def sink(self, stream: Stream, name: str) -> None:
        stream.sink(name, LedgerSink(self.ledgers.setdefault(name, Ledger()), name))

    def slow(self, stream: Stream) -> None:
        """End the stream in the sink, behind the slow operator."""
        self.sink(stream.map(self.burden.carry, name="carry"), "out")

    def begin(self, build: Build, *, workers: int = 2) -> None:
        """Run until the driver is killed, after its third checkpoint."""
        self.simulation = Simulation(
            self.plan(build), parallelism=workers, checkpoint=self.checkpoint, seed=self.seed
        )
        self.burden.spend = self.simulation.world.spend
        is_unaligned = self.checkpoint is UNALIGNED
        self.burden.row_ms = 80 if is_unaligned else 0
        self.kill()
        assert bool(self.newest().inflight_rows) is is_unaligned
        self.burden.row_ms = 0

    def kill(self) -> None:
        done = sum(isinstance(e, CheckpointCompleted) for e in self.simulation.events)
        self.simulation.when(CheckpointCompleted, self.simulation.kill_driver, done + 3)
        with pytest.raises(ProcessKilledError):
            self.simulation.run()

    def stop(self, build: Build) -> None:
        """Run until the job stops with its output committed, after two more checkpoints."""
        self.change(build)
        done = sum(isinstance(e, CheckpointCompleted) for e in self.simulation.events)
        self.simulation.when(CheckpointCompleted, self.simulation.stop, done + 2)
        assert self.simulation.run().outcome == "stopped"

    def go_on(self, build: Build, *accepted: str, workers: int = 2) -> None:
        """Run the changed pipeline to its end."""
        self.change(build, workers=workers)
        accept = tuple(map(parse_acceptance, accepted))
        assert self.simulation.run(accepted=accept).outcome == "finished"

    def change(self, build: Build, *, workers: int = 2) -> None:
        self.simulation.plan = self.plan(build)
        self.simulation.options = replace(self.simulation.options, parallelism=workers)

    def refused(self, build: Build, *accepted: str) -> str:
        """Return why the changed pipeline does not start."""
        self.change(build)
        with pytest.raises((IncompatibleStateError, ConfigurationError)) as caught:
            self.simulation.run(accepted=tuple(map(parse_acceptance, accepted)))
        return str(caught.value)

    def rename(self, *renames: str) -> None:
        parsed = tuple(map(Rename.parse, renames))
        self.simulation.options = replace(self.simulation.options, renames=parsed)

    def stored(self) -> dict[str, object]:
        """Return all that a refused start must leave as it is: checkpoints, state, and output."""
        objects = self.simulation.objects
        kept = [k for k in objects.list("") if "/checkpoints/" in k or "/shared/" in k]
        rows = {name: normal(ledger.rows()) for name, ledger in self.ledgers.items()}
        return {**{key: objects.get(key) for key in kept}, **rows}

    def newest(self) -> CheckpointManifest:
        manifests = self.simulation.store.manifests
        return manifests.read(manifests.ids()[-1])

    def totals(self, name: str = "out") -> dict[str, dict[str, object]]:
        """Return the last row of each key."""
        return {str(row["key"]): dict(row) for row in self.ledgers[name].rows()}


def as_before(rows: Stream, job: Evolving) -> None:
    job.slow(rows.key_by("key").aggregate("totals", agg.sum("value", name="total")))


def counted(tables: list[pa.Table] | tuple[pa.Table, ...] = tuple(TABLES)) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows_of(tables):
        found[str(row["key"])] = found.get(str(row["key"]), 0) + int(str(row["value"]))
    return found


def check_totals(job: Evolving, column: str = "total") -> None:
    assert {key: row[column] for key, row in job.totals().items()} == counted()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("checkpoint", [OFTEN, UNALIGNED], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_branch_that_is_added_begins_and_all_else_goes_on(
    checkpoint: CoordinatorConfig, workers: int
) -> None:
    """The stream has two readers now, so its chain ends there: other vertices, the same state."""

    def with_copy(rows: Stream, job: Evolving) -> None:
        as_before(rows, job)
        job.sink(rows, "copy")

    job = Evolving(checkpoint)
    job.begin(as_before)
    read = job.newest()
    job.go_on(with_copy, workers=workers)
    check_totals(job)
    ids = {row["id"] for row in job.ledgers["copy"].rows()}
    assert ids
    assert len(job.ledgers["copy"].rows()) == len(ids)
    positions = read_operator(job.simulation.store.parts, read, "in")
    assert positions is not None
    assert len(ids) == sum(table.num_rows for table in TABLES) - rows_read(positions)


def test_windows_that_are_added_hear_of_event_time() -> None:
    def with_windows(rows: Stream, job: Evolving) -> None:
        as_before(rows, job)
        job.sink(windowed(rows, "later"), "copy")

    job = Evolving()
    job.begin(as_before)
    job.go_on(with_windows)
    check_totals(job)
    assert job.ledgers["copy"].rows()


def with_windows(rows: Stream, job: Evolving) -> None:
    as_before(rows, job)
    job.sink(windowed(rows, "later"), "late")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_branch_is_removed_with_what_it_kept_if_that_is_accepted(workers: int) -> None:
    job = Evolving(UNALIGNED, seed=0)
    job.begin(with_windows)
    assert "has output of late that may not be committed" in job.refused(as_before)
    job.stop(with_windows)
    given_up = "has state of later, which the pipeline lacks: give it up with"
    assert given_up in job.refused(as_before, "state-drop:late")
    job.go_on(as_before, "state-drop:later", "state-drop:late", workers=workers)
    check_totals(job)
    assert "later" not in job.newest().parallelism


def test_an_average_of_what_is_kept_is_right_from_the_beginning() -> None:
    def before(rows: Stream, job: Evolving) -> None:
        totals = rows.key_by("key").aggregate("totals", agg.sum("value"), agg.count("value"))
        job.slow(totals)

    def now(rows: Stream, job: Evolving) -> None:
        totals = rows.key_by("key").aggregate(
            "totals", agg.avg("value", name="mean"), agg.count(name="rows"), agg.sum("value")
        )
        job.slow(totals)

    job = Evolving(UNALIGNED)
    job.begin(before)
    job.go_on(now, workers=3)
    assert {key: row["sum_value"] for key, row in job.totals().items()} == counted()
    for row in job.totals().values():
        assert row["mean"] == int(str(row["sum_value"])) / int(str(row["rows"]))


def with_most(rows: Stream, job: Evolving) -> None:
    totals = rows.key_by("key").aggregate(
        "totals", agg.sum("value", name="total"), agg.count("id", name="ids"), agg.max("id")
    )
    job.slow(totals)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("checkpoint", [OFTEN, UNALIGNED], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_an_aggregate_that_is_added_counts_from_there_on_if_that_is_accepted(
    checkpoint: CoordinatorConfig, workers: int
) -> None:
    job = Evolving(checkpoint)
    job.begin(as_before)
    refused = job.refused(with_most)
    assert "lacks count(id), max(id): what was before the checkpoint would not be in it" in refused
    job.change(with_most, workers=workers)
    accept = (parse_acceptance("state-since:totals"),)
    done = sum(isinstance(e, CheckpointCompleted) for e in job.simulation.events)
    job.simulation.when(CheckpointCompleted, job.simulation.kill_driver, done + 2)
    with pytest.raises(ProcessKilledError):
        job.simulation.run(accepted=accept)
    assert "nothing needs --accept state-since:totals" in job.refused(with_most, *map(str, accept))
    job.go_on(with_most, workers=workers)
    check_totals(job)
    state = read_operator(job.simulation.store.parts, job.newest(), "totals")
    assert state is not None
    counts = state.select(["count(*)", "count(id)"]).to_pylist()
    assert all(0 < row["count(id)"] < row["count(*)"] for row in counts)


def test_an_aggregate_that_is_removed_takes_its_state_with_it_if_that_is_accepted() -> None:
    job = Evolving()
    job.begin(with_most)
    assert "has count(id), max(id), which nothing needs any more" in job.refused(as_before)
    job.go_on(as_before, "state-drop:totals")
    check_totals(job)


def test_half_of_an_average_cannot_begin_later() -> None:
    def with_mean(rows: Stream, job: Evolving) -> None:
        totals = rows.key_by("key").aggregate("totals", agg.sum("value"), agg.avg("value"))
        job.sink(totals, "out")

    job = Evolving()
    job.begin(as_before)
    problem = "count(value) would begin now, and sum(value) began earlier"
    assert problem in job.refused(with_mean, "state-since:totals")


def test_other_keys_are_another_aggregation() -> None:
    def by_id(rows: Stream, job: Evolving) -> None:
        job.sink(rows.key_by("id").aggregate("totals", agg.sum("value", name="total")), "out")

    job = Evolving()
    job.begin(as_before)
    assert 'keys was ["key"], is ["id"]' in job.refused(by_id, "state-since:totals")


def narrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "id", batch.column("id").cast(pa.int32()))


def wide(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def keyed_by(function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Build:
    def build(rows: Stream, job: Evolving) -> None:
        totals = rows.map(function, name="width").key_by("id").aggregate("totals", agg.max("id"))
        job.slow(totals)

    return build


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_keys_and_values_may_become_wider_and_never_narrower(workers: int) -> None:
    job = Evolving(UNALIGNED)
    job.begin(keyed_by(narrow))
    job.go_on(keyed_by(wide), workers=workers)
    rows = [(row["id"], row["max_id"]) for row in job.ledgers["out"].rows()]
    assert sorted(rows) == sorted((row["id"], row["id"]) for row in rows_of(TABLES))
    assert "id was int64, is int32" in job.refused(keyed_by(narrow))


def with_note(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("note", pa.array(["new"] * batch.num_rows, pa.string()))


def passing(function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Build:
    def build(rows: Stream, job: Evolving) -> None:
        mapped = rows.map(function, name="notes").rebalance()
        job.slow(mapped)

    return build


def test_rows_in_flight_have_null_in_a_column_that_is_added() -> None:
    job = Evolving(UNALIGNED)
    job.begin(passing(wide))
    job.go_on(passing(with_note))
    rows = [dict(row) for row in job.ledgers["out"].rows()]
    assert sorted({str(row.get("note")) for row in rows}) == ["None", "new"]
    for row in rows:
        row.pop("note", None)
    assert normal(rows) == normal(rows_of(TABLES))


def called(name: str, source: str = "in") -> Callable[[Evolving], Plan]:
    def plan(job: Evolving) -> Plan:
        p = Pipeline("evolving")
        rows = p.source(source, MemorySource(job.tables), rows_per_second=80)
        rows = rows.watermark("ts", max_delay=DELAY, name="time")
        job.slow(rows.key_by("key").aggregate(name, agg.sum("value", name="total")))
        job.sink(rows, "copy")
        return p.plan()

    return plan


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_operators_and_sources_get_other_names(workers: int) -> None:
    """The option stays in the command: it does nothing once a checkpoint has the new names."""
    job = Evolving(UNALIGNED)
    job.simulation = Simulation(called("totals")(job), checkpoint=UNALIGNED, seed=3)
    job.kill()
    renames = (Rename("totals", "sums"), Rename("in", "payments"))
    job.simulation.plan = called("sums", "payments")(job)
    job.simulation.options = replace(job.simulation.options, parallelism=workers, renames=renames)
    job.kill()
    assert {"sums", "sums-combine", "payments"} <= job.newest().parallelism.keys()
    assert job.newest().carried == {}
    assert job.simulation.run().outcome == "finished"
    check_totals(job)
    assert normal(job.ledgers["copy"].rows()) == normal(rows_of(TABLES))


def other_names(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns([_NAMES.get(name, name) for name in batch.schema.names])


_NAMES = {"key": "shop", "value": "cents"}


def named(function: Callable[[pa.RecordBatch], pa.RecordBatch], key: str, value: str) -> Build:
    def build(rows: Stream, job: Evolving) -> None:
        rows = rows.map(function, name="names")
        job.slow(rows.key_by(key).aggregate("totals", agg.sum(value, name="total")))

    return build


BY_KEY, BY_SHOP = named(wide, "key", "value"), named(other_names, "shop", "cents")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("checkpoint", [OFTEN, UNALIGNED], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_columns_get_other_names_if_a_person_says_which(
    checkpoint: CoordinatorConfig, workers: int
) -> None:
    """The option stays in the command, and the driver dies again before and after a checkpoint."""
    job = Evolving(checkpoint)
    job.begin(BY_KEY)
    assert 'keys was ["key"], is ["shop"]' in job.refused(BY_SHOP)
    job.rename("totals.key=shop", "totals.value=cents")
    job.change(BY_SHOP, workers=workers)
    job.simulation.when(GenerationStarted, job.simulation.kill_driver, 2)
    with pytest.raises(ProcessKilledError):
        job.simulation.run()
    job.kill()
    assert job.simulation.run().outcome == "finished"
    rows = job.ledgers["out"].rows()
    assert {str(row.get("shop") or row["key"]): row["total"] for row in rows} == counted()


@pytest.mark.parametrize(
    ("renames", "problem"),
    [
        (("key=shop", "value=cents", "shop=store"), "has no column shop of totals that is called"),
        (("key=store", "value=cents"), 'keys was ["key"], is ["shop"]'),
        (("value=shop", "key=cents"), 'keys was ["key"], is ["shop"]'),
        (("key=shop",), "in checkpoint 3 lacks sum(cents)"),
    ],
    ids=["not there", "another name", "crossed", "half of it"],
)
def test_a_column_that_is_not_there_is_not_renamed(renames: tuple[str, ...], problem: str) -> None:
    job = Evolving()
    job.begin(BY_KEY)
    before = job.stored()
    job.rename(*(f"totals.{one}" for one in renames))
    assert problem in job.refused(BY_SHOP)
    assert job.stored() == before


@pytest.mark.parametrize("checkpoint", [OFTEN, UNALIGNED], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("is_key", [True, False], ids=["keys", "sums"])
def test_columns_do_not_change_places(checkpoint: CoordinatorConfig, *, is_key: bool) -> None:
    """Nothing could tell rows of after the change from those of before."""

    def of(first: str, second: str) -> Build:
        def named(batch: pa.RecordBatch) -> pa.RecordBatch:
            values = {first: batch.column("id"), second: batch.column("value")}
            return pa.record_batch({"key": batch.column("key"), **values})

        def build(rows: Stream, job: Evolving) -> None:
            other = rows.map(named, name="named")
            keyed = other.key_by(first, second) if is_key else other.key_by("key")
            sums = () if is_key else (agg.sum(first, name="x"), agg.sum(second, name="y"))
            job.slow(keyed.aggregate("totals", agg.count(), *sums))

        return build

    job = Evolving(checkpoint)
    job.begin(of("a", "b"))
    before = job.stored()
    job.rename("totals.a=b", "totals.b=a")
    assert "cannot become" in job.refused(of("b", "a"))
    assert job.stored() == before


def test_a_column_of_another_type_is_no_other_name_of_it() -> None:
    def texts(batch: pa.RecordBatch) -> pa.RecordBatch:
        id_column = batch.column("id").cast(pa.string())
        return batch.append_column("name", id_column).drop_columns(["id"])

    def by_name(rows: Stream, job: Evolving) -> None:
        job.slow(rows.map(texts, name="width").key_by("name").aggregate("totals", agg.max("name")))

    job = Evolving()
    job.begin(keyed_by(wide))
    job.rename("totals.id=name")
    assert "name was int64, is string" in job.refused(by_name)


def test_the_bound_of_a_join_gets_another_name() -> None:
    def bounded_by(name: str) -> Build:
        def bounded(batch: pa.RecordBatch) -> pa.RecordBatch:
            times = batch.column("ts")
            later = pc.add(times.cast(pa.int64()), 2_000_000).cast(times.type)
            return batch.append_column(name, later)

        def build(rows: Stream, job: Evolving) -> None:
            left, right = rows.map(bounded, name="bounded"), rows.rebalance()
            within = ("0 seconds", name)
            job.slow(left.join(right, on="key", within=within, name="join", suffix="_right"))

        return build

    def pairs(job: Evolving) -> list[tuple[object, object]]:
        return sorted((row["id"], row["id_right"]) for row in job.ledgers["out"].rows())

    job, undisturbed = Evolving(), Evolving()
    job.begin(bounded_by("until"))
    job.rename("join.until=ends")
    job.go_on(bounded_by("ends"))
    undisturbed.begin(bounded_by("ends"))
    undisturbed.go_on(bounded_by("ends"))
    assert pairs(job) == pairs(undisturbed)


def test_a_mean_of_what_sessions_have_is_added() -> None:
    def sessions(*more: Aggregate) -> Build:
        def build(rows: Stream, job: Evolving) -> None:
            spec = rows.key_by("key").session("2 seconds")
            both = (agg.sum("value", name="total"), agg.count("value", name="count"))
            job.slow(spec.aggregate("sessions", *both, *more))

        return build

    job = Evolving()
    job.begin(sessions())
    job.go_on(sessions(agg.avg("value", name="mean")))
    rows = [row for row in job.ledgers["out"].rows() if row.get("mean") is not None]
    assert rows
    assert all(row["mean"] == row["total"] / row["count"] for row in rows)


@pytest.mark.parametrize("checkpoint", [OFTEN, UNALIGNED], ids=["aligned", "unaligned"])
def test_each_side_of_a_join_has_names_of_its_own(checkpoint: CoordinatorConfig) -> None:
    """Both sides have the same columns, and only those of the left one get other names."""

    def joined(function: Callable[[pa.RecordBatch], pa.RecordBatch], key: str, value: str) -> Build:
        def build(rows: Stream, job: Evolving) -> None:
            left, right = rows.map(function, name="left"), rows.rebalance().map(wide, name="right")
            join = {"on": {key: "key"}, "within": ("0 seconds", "0 seconds")}
            pairs = left.join(right, **join, suffix="_right", name="join")
            job.slow(pairs.select("id", "id_right", value))

        return build

    job = Evolving(checkpoint)
    job.begin(joined(wide, "key", "value"))
    job.rename("join.key=shop", "join.value=cents")
    job.go_on(joined(other_names, "shop", "cents"), workers=3)
    found = [(row["id"], row["id_right"]) for row in job.ledgers["out"].rows()]
    sides = [[(row["key"], row["ts"], row["id"]) for row in rows_of(TABLES)]] * 2
    wanted = [(a[2], b[2]) for a in sides[0] for b in sides[1] if a[:2] == b[:2]]
    assert sorted(found) == sorted(wanted)


SEEN: list[int] = []
"""The rows that came to the operator that is added, and no part of any digest of code."""


def see(batch: pa.RecordBatch) -> pa.RecordBatch:
    SEEN.extend(batch.column("id").to_pylist())
    return batch


def straight(rows: Stream, job: Evolving) -> None:
    job.slow(rows.rebalance().map(wide, name="first").key_by("key").aggregate("totals", TOTAL))


def with_check(rows: Stream, job: Evolving) -> None:
    checked = rows.rebalance().map(wide, name="first").rebalance().map(see, name="checked")
    job.slow(checked.key_by("key").aggregate("totals", TOTAL))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_an_operator_gets_between_two_that_an_exchange_connects(workers: int) -> None:
    """The totals go on; the new operator sees exactly what comes after the checkpoint."""
    job = Evolving()
    job.begin(straight)
    read = job.newest()
    SEEN.clear()
    job.change(with_check, workers=workers)
    job.kill()
    job.go_on(with_check, workers=2)
    check_totals(job)
    positions = read_operator(job.simulation.store.parts, read, "in")
    assert positions is not None
    assert len(set(SEEN)) == sum(table.num_rows for table in TABLES) - rows_read(positions)


def test_rows_in_flight_would_pass_a_new_operator_by() -> None:
    job = Evolving(UNALIGNED)
    job.begin(straight)
    before = job.stored()
    assert "rows in flight from first to totals, and checked is between" in job.refused(with_check)
    assert job.stored() == before
    job.checkpoint = OFTEN
    job.simulation.options = replace(job.simulation.options, checkpoint=OFTEN)
    job.stop(straight)
    job.go_on(with_check)
    check_totals(job)


def windows_behind(*, check: bool) -> Build:
    def build(rows: Stream, job: Evolving) -> None:
        first = rows.rebalance().map(wide, name="first")
        checked = first.rebalance().map(see, name="checked") if check else first
        job.sink(windowed(checked), "out")

    return build


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_event_time_of_windows_behind_a_new_operator_neither_runs_ahead_nor_stands_still(
    workers: int,
) -> None:
    job = Evolving()
    job.begin(windows_behind(check=False))
    job.change(windows_behind(check=True), workers=workers)
    result = job.simulation.run()
    assert (result.outcome, result.rows_late) == ("finished", 0)
    assert normal(job.ledgers["out"].rows()) == normal(totals(rows_of(TABLES)))
