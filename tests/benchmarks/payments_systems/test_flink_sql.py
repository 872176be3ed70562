"""Flink SQL gets one statement a line."""

import pytest

from benchmarks.payments_systems.flink_sql import statements
from benchmarks.payments_systems.question import Question


@pytest.mark.parametrize(("named", "kind"), [(True, "STRING"), (False, "BIGINT")])
def test_each_statement_is_one_line_and_the_last_one_does_it(*, named: bool, kind: str) -> None:
    lines = statements(Question("/rows", "/out", 2), 7, named=named)
    assert not [line for line in lines if "\n" in line or "{" in line]
    assert lines[-1].startswith("INSERT INTO `out 7` SELECT merchant")
    assert f"(merchant {kind}," in lines[0]
    assert "'path'='file:///rows'" in lines[0]
    assert "'path'='file:///out'" in lines[1]
