"""A lookup goes on with the table of its checkpoint, or with another one that was accepted."""

from collections.abc import Mapping

import pytest

from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.driver.recovery.changed_tables import ChangedTables, changed_tables
from laminar_core.operators.base import JsonObject
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import payments
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from tests.driver.recovery.test_source_changes import checkpoint_of


def plain_plan():
    p = Pipeline("p")
    p.source("a", MemorySource(payments(1, 5))).sink("out", LedgerSink(Ledger()))
    return p.plan()


CHECKPOINT = checkpoint_of(plain_plan())


def table(**files: tuple[int, str]) -> JsonObject:
    pins = [
        {"name": f"{name}.parquet", "size_bytes": size, "version": version}
        for name, (size, version) in files.items()
    ]
    return {"rates": {"kind": "lookup", "how": "left", "table": {"files": pins}}}


BEFORE = table(a=(5, "v1"), b=(6, "v1"))


def compared(
    now: Mapping[str, JsonObject], *accepted: str, before: JsonObject = BEFORE
) -> ChangedTables:
    manifest = CHECKPOINT.model_copy(update={"operators_description": before})
    return changed_tables(manifest, now, tuple(map(parse_acceptance, accepted)))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (table(a=(5, "v1")), "b.parquet is gone; bring"),
        (table(a=(5, "v1"), b=(6, "v1"), c=(1, "v1")), "c.parquet is new; bring"),
        (table(a=(5, "v1"), b=(7, "v2")), "b.parquet has 7 bytes instead of 6; bring"),
        (table(a=(5, "v2"), b=(6, "v1")), "a.parquet was written again, with the same length"),
        (table(d=(5, "v1")), "a.parquet is gone, and 2 more files differ"),
    ],
)
def test_a_file_that_differs_is_named_in_one_line(now: JsonObject, said: str) -> None:
    ((name, problem),) = compared(now).problems
    assert name == "rates"
    assert problem.startswith("checkpoint 7 was taken with another table of lookup rates: ")
    assert said in problem
    assert "--accept lookup-change:rates and a --reason" in problem
    assert "\n" not in problem


def test_other_files_are_accepted_and_written_down() -> None:
    found = compared(table(a=(5, "v1")), "lookup-change:rates", "lookup-change:other")
    assert found.problems == ()
    assert [str(one) for one in found.used] == ["lookup-change:rates"]
    assert found.accepted == ("lookup-change:rates: b.parquet is gone",)


def test_the_same_table_and_what_is_no_table_are_not_changes() -> None:
    assert compared({"rates": {**BEFORE["rates"], "how": "inner"}}) == ChangedTables()
    assert compared(BEFORE, "lookup-change:rates") == ChangedTables()
    assert compared({"rates": {"kind": "map"}}) == ChangedTables()
    assert compared({"new": BEFORE["rates"]}) == ChangedTables()


def test_a_table_without_files_is_compared_as_a_whole() -> None:
    before, now = ({"rates": {"kind": "lookup", "table": {"rows": n}}} for n in (1, 2))
    ((_, problem),) = compared(now, before=before).problems
    assert "its rows are others" in problem
