"""The verdict is EXACT only if every step was done and the output is that of the batch query."""

from dataclasses import replace

import pytest
from rich.console import Console

from examples.operations.report import OperationsReport, show
from examples.operations.stage import Step
from examples.oracle import Comparison

GOOD = OperationsReport(
    steps=(Step("start", 12.3, ("driver 7 runs",)), Step("stop", 1.0, ())),
    steps_planned=2,
    comparison=Comparison(10, 10, ()),
    took_s=14.2,
)


def shown(report: OperationsReport) -> str:
    console = Console(record=True, width=100, quiet=False)
    show(report, console)
    return console.export_text()


def test_all_is_well() -> None:
    assert GOOD.problems == []
    text = shown(GOOD)
    assert "EXACT: all 10 rows are those of the Spark batch query" in text
    assert "12.3 s" in text
    assert "driver 7 runs" in text
    assert GOOD.to_json()["exact"] is True


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"steps_planned": 3}, "1 steps were not reached"),
        ({"comparison": None}, "the output was not compared"),
        ({"comparison": Comparison(10, 9, ("a is missing",))}, "not exactly"),
        ({"steps": (GOOD.steps[0], Step("stop", 1, (), "it goes on"))}, "stop: it goes on"),
    ],
)
def test_anything_else_is_a_failure(changes: dict, problem: str) -> None:
    report = replace(GOOD, **changes)
    assert any(problem in each for each in report.problems)
    text = shown(report)
    assert "FAILED" in text
    assert "EXACT" not in text


def test_json_has_every_step() -> None:
    (start, stop) = GOOD.to_json()["steps"]
    assert start == {"name": "start", "took_s": 12.3, "saw": ("driver 7 runs",), "failed": None}
    assert stop["name"] == "stop"
