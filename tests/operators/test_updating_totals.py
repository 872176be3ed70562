"""Totals over rows that come and go, against the totals of the rows that are there."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import Aggregate, accumulate, accumulators_of, finish
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators import agg, updating_totals
from laminar_core.operators.base import Snapshot, StateTable
from laminar_core.operators.running import CombineRows, RunningAggregate
from laminar_core.operators.updating_totals import TOTALS
from tests.operators.updating_histories import ID, History, Job, Line, line_of

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("i", pa.int32()),
        ("s", pa.dictionary(pa.int8(), pa.string())),
        ("d", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us")),
    ]
)
AGGREGATES = (
    agg.count(),
    agg.count("x", name="xs"),
    agg.sum("x"),
    agg.avg("x"),
    agg.sum("i"),
    agg.avg("i"),
    agg.sum("d"),
    agg.avg("d"),
    agg.min("x"),
    agg.max("x"),
    agg.min("s", name="least"),
    agg.count_distinct("s", name="kinds"),
    agg.percentile("i", 0.5, name="median"),
    agg.stddev_samp("i", name="spread"),
    agg.var_pop("d"),
    agg.first("s", by="at", name="first"),
    agg.last("i", by="at", name="last"),
)
KEYS = ("k",)


def pool(seed: int) -> pa.RecordBatch:
    """Return rows of few values, so that many are alike."""
    choice = Random(seed).choice
    inf = float("inf")
    rows = [
        {
            "k": choice(["a", "b", "c", None]),
            "x": choice([0.5, 2.25, -1.0, 0.0, -0.0, None, float("nan"), inf, -inf, 0.5]),
            "i": choice([None, 1, 2, -3]),
            "s": choice([None, "p", "q", "r"]),
            "d": choice([None, Decimal("1.25"), Decimal("-9999999.99")]),
            "at": choice([None, 1, 2]),
        }
        for _ in range(16)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def batch_answer(rows: pa.RecordBatch) -> Counter[Line]:
    """Return the totals of all rows at once, by aggregates that know no weights."""
    table = pa.Table.from_batches([rows])
    if not table.num_rows:
        return Counter()
    needed = accumulators_of(AGGREGATES)
    state = accumulate({key: table.column(key) for key in KEYS}, table, needed)
    columns = {key: state.column(key) for key in KEYS}
    columns |= {one.name: finish(state, one) for one in AGGREGATES}
    return Counter(line_of(row) for row in pa.table(columns).to_pylist())


def add_weights(seen: Counter[Line], emitted: Sequence[tuple[Line, int]]) -> None:
    for line, weight in emitted:
        seen[line] += weight
        assert seen[line] in (0, 1), f"{line} is there {seen[line]} times"


def job(aggregates: Sequence[Aggregate] = AGGREGATES) -> Job:
    over = tuple(one.over_weights() for one in aggregates)
    return Job(
        CombineRows("combine", KEYS, over),
        RunningAggregate("totals", KEYS, over, "retract"),
        SCHEMA,
    )


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(120))
def test_totals_are_those_of_the_rows_that_are_there(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # Removed totals are forgotten at once.
        monkeypatch.setattr(updating_totals, "REMOVED_MIN", 0)
    History(job(), pool(seed), batch_answer, add_weights, seed).run(steps=14)


def test_a_group_whose_rows_have_gone_leaves_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: 100 times as many keys as there are at a time go through, and memory is bounded."""
    monkeypatch.setattr(updating_totals, "REMOVED_MIN", 10)
    alive, made = 20, job([agg.count()])
    rows = pa.RecordBatch.from_pylist([{"k": str(n), "i": n} for n in range(2_000)], schema=SCHEMA)
    history = History(made, rows, batch_answer, add_weights, 0)
    for start in range(0, 2_000, alive):
        come = [(n, 1) for n in range(start, start + alive)]
        go = [(n, -1) for n in range(start - alive, start) if start]
        history.feed(come + go)
        made.cut(full=False)
        assert made.held() == alive
        assert len(made.subtasks[0]) <= 3 * alive + 10


def test_what_rounds_goes_without_a_rest() -> None:
    """Goal: 0.1 + 0.2 - 0.2 - 0.1 is not 0 in floats, and the group is gone all the same."""
    rows = pa.RecordBatch.from_pylist(
        [{"k": "a", "x": 0.1}, {"k": "a", "x": 0.2}, {"k": "a", "x": 1e300}], schema=SCHEMA
    )
    made = job([agg.sum("x")])
    history = History(made, rows, batch_answer, add_weights, 0)
    history.feed([(1, 1), (0, 1), (2, 1)])
    history.feed([(2, -1), (1, -1)])
    assert made.held() == 1
    history.feed([(0, -1)])
    assert made.held() == 0
    assert not +history.seen


def test_a_row_that_goes_before_it_comes_is_remembered() -> None:
    """Goal: the count is 0 in between, and the sum has a rest that is not forgotten."""
    rows = pa.RecordBatch.from_pylist([{"k": "a", "x": 0.5}, {"k": "a", "x": 2.0}], schema=SCHEMA)
    made = job([agg.sum("x")])
    history = History(made, rows, batch_answer, add_weights, 0)
    history.feed([(0, -1)])
    assert (history.seen, made.held()) == (Counter(), 1)
    history.feed([(1, 1)])
    assert (+history.seen, made.held()) == (Counter(), 1)
    made.restore(made.cut(full=True), 3)
    history.feed([(0, 1)])
    assert +history.seen == Counter({("a", 2.0): 1})


def test_equal_totals_are_not_emitted_again() -> None:
    made = job()
    history = History(made, pool(3), batch_answer, add_weights, 0)
    history.feed([(0, 1), (1, 1)])
    assert made.feed(history.rows([(0, 1), (0, -1)])) == []


def test_state_with_other_columns_is_refused() -> None:
    made = job()
    wrong = Snapshot((StateTable(TOTALS, pa.table({"key_group": pa.array([1], pa.int32())})),))
    properties = made.subtasks[0].snapshot(ID)().properties
    with pytest.raises(IncompatibleStateError) as refused:
        made.subtasks[0].restore([Snapshot(wrong.tables, properties)])
    assert refused.value.code is ErrorCode.OPERATORS_CHANGED
