"""Operators say which columns they can begin to keep; others only get wider ones."""

from collections.abc import Mapping

import pyarrow as pa
import pytest

from laminar_core.operators import agg
from laminar_core.operators.running import CombineRows, RunningAggregate
from laminar_core.operators.windows import tumbling
from laminar_core.pipeline import Pipeline
from laminar_core.plan.evolving import rules_of_edge, rules_of_state, state_tables_of
from laminar_core.plan.plan import Plan
from laminar_core.state.evolving import NOTHING_BUT_WIDER, compare_columns
from laminar_core.state.named_tables import Merging, TableLayout, described
from laminar_core.testing.jobs import payments
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource


def totals() -> Plan:
    p = Pipeline("p")
    rows = p.source("in", MemorySource(payments(1, 5)))
    aggregates = agg.count(), agg.avg("value"), agg.max("id")
    rows.key_by("key").aggregate("totals", *aggregates).sink("out", LedgerSink(Ledger()))
    return p.plan()


def test_an_aggregation_can_begin_to_keep_accumulators_in_state_and_in_flight() -> None:
    plan = totals()
    (edge,) = [e for e in plan.edges if e.downstream == "totals"]
    allowed = rules_of_edge(plan, edge)
    assert {name: value.as_py() for name, value in allowed.first.items()} == {
        "count(*)": 0, "sum(value)": None, "count(value)": 0, "max(id)": None,
    }  # fmt: skip
    assert allowed.together == (("sum(value)", "count(value)"),)
    table = state_tables_of(plan)["totals"][""]
    assert table.first == allowed.first
    assert table.schema.names == ["key_group", "key", "count(*)", *list(allowed.first)[1:]]


def test_rows_beside_accumulators_may_get_columns_that_can_be_null() -> None:
    p = Pipeline("p")
    rows = p.source("in", MemorySource(payments(1, 5))).watermark("ts").key_by("key")
    totals = rows.window(tumbling("1 hour")).aggregate("totals", agg.count(), late_rows=True)
    totals.sink("out", LedgerSink(Ledger()))
    plan = p.plan()
    parts, late = (rules_of_edge(plan, e) for e in plan.edges if e.downstream == "totals")
    assert (parts.drops, late.drops) == (True, False)
    assert (late.adds_nulls, late.keys) == (True, {"key"})
    assert state_tables_of(plan)["totals"][""].first.keys() == {"count(*)"}


class Marked:
    """An operator of one's own, with a table of rows that it got."""

    added_columns = "null"
    operator_id = "marked"

    def __init__(self, merging: Merging) -> None:
        self._merging: Merging = merging

    def _layout(self, schema: pa.Schema) -> TableLayout:
        rows = schema.insert(0, pa.field("key_group", pa.int32()))
        return TableLayout("rows", rows, ("k",), self._merging)

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        return {"rows": self._layout(inputs[0]).schema}

    def describe(self):
        return {"tables": described([self._layout(pa.schema([("k", pa.string())]))]), "kind": "m"}


BEFORE = pa.schema([("k", pa.string())])
NOW = BEFORE.append(pa.field("note", pa.string()))


@pytest.mark.parametrize(
    ("merging", "is_refused"), [("append", False), ("newest", False), ("weights", True)]
)
def test_tables_of_rows_get_nulls_but_not_where_a_row_is_told_by_all_columns(
    merging: Merging, *, is_refused: bool
) -> None:
    """Taking the row away later, with a note, would leave the row without one."""
    spec = Marked(merging)
    before, now = (spec.state_tables(schema)["rows"] for schema in (BEFORE, NOW))
    changes = compare_columns(before, now, rules_of_state(spec, NOW)("rows"))
    assert bool(changes.problems) is is_refused
    assert "k" in rules_of_state(spec, NOW)("rows").keys


def test_an_operator_that_says_nothing_gets_wider_columns_only() -> None:
    spec = Marked("append")
    spec.added_columns = ""
    assert rules_of_state(spec, NOW)("rows") is NOTHING_BUT_WIDER


def test_what_is_first_of_an_accumulator_of_a_user_only_the_user_knows() -> None:
    class Longest:
        name, version, state_type, result_type = "longest", 1, pa.int64(), pa.int64()

        def init(self):
            return 0

        def accumulate(self, state, values):
            return max(state, values.length)

        def merge(self, left, right):
            return max(left, right)

        def finish(self, state):
            return state

    aggregates = (agg.user(Longest(), "v"),)
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    partial = CombineRows("c", ("k",), aggregates).output_schema(schema)
    spec = RunningAggregate("r", ("k",), aggregates)
    assert list(spec.first_values(partial)) == ["count(*)"]
