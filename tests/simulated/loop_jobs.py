"""Jobs with loops, and the answers that plain Python computes for them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.operators import Keys, ListState, Timers
from laminar_core.operators.process.declared import State
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from tests.simulated.simulated_jobs import Job

Row = dict[str, Any]

SCHEMA = pa.schema([("id", pa.int64()), ("left", pa.int64()), ("rounds", pa.int64())])
"""``left`` is how often a row still has to go round, ``rounds`` how often it has."""

AGAIN, DONE = pc.field("left") > 0, pc.field("left") <= 0


def rows(splits: int = 3, count: int = 20, rounds: int = 7, first: int = 0) -> list[pa.Table]:
    ids = [range(first + n * count, first + (n + 1) * count) for n in range(splits)]
    return [
        pa.table({"id": i, "left": [n * 5 % rounds for n in i], "rounds": [0] * count}, SCHEMA)
        for i in ids
    ]


def rows_of(tables: Iterable[pa.Table]) -> list[Row]:
    return [row for table in tables for row in table.to_pylist()]


def once(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every row has gone round once more."""
    left = pc.subtract(batch.column("left"), 1)
    rounds = pc.add(batch.column("rounds"), 1)
    return pa.record_batch([batch.column("id"), left, rounds], schema=batch.schema)


def refill(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Back to the start of a loop, with ``id % 4`` rounds to go."""
    ids = batch.column("id")
    left = pc.subtract(ids, pc.multiply(pc.divide(ids, 4), 4))
    return pa.record_batch([ids, left, batch.column("rounds")], schema=batch.schema)


def again_from_id(batch: pa.RecordBatch) -> pa.RecordBatch:
    rounds = pc.add(batch.column("rounds"), 100)
    return refill(batch).set_column(2, batch.schema.field(2), rounds)


def settled(row: Row) -> Row:
    """Sequentially: at least one round, then as long as any are left."""
    while True:
        row = {**row, "left": row["left"] - 1, "rounds": row["rounds"] + 1}
        if row["left"] <= 0:
            return row


def job(p: Pipeline, stream: Stream, expected: list[Row]) -> Job:
    ledger = Ledger()
    stream.sink("out", LedgerSink(ledger))
    return Job(p.plan(), {"out": expected}, {"out": ledger})


def body(name: str, shuffle: Callable[[Stream], Stream] = lambda s: s):
    def looped(entering: Stream) -> tuple[Stream, Stream]:
        done = shuffle(entering).map(once, name=f"{name}-once")
        again = done.filter(AGAIN, name=f"{name}-again")
        return shuffle(again), done.filter(DONE, name=f"{name}-done")

    return looped


def source(p: Pipeline, tables: list[pa.Table], name: str = "in", **options: object) -> Stream:
    return p.source(name, MemorySource(tables, **options))


def retry_job() -> Job:
    """Head and tail in one worker."""
    p, tables = Pipeline("retry"), rows()
    stream = source(p, tables, gap_every=3).iterate(body("a"), name="loop")
    return job(p, stream, [settled(row) for row in rows_of(tables)])


def shuffled_job() -> Job:
    """Exchanges everywhere: into the loop, inside it, back, and out of it."""
    p, tables = Pipeline("shuffled"), rows()
    stream = source(p, tables).rebalance().iterate(body("a", Stream.rebalance), name="loop")
    return job(p, stream.rebalance(), [settled(row) for row in rows_of(tables)])


def self_job() -> Job:
    """The head feeds itself: its body is in its own vertex."""
    p, tables = Pipeline("self"), rows()

    def looped(entering: Stream) -> tuple[Stream, Stream]:
        left = entering.map(once, name="once").filter(pc.field("left") > -3, name="alive")
        return left, left

    def every_round(row: Row) -> list[Row]:
        found = []
        while row["left"] - 1 > -3:
            row = {**row, "left": row["left"] - 1, "rounds": row["rounds"] + 1}
            found.append(row)
        return found

    stream = source(p, tables).rebalance().iterate(looped, name="loop")
    return job(p, stream, [r for row in rows_of(tables) for r in every_round(row)])


def several_job() -> Job:
    """Two streams come back, divided in different ways."""
    p, tables = Pipeline("several"), rows()

    def looped(entering: Stream) -> tuple[list[Stream], Stream]:
        done = entering.map(once, name="once")
        again = done.filter(AGAIN, name="again")
        even = again.filter(pc.equal(pc.bit_wise_and(pc.field("left"), 1), 0), name="even")
        odd = again.filter(pc.equal(pc.bit_wise_and(pc.field("left"), 1), 1), name="odd")
        return [even.rebalance(), odd], done.filter(DONE, name="done")

    stream = source(p, tables).iterate(looped, name="loop")
    return job(p, stream, [settled(row) for row in rows_of(tables)])


def nested_job() -> Job:
    """The inner loop counts down, the outer one sends rows into it three times."""
    p, tables = Pipeline("nested"), rows(rounds=9)

    def outer(entering: Stream) -> tuple[Stream, Stream]:
        inner = entering.iterate(body("inner", Stream.rebalance), name="inner")
        refilled = inner.map(again_from_id, name="refill")
        few = pc.field("rounds") < 300
        again = refilled.filter(few, name="outer-again")
        return again.rebalance(), refilled.filter(~few, name="outer-done")

    def oracle(row: Row) -> Row:
        while row["rounds"] < 300:
            row = settled(row)
            row = {**row, "left": row["id"] % 4, "rounds": row["rounds"] + 100}
        return row

    stream = source(p, tables).iterate(outer, name="outer")
    return job(p, stream, [oracle(row) for row in rows_of(tables)])


def crossing_job() -> Job:
    """Two loops, each of which feeds the head of the other: rows change sides every round."""
    p, tables, others = Pipeline("crossing"), rows(), rows(2, 15, first=1000)
    beside = source(p, others, "b", gap_every=2, gap_polls=20)

    def first(entering: Stream) -> tuple[Stream, tuple[Stream, Stream]]:
        here = entering.map(once, name="once-1")

        def second(crossing: Stream) -> tuple[Stream, Stream]:
            return here.filter(AGAIN, name="again-1"), crossing.map(once, name="once-2")

        there = beside.iterate(second, name="second")
        done = (here.filter(DONE, name="done-1"), there.filter(DONE, name="done-2"))
        return there.filter(AGAIN, name="again-2"), done

    here, there = source(p, tables, "a").iterate(first, name="first")
    return job(p, here.union(there), [settled(row) for row in rows_of(tables + others)])


def in_a_row_job() -> Job:
    """One loop feeds another one."""
    p, tables = Pipeline("in-a-row"), rows()
    first = source(p, tables).iterate(body("a", Stream.rebalance), name="first")
    refilled = first.map(refill, name="refill")
    stream = refilled.rebalance().iterate(body("b"), name="second")
    expected = [settled({**settled(row), "left": row["id"] % 4}) for row in rows_of(tables)]
    return job(p, stream, expected)


def side_by_side_job() -> Job:
    """Two loops that know nothing of each other, joined behind them."""
    p, tables, others = Pipeline("side-by-side"), rows(), rows(2, 15, first=1000)
    a = source(p, tables, "a").iterate(body("a"), name="first")
    b = source(p, others, "b", gap_every=2).iterate(body("b", Stream.rebalance), name="second")
    return job(p, a.union(b), [settled(row) for row in rows_of(tables + others)])


def outside_input_job() -> Job:
    """An operator of the body has an input from outside, too."""
    p, tables, others = Pipeline("outside"), rows(), rows(2, 15, first=1000)
    joining = source(p, others, "late", gap_every=1, gap_polls=5).rebalance()

    def looped(entering: Stream) -> tuple[Stream, Stream]:
        done = entering.rebalance().union(joining).map(once, name="once")
        return done.filter(AGAIN, name="again"), done.filter(DONE, name="done")

    stream = source(p, tables).rebalance().iterate(looped, name="loop")
    return job(p, stream, [settled(row) for row in rows_of(tables + others)])


def nothing_comes_back_job() -> Job:
    """All rows are settled in their first round."""
    p, tables = Pipeline("once"), rows(rounds=1)
    stream = source(p, tables).iterate(body("a", Stream.rebalance), name="loop")
    return job(p, stream, [settled(row) for row in rows_of(tables)])


def no_rows_job() -> Job:
    """A loop that never sees a row."""
    p = Pipeline("no-rows")
    stream = source(p, [SCHEMA.empty_table()]).iterate(body("a", Stream.rebalance), name="loop")
    return job(p, stream, [])


class Later:
    """Lets rows go a second after they came, one key at a time."""

    version = 1
    state: Mapping[str, State] = {"rows": ListState(pa.struct(list(SCHEMA)))}
    schema = SCHEMA

    def process(self, rows: pa.RecordBatch, keys: Keys, state: Any, timers: Timers) -> None:
        state["rows"].append(keys, rows.to_struct_array())
        timers.set_clock(keys, timers.now_us + 1_000_000)

    def on_clock_timer(
        self, due: pa.RecordBatch, keys: Keys, state: Any, timers: Timers
    ) -> pa.RecordBatch:
        del due, timers
        waiting = state["rows"].get(keys).flatten()
        state["rows"].clear(keys)
        return pa.RecordBatch.from_struct_array(waiting)


def later_job() -> Job:
    """Rows wait in the loop, where nothing but the clock lets them go on."""
    p, tables = Pipeline("later"), rows(count=4)

    def looped(entering: Stream) -> tuple[Stream, Stream]:
        tried = entering.key_by("id").process("wait", Later()).map(once, name="once")
        return tried.filter(AGAIN, name="again").rebalance(), tried.filter(DONE, name="done")

    stream = source(p, tables).iterate(looped, name="loop")
    return job(p, stream, [settled(row) for row in rows_of(tables)])


LOOP_JOBS: dict[str, Callable[[], Job]] = {
    "retry": retry_job,
    "shuffled": shuffled_job,
    "self": self_job,
    "several": several_job,
    "nested": nested_job,
    "crossing": crossing_job,
    "in-a-row": in_a_row_job,
    "side-by-side": side_by_side_job,
    "outside-input": outside_input_job,
    "nothing-comes-back": nothing_comes_back_job,
    "no-rows": no_rows_job,
}
