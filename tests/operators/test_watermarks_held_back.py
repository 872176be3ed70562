"""A chain of event-time operators loses nothing that its first operator has accepted."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import laminar_core
from laminar_core.operators import agg, windows
from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.operators.windows import Window
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from tests.sampling import drawn

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
KEPT_US = 20 * SECOND_US
SLIDING = windows.sliding("20 seconds", "10 seconds")
OVERTAKING = CoordinatorConfig(interval_ms=20, alignment_timeout_ms=0)


@dataclass(frozen=True, slots=True)
class KeepForAWhile:
    """A user's operator: it keeps rows for ``KEPT_US`` of event time."""

    operator_id: str

    def describe(self) -> JsonObject:
        return {"kind": "keep"}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        return input_schema

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "Keeper":
        del context, input_schema
        return Keeper()


class Keeper:
    def __init__(self) -> None:
        self._kept: list[pa.RecordBatch] = []

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._kept.append(batch)
        return iter(())

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        kept, self._kept = self._kept, []
        for batch in kept:
            ends = batch.column("window_end").cast(pa.int64()).to_pylist()
            passed = [end + KEPT_US <= watermark_us for end in ends]
            yield batch.filter(pa.array(passed))
            if not all(passed):
                self._kept.append(batch.filter(pa.array([not p for p in passed])))

    def output_watermark(self, watermark_us: int) -> int:
        ends = [b.column("window_end").cast(pa.int64()).to_pylist() for b in self._kept]
        return min([watermark_us, *(end for batch in ends for end in batch)])

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        del checkpoint_id
        tables = [pa.Table.from_batches(self._kept)] if self._kept else []
        return lambda: Snapshot.of(tables)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        self._kept = [b for s in snapshots for table in s.rows() for b in table.to_batches()]


@dataclass(frozen=True)
class Step:
    """One window of a chain, and what its results pass before they reach it."""

    window: Window
    time: str
    lateness_us: int
    before: str

    @property
    def copies(self) -> int:
        """Each row is in so many windows."""
        return self.window.size_us // self.window.slide_us


seconds = st.integers(1, 30).map(lambda n: n * SECOND_US)
tumblings = st.builds(windows.TumblingWindow, seconds, seconds)
slidings = st.builds(
    lambda slide_us, times, offset_us: windows.SlidingWindow(slide_us * times, slide_us, offset_us),
    seconds,
    st.integers(2, 4),
    seconds,
)
latenesses = st.sampled_from([0, 1, SECOND_US, 40 * SECOND_US, 30 * MINUTE_US])
steps = st.builds(
    Step,
    tumblings | slidings,
    st.sampled_from(["window_start", "window_end"]),
    latenesses,
    st.sampled_from(["nothing", "rebalance", "union", "map", "keep", "totals"]),
)
times_us = st.lists(st.integers(0, 3 * MINUTE_US), min_size=1, max_size=25)


def tables_of(splits: list[list[int]]) -> list[pa.Table]:
    return [
        pa.table(
            {
                "key": [f"k{n % 3}" for n in range(len(times))],
                "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            }
        )
        for times in splits
    ]


def behind(stream: Stream, before: str, number: int) -> Stream:
    match before:
        case "rebalance":
            return stream.rebalance()
        case "map":
            return stream.map(lambda batch: batch, name=f"map-{number}")
        case "keep":
            return stream.then(KeepForAWhile(f"keep-{number}"))
        case "union":
            return stream.rebalance().union(stream, name=f"union-{number}")
        case "totals":  # Each new total of a key counts as a row of its own.
            keyed = stream.key_by("key", "window_start", "window_end")
            return keyed.aggregate(f"totals-{number}", agg.sum("count", name="count"))
    return stream


def chain_of(
    splits: list[list[int]], first: Step, later: Sequence[Step], pace: float | None = None
):
    """The job, and where the results of its first and of its last window go."""
    ledgers = {"first": Ledger(), "last": Ledger()}
    p = Pipeline("chain")
    rows = p.source("in", MemorySource(tables_of(splits), batch_rows=4), rows_per_second=pace)
    keyed = rows.watermark("ts", max_delay="5 seconds").key_by("key").window(first.window)
    stream = keyed.aggregate("window-0", agg.count(), allowed_lateness=lateness(first))
    stream.sink("first", LedgerSink(ledgers["first"], "first"))
    for number, step in enumerate(later, 1):
        stream = (
            behind(stream, step.before, number)
            .key_by("key")
            .window(step.window, time=step.time)
            .aggregate(
                f"window-{number}", agg.sum("count", name="count"), allowed_lateness=lateness(step)
            )
        )
    stream.sink("last", LedgerSink(ledgers["last"], "last"))
    return p.plan(), ledgers


def lateness(step: Step) -> timedelta | None:
    return timedelta(microseconds=step.lateness_us) if step.lateness_us else None


def late_rows(simulation: Simulation) -> dict[str, int]:
    """Rows that operators dropped as late, over all workers of the last generation."""
    found: dict[str, int] = {}
    for process in simulation.drivers[-1].stages[-1].workers:
        for task in process.worker.wiring.tasks:
            for operator_id, operator in task.parts.operators:
                late = getattr(operator, "late_row_count", 0)
                found[operator_id] = found.get(operator_id, 0) + late
    return found


def behind_the_first(late: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in late.items() if name != "window-0"}


def counted(ledger: Ledger) -> int:
    return sum(cast("int", row["count"]) for row in ledger.rows())


@given(
    splits=st.lists(times_us, min_size=1, max_size=3),
    first=steps,
    later=st.lists(steps, min_size=1, max_size=3),
    workers=st.integers(1, 2),
    crash=st.none() | st.integers(40, 300),
    timeout_ms=st.sampled_from([None, 0, 10]),
)
@settings(max_examples=drawn(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_chain_loses_nothing_that_its_first_operator_accepted(
    splits, first: Step, later: list[Step], workers: int, crash: int | None, timeout_ms: int | None
) -> None:
    plan, ledgers = chain_of(splits, first, later)
    checkpoint = CoordinatorConfig(interval_ms=20, alignment_timeout_ms=timeout_ms)
    simulation = Simulation(plan, parallelism=workers, checkpoint=checkpoint)
    if crash is not None:
        simulation.world.at_turn(crash, lambda: simulation.kill_worker(0))
    result = simulation.run()
    late = late_rows(simulation)
    assert set(behind_the_first(late).values()) == {0}
    assert result.rows_late == late["window-0"]
    if not any(step.before == "totals" for step in later):
        expected = counted(ledgers["first"])
        for step in later:
            expected *= step.copies * (2 if step.before == "union" else 1)
        assert counted(ledgers["last"]) == expected


def test_windows_with_lateness_lose_nothing_in_the_next_ones() -> None:
    """Five minutes with 30 of lateness, or ten every five; then hours by ``window_start``."""
    splits = [[(n * 60 + 7 * key) * SECOND_US for n in range(180) for key in range(3)]]
    hour = Step(windows.tumbling("1 hour"), "window_start", 0, "nothing")
    for window, late in (
        (windows.tumbling("5 minutes"), 30 * MINUTE_US),
        (windows.sliding("10 minutes", "5 minutes"), 0),
    ):
        plan, ledgers = chain_of(splits, Step(window, "ts", late, "nothing"), [hour])
        result = Simulation(plan).run()
        assert result.rows_late == 0
        assert counted(ledgers["last"]) == counted(ledgers["first"]) > 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("stopped_ms", range(400, 1600, 200))
@pytest.mark.parametrize("workers", [(1, 3), (3, 1)])
def test_after_a_change_of_the_number_of_workers_they_lose_nothing_either(
    workers: tuple[int, int], stopped_ms: int
) -> None:
    """A new sender announces what it holds back, not how far its own event time has come."""
    splits = [[(n + 40 * s) * 4 * SECOND_US for n in range(40)] for s in range(3)]
    first = Step(windows.tumbling("5 seconds"), "ts", 30 * SECOND_US, "nothing")
    later = [
        Step(SLIDING, "window_start", 0, "rebalance"),
        Step(windows.tumbling("1 minute"), "window_start", 0, "map"),
    ]
    plan, ledgers = chain_of(splits, first, later, pace=80)
    before = Simulation(plan, parallelism=workers[0], checkpoint=OVERTAKING)
    before.world.later(stopped_ms, before.stop)
    before.run()
    after = Simulation(
        plan,
        parallelism=workers[1],
        checkpoint=OVERTAKING,
        objects=before.objects,
        first_driver=2,
    )
    after.run()
    assert set(behind_the_first(late_rows(after)).values()) == {0}
    assert counted(ledgers["last"]) == 2 * counted(ledgers["first"]) > 0


def test_a_checkpoint_from_before_watermarks_were_held_back_restores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its lost rows stay lost, and counted. Nothing is emitted twice, and event time goes on."""
    splits = [[n * 4 * SECOND_US for n in range(60)]]
    first = Step(windows.tumbling("5 seconds"), "ts", 30 * SECOND_US, "nothing")
    later = [Step(windows.tumbling("1 minute"), "window_start", 0, "map")]
    lost = 0
    for stopped_ms in range(400, 1600, 200):
        plan, ledgers = chain_of(splits, first, later, pace=80)
        before = Simulation(plan, parallelism=1)
        before.world.later(stopped_ms, before.stop)
        with monkeypatch.context() as then:
            then.setattr("laminar_core.worker.operator_chain.output_watermark_of", lambda _, us: us)
            before.run()
        after = Simulation(plan, parallelism=1, objects=before.objects, first_driver=2)
        after.run()
        late = late_rows(after)["window-1"]
        assert counted(ledgers["last"]) + late == counted(ledgers["first"]) == 60
        emitted = [(row["key"], row["window_start"]) for row in ledgers["last"].rows()]
        assert len(emitted) == len(set(emitted))
        lost += late
    assert lost, "none of these checkpoints was taken after a loss"


def test_every_operator_that_acts_on_event_time_says_what_it_holds_back() -> None:
    silent: list[str] = []
    for path in Path(laminar_core.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
                acts = "on_watermark" in methods and not ignores_time(methods["on_watermark"])
                if acts and "snapshot" in methods and "output_watermark" not in methods:
                    silent.append(f"{path.name}: {node.name}")
    assert silent == ["base.py: Subtask"], "only the protocol itself may leave it open"


def ignores_time(on_watermark: ast.FunctionDef) -> bool:
    """Say whether it only returns nothing."""
    doc, *statements = on_watermark.body
    del doc
    return [ast.unparse(s) for s in statements] == ["del watermark_us", "return ()"]
