"""Declarations of an enrichment: columns, limits, and what is refused before anything starts."""

from typing import Any

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.base import redistribution_of
from laminar_core.operators.enrich.spec import Enrich
from laminar_core.operators.enrich.subtask import Limits
from tests.operators.enrich.enriched import ADDED, INPUT, LIMITS, Service


def spec(**changes: Any) -> Enrich:
    limits = Limits(**{**LIMITS, **changes.pop("limits", {})})
    given = {"function": Service().double, "schema": ADDED, "limits": limits, **changes}
    return Enrich("mine", **given)


def test_it_adds_columns_and_keeps_the_rows_that_wait() -> None:
    assert spec().output_schema(INPUT).names == ["n", "double"]
    assert spec().state_tables(INPUT) == {"": INPUT}
    assert spec().side_outputs(INPUT) == {}
    assert spec(on_error="side").side_outputs(INPUT)["failed"].names == ["n", "error"]
    assert redistribution_of(spec()) == "union"


def test_another_function_may_go_on_with_the_rows() -> None:
    assert spec().describe() == spec(function=Service().double, on_error="null").describe()


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"schema": INPUT}, "two columns would be called 'n'"),
        ({"schema": pa.schema([("error", pa.string())]), "on_error": "side"}, "called 'error'"),
        ({"function": plain}, "'mine' needs a function that is declared with async def"),
        ({"on_error": "ignore"}, "has on_error='ignore': choose 'fail', 'null' or 'side'"),
        (
            {"schema": pa.schema([pa.field("x", pa.int64(), nullable=False)]), "on_error": "null"},
            "a column that cannot be null",
        ),
        ({"limits": {"concurrency": 0}}, "needs concurrency, a whole number of at least 1, not 0"),
        (
            {"limits": {"rows_per_call": -1}},
            "needs rows_per_call, a whole number of at least 1, not -1",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        spec(**changes).output_schema(INPUT)
