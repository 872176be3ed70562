"""A part of a job begins anew while the rest goes on, whenever a driver dies on the way."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from laminar_core.cli.recover import examine
from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.driver.recovery.report import RecoveryReport
from laminar_core.driver.recovery.start_texts import ResetFrom
from laminar_core.errors import ConfigurationError, IncompatibleStateError
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.audit_log import AuditLog
from laminar_core.testing.jobs import DELAY, Burden, normal, payments, rows_of
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.topic import Topic, TopicSink
from laminar_core.testing.world import ProcessKilledError
from verification.crash_points import by_drivers

OFTEN = CoordinatorConfig(interval_ms=40)
UNALIGNED = CoordinatorConfig(interval_ms=40, alignment_timeout_ms=0)
SALES, VISITS = payments(2, 60), payments(2, 60, seed=5)
CALLS = 60
"""The writes to the store and calls of sinks of a start, seen twice each, and some more."""
RESET = {"reset_state": ("totals",), "reset_from": (ResetFrom("sales"),)}


@dataclass
class Shop:
    """Two streams that never meet: sales are summed, and visits are counted and copied."""

    checkpoint: CoordinatorConfig = OFTEN
    sales: Ledger = field(default_factory=Ledger)
    visits: Ledger = field(default_factory=Ledger)
    copy: Ledger = field(default_factory=Ledger)
    burden: Burden = field(default_factory=Burden)
    source: type[MemorySource] = MemorySource

    def plan(self, *aggregates: agg.Aggregate, joined: bool = False) -> Plan:
        p = Pipeline("simulated")
        sales = p.source("sales", self.source(SALES), rows_per_second=80)
        totals = sales.key_by("key").aggregate("totals", *(aggregates or [TOTAL]))
        totals.map(self.burden.carry, name="carry").sink("out", LedgerSink(self.sales, "out"))
        visits = p.source("visits", MemorySource(VISITS), rows_per_second=80)
        visits = visits.watermark("ts", max_delay=DELAY, name="time")
        if joined:
            visits = visits.union(sales, name="both")
        counts = visits.key_by("key").aggregate("counts", agg.count())
        counts.sink("visited", LedgerSink(self.visits, "visited"))
        visits.sink("copy", LedgerSink(self.copy, "copy"))
        return p.plan()

    def begin(self, *, workers: int = 2) -> Simulation:
        """Run until the driver is killed, after its third checkpoint."""
        simulation = Simulation(
            self.plan(), parallelism=workers, checkpoint=self.checkpoint, seed=3
        )
        self.burden.spend = simulation.world.spend
        self.burden.row_ms = 40 if self.checkpoint is UNALIGNED else 0
        killed(simulation, CheckpointCompleted, 3)
        self.burden.row_ms = 0
        return simulation

    def check(self) -> None:
        """Sales are counted by the new definition from the beginning, visits as ever."""
        rows = self.sales.rows()
        assert all("total" not in row for row in rows), "what was shown before is withdrawn"
        assert {row["key"]: row["rows"] for row in rows} == counted(SALES)
        for key in counted(SALES):
            counts = [int(str(row["rows"])) for row in rows if row["key"] == key]
            assert counts == sorted(set(counts)), "nothing is counted or shown twice"
        assert {row["key"]: row["count"] for row in self.visits.rows()} == counted(VISITS)
        assert normal(self.copy.rows()) == normal(rows_of(VISITS))


TOTAL, ROWS = agg.sum("value", name="total"), agg.count(name="rows")


def counted(tables: list[pa.Table]) -> dict[object, int]:
    return dict(Counter(row["key"] for row in rows_of(tables)))


def killed(simulation: Simulation, event: type, count: int = 1, **options: object) -> None:
    seen = sum(isinstance(e, event) for e in simulation.events)
    simulation.when(event, simulation.kill_driver, seen + count)
    with pytest.raises(ProcessKilledError):
        simulation.run(**options)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("checkpoint", [OFTEN, UNALIGNED], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_part_begins_anew_and_the_rest_goes_on(
    checkpoint: CoordinatorConfig, workers: int
) -> None:
    """The option is given once; its driver dies before its first checkpoint, and after one."""
    shop = Shop(checkpoint)
    simulation = shop.begin()
    simulation.plan = shop.plan(ROWS)
    simulation.options = replace(simulation.options, parallelism=workers)
    killed(simulation, GenerationStarted, **RESET)
    killed(simulation, GenerationStarted)
    killed(simulation, CheckpointCompleted, 2)
    assert simulation.run().outcome == "finished"
    shop.check()


def copied(objects: MemoryObjectStore) -> MemoryObjectStore:
    twin = MemoryObjectStore()
    for key in objects.list(""):
        twin.put(key, objects.get(key) or b"")
    return twin


class Tripwire:
    """Kills the driver at the n-th call of its start: of the store, or of a sink."""

    def __init__(self, shop: Shop, simulation: Simulation, n: int) -> None:
        self.left = n
        self._simulation = simulation
        simulation.observers.append(self._call)
        for ledger in ledgers(shop):
            ledger.observe = lambda verb, _: self._pass(verb != "stage")

    def _call(self, call: StoreCall) -> None:
        is_read = call.verb in ("get", "size", "list", "sizes", "children")
        self._pass(by_drivers(call) and not is_read)

    def _pass(self, counts: bool) -> None:  # noqa: FBT001 - a private one
        started = any(isinstance(e, GenerationStarted) for e in self._simulation.events)
        if counts and not started:
            self.left -= 1
            if not self.left:
                self._simulation.kill_driver()


@pytest.fixture(scope="module")
def began() -> tuple[Shop, MemoryObjectStore]:
    shop = Shop()
    objects = shop.begin().objects
    assert isinstance(objects, MemoryObjectStore)
    return shop, objects


@pytest.mark.sampled(12)
@pytest.mark.parametrize("n", range(1, CALLS + 1))
def test_it_is_whole_or_nothing_wherever_the_driver_dies(
    n: int, began: tuple[Shop, MemoryObjectStore]
) -> None:
    before, objects = began
    shop = Shop()
    for mine, theirs in zip(ledgers(shop), ledgers(before), strict=True):
        mine.load(theirs)
    simulation = Simulation(
        shop.plan(ROWS), checkpoint=OFTEN, objects=copied(objects), first_driver=8
    )
    wire = Tripwire(shop, simulation, n)
    try:
        simulation.run(**RESET)
    except ProcessKilledError:
        go_on_without_the_option(simulation)
    else:
        assert wire.left > 0
    shop.check()


def go_on_without_the_option(simulation: Simulation) -> None:
    """If the driver that died had not decided it yet, it is refused and asked for again."""
    if simulation.objects.size("simulated/generations/0000000002.base.json") is None:
        with pytest.raises(IncompatibleStateError, match="the state of totals in checkpoint"):
            simulation.run()
        simulation.options = replace(simulation.options, **RESET)
    assert simulation.run().outcome == "finished"


def ledgers(shop: Shop) -> list[Ledger]:
    return [shop.sales, shop.visits, shop.copy]


def examined(simulation: Simulation, **options: object) -> RecoveryReport:
    return examine(simulation.plan, replace(simulation.options, **options), simulation.store)


def test_the_dry_run_and_the_audit_log_say_what_is_reset() -> None:
    shop = Shop()
    simulation = shop.begin()
    simulation.plan = shop.plan(ROWS)
    report = examined(simulation, **RESET)
    assert report.verdict == "restore"
    assert report.reset is not None
    assert report.reset.lines() == [
        "a part begins anew to reset totals; the rest continues from 3",
        "reset as well, because they hang together: carry, totals-combine",
        "sales: read again from its beginning",
        "out: all of its output is withdrawn",
    ]
    status = {o.operator_id: o.status for o in report.operators}
    assert {status[o] for o in ("sales", "totals", "out")} == {"reset"}
    assert {status[o] for o in ("visits", "counts")} == {"restored"}
    killed(simulation, GenerationStarted, **RESET)
    log = AuditLog(simulation.objects, simulation.store.paths, lambda: 0)
    said = [record.after["reset"] for record in log.records() if record.after.get("reset")]
    assert said == ["; ".join(report.reset.lines())]
    again = examined(simulation)
    assert again.reset is not None
    assert again.reset.lines()[0] == (
        "a part begins anew as generation 2 decided; the rest continues from 3"
    )


def test_going_back_behind_a_reset_resets_the_part_again() -> None:
    """Its output up to the older checkpoint was withdrawn, so it has to be made again."""
    shop = Shop()
    simulation = shop.begin()
    simulation.plan = shop.plan(ROWS)
    killed(simulation, CheckpointCompleted, 2, **RESET)
    older = simulation.store.manifests.ids()[1]
    assert simulation.run(restore_id=older).outcome == "finished"
    shop.check()


class FromRow(MemorySource):
    """A source that can be read again from a row of each split."""

    def starting_at(self, position: str) -> MemorySource:
        return replace(self, first_row=int(position))


@pytest.mark.large
@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_part_begins_at_a_stated_position_also_if_its_driver_dies_before_a_checkpoint(
    workers: int,
) -> None:
    shop = Shop(source=FromRow)
    simulation = shop.begin()
    simulation.plan = shop.plan(ROWS)
    simulation.options = replace(simulation.options, parallelism=workers)
    older = simulation.store.manifests.ids()[0]
    stated = {**RESET, "reset_from": (ResetFrom("sales", "25"),)}
    lines = examined(simulation, **stated).reset.lines()
    assert "sales: read again from 25" in lines
    killed(simulation, GenerationStarted, **stated)
    killed(simulation, CheckpointCompleted, 1)
    killed(simulation, GenerationStarted, restore_id=older)
    assert simulation.run().outcome == "finished"
    totals = {row["key"]: row["rows"] for row in shop.sales.rows()}
    assert totals == counted([table.slice(25) for table in SALES])
    assert {row["key"]: row["count"] for row in shop.visits.rows()} == counted(VISITS)
    assert normal(shop.copy.rows()) == normal(rows_of(VISITS))


def test_a_position_that_a_source_cannot_begin_at_is_refused_in_one_line() -> None:
    shop = Shop()
    simulation = shop.begin()
    simulation.plan = shop.plan(ROWS)
    stated = {**RESET, "reset_from": (ResetFrom("sales", "25"),)}
    before = kept(simulation)
    with pytest.raises(ConfigurationError, match="source sales cannot begin at '25': Memory"):
        simulation.run(**stated)
    assert kept(simulation) == before


def test_a_reset_of_a_part_is_over_with_the_first_checkpoint() -> None:
    shop = Shop()
    simulation = shop.begin()
    simulation.plan = shop.plan(ROWS)
    killed(simulation, CheckpointCompleted, 2, **RESET)
    assert examined(simulation).reset is None


@pytest.mark.parametrize(
    ("joined", "options", "problem"),
    [
        (True, RESET, "visits has to be read again, too, and both, carry, copy, counts"),
        (False, {**RESET, "reset_from": (ResetFrom("visits"),)}, "sales has to be read again, too"),
        (
            False,
            {**RESET, "reset_from": (ResetFrom("sales"), ResetFrom("visits"))},
            "visits is no source of what is",
        ),
        (False, {**RESET, "reset_state": ("total",)}, "there is no operator total to reset"),
    ],
    ids=["hangs together", "another source", "a source too many", "no operator"],
)
def test_a_part_that_is_not_all_that_hangs_together_is_refused(
    joined: bool,  # noqa: FBT001 - a parameter of a test
    options: dict[str, tuple[str, ...]],
    problem: str,
) -> None:
    shop = Shop()
    simulation = shop.begin()
    simulation.plan = shop.plan(ROWS, joined=joined)
    before = kept(simulation), [normal(ledger.rows()) for ledger in ledgers(shop)]
    with pytest.raises(ConfigurationError, match=problem):
        simulation.run(**options)
    assert (kept(simulation), [normal(ledger.rows()) for ledger in ledgers(shop)]) == before


def kept(simulation: Simulation) -> dict[str, bytes | None]:
    objects = simulation.objects
    about = ("/generations/", "/audit/")
    return {k: objects.get(k) for k in objects.list("") if not any(a in k for a in about)}


def shown(topic: Topic, copy: Ledger, *aggregates: agg.Aggregate) -> Plan:
    """Sales end in a topic, which takes nothing back; visits end in a ledger."""
    p = Pipeline("simulated")
    sales = p.source("sales", MemorySource(SALES), rows_per_second=80)
    totals = sales.key_by("key").aggregate("totals", *aggregates).changes()
    totals.sink("out", TopicSink(topic))
    visits = p.source("visits", MemorySource(VISITS), rows_per_second=80)
    visits.sink("copy", LedgerSink(copy, "copy"))
    return p.plan()


def test_output_that_cannot_be_taken_back_is_shown_twice_only_if_that_is_accepted() -> None:
    topic, copy = Topic(), Ledger()
    simulation = Simulation(shown(topic, copy, TOTAL), checkpoint=OFTEN, seed=3)
    killed(simulation, CheckpointCompleted, 3)
    older = simulation.store.manifests.ids()[-1]
    simulation.plan = shown(topic, copy, ROWS)
    with pytest.raises(IncompatibleStateError, match="is to be reset: readers would see rows twic"):
        simulation.run(**RESET)
    accepted = (parse_acceptance("sink-repeat:out"),)
    killed(simulation, GenerationStarted, accepted=accepted, **RESET)
    killed(simulation, CheckpointCompleted, 3)  # What was accepted holds until a checkpoint.
    assert topic.rows()[-1].keys() >= {"rows"}
    with pytest.raises(IncompatibleStateError, match="readers would see rows twice"):
        simulation.run(restore_id=older)  # What came since then was not accepted.
    assert simulation.run().outcome == "finished"
    rows = [row for row in topic.rows() if "rows" in row]
    assert {row["key"]: row["rows"] for row in rows} == counted(SALES)
