"""Descriptions get the names of columns that a person gives, in the places of columns only."""

import pytest

from laminar_core.driver.recovery.column_names import (
    applied_to_descriptions,
    names_of,
    refused_renames,
    with_column_names,
)
from laminar_core.driver.recovery.start_texts import ColumnRename
from laminar_core.operators import agg
from laminar_core.operators.base import JsonObject
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.testing.jobs import DELAY, payments
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from tests.driver.recovery.test_source_changes import checkpoint_of


def plan_of(key: str, value: str, time: str) -> Plan:
    """A join, and totals of its pairs, with these names of the left side."""
    names = {"key": key, "value": value, "ts": time}

    def left_names(batch):
        return batch.rename_columns([names.get(n, n) for n in batch.schema.names])

    p = Pipeline("p")
    rows = p.source("a", MemorySource(payments(1, 5))).watermark("ts", max_delay=DELAY, name="t")
    left = rows.map(left_names, name="left").watermark(time, max_delay=DELAY, name="time")
    pairs = left.join(rows, on={key: "key"}, within=("0 seconds", "1 second"), name="join")
    totals = pairs.key_by(key).aggregate("totals", agg.sum(value), agg.first("id", by=time))
    totals.sink("out", LedgerSink(Ledger(), "out"))
    return p.plan()


BEFORE, NOW = plan_of("key", "value", "ts"), plan_of("shop", "sum", "at")
NAMES = ("key", "shop"), ("value", "sum"), ("ts", "at")


def renames(*operators: str) -> list[ColumnRename]:
    return [ColumnRename(o, *pair) for o in operators for pair in NAMES]


def without_code(described: JsonObject) -> JsonObject:
    """Aggregates are found by what they compute; their names follow the columns."""
    aggregates = described["aggregates"]
    assert isinstance(aggregates, list)
    return {**described, "aggregates": [{**dict(a), "name": ""} for a in aggregates]}  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_keys_times_and_columns_of_aggregates_get_their_names() -> None:
    found = with_column_names(
        checkpoint_of(BEFORE), NOW, names_of(renames("join", "totals", "time"))
    )
    now = NOW.descriptions()
    for operator_id in ("join", "time"):
        assert found.operators_description[operator_id] == now[operator_id]
    for operator_id in ("totals", "totals-combine"):
        described = found.operators_description[operator_id]
        assert without_code(described) == without_code(now[operator_id])


def test_only_the_operator_that_is_named_is_touched() -> None:
    checkpoint = checkpoint_of(BEFORE)
    found = with_column_names(checkpoint, NOW, names_of(renames("time")))
    for operator_id, described in checkpoint.operators_description.items():
        assert (found.operators_description[operator_id] == described) is (operator_id != "time")
    assert found.operators_description["time"] == NOW.descriptions()["time"]


def test_what_is_no_column_keeps_its_name() -> None:
    """A function ``sum`` over a column ``sum``."""
    plan = plan_of("key", "sum", "ts")
    other = plan_of("key", "max", "ts")
    found = with_column_names(
        checkpoint_of(plan), other, names_of([ColumnRename("totals", "sum", "max")])
    )
    aggregates = found.operators_description["totals"]["aggregates"]
    assert isinstance(aggregates, list)
    first = aggregates[0]
    assert isinstance(first, dict)
    assert (first["function"], first["column"]) == ("sum", "max")


def test_the_same_names_change_nothing() -> None:
    checkpoint = checkpoint_of(NOW)
    names = renames("join", "totals", "time")
    assert with_column_names(checkpoint, NOW, names_of(names)) is checkpoint
    assert applied_to_descriptions(checkpoint, NOW, names) == set()


KEY = ColumnRename("totals", "key", "shop")


@pytest.mark.parametrize(
    ("one", "columns", "applied", "problem"),
    [
        (KEY, {"key"}, {KEY}, None),
        (KEY, {"shop"}, set(), None),
        (KEY, set(), set(), None),
        (KEY, {"value"}, set(), "checkpoint 7 has no column key of totals that is called shop"),
        (KEY, {"key", "shop"}, set(), "no column key of totals that is called shop"),
        (ColumnRename("no", "key", "shop"), {"key"}, set(), "the pipeline has no no"),
    ],
    ids=["applied", "done", "no rows", "not there", "both", "no operator"],
)
def test_a_rename_of_nothing_is_refused(
    one: ColumnRename, columns: set[str], applied: set[ColumnRename], problem: str | None
) -> None:
    checkpoint: CheckpointManifest = checkpoint_of(BEFORE)
    found = list(refused_renames(checkpoint, NOW, [one], {"totals": columns}, applied))
    assert len(found) == (problem is not None)
    assert all(problem is not None and problem in text for text in found)
