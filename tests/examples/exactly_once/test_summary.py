"""The demo says that it failed when it proved nothing, on the screen and in the file."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from examples.exactly_once.faults import Kill
from examples.exactly_once.summary import DemoSummary, show
from examples.oracle import Comparison
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.store.summaries import CheckpointSummary

CHECKPOINTS = tuple(
    CheckpointSummary(
        CheckpointId(number),
        "completed",
        generation=Generation(1),
        kind=CheckpointKind.FINAL if number == 12 else CheckpointKind.PERIODIC,
        mode="aligned",
        duration_ms=number * 1.25,
        size_bytes=2048,
    )
    for number in range(1, 13)
)
GOOD = DemoSummary(
    events=24_000_000,
    events_late=0,
    rows_per_second_paced=600_000,
    flowing_s=48.0,
    timings={"stream_s": 60.0},
    checkpoints=CHECKPOINTS,
    kills=(Kill("worker", 11, 1_000, 500, 1_900), Kill("driver", 12, 5_000, 700, 9_500)),
    kills_planned=2,
    comparison=Comparison(10, 10, ()),
    dagster_run_id="run",
)


def screen(summary: DemoSummary) -> str:
    console = Console(file=io.StringIO(), width=100)
    show(summary, console)
    return console.file.getvalue()


def test_a_good_demo_shows_everything_on_one_screen() -> None:
    text = screen(GOOD)
    for fact in ("24,000,000", "500,000 over 48.0 s", "paced to 600,000", "4.50 s", "EXACT"):
        assert fact in text
    assert all(f" {number} " in text for number in range(1, 13))
    assert "aligned final" in text
    assert len(text.splitlines()) < 40


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"comparison": Comparison(10, 9, ("m is missing",))}, "not exactly that of the batch"),
        ({"checkpoints": CHECKPOINTS[:9]}, "only 9 checkpoints completed"),
        ({"kills": GOOD.kills[:1]}, "only 1 of 2 kills"),
        ({"kills": (GOOD.kills[0], Kill("driver", 1, 2, 3))}, "only 1 of 2 kills"),
    ],
)
def test_a_demo_that_proves_nothing_says_so(changes: dict, problem: str) -> None:
    failed = replace(GOOD, **changes)
    assert problem in failed.problems[0]
    assert problem in screen(failed)
    assert "EXACT" not in screen(failed)


def test_the_file_holds_what_the_screen_shows() -> None:
    facts = json.loads(json.dumps(GOOD.to_json()))
    assert facts["exact"] is True
    assert facts["problems"] == []
    assert facts["events_per_second"] == 500_000
    assert [kill["recovery_ms"] for kill in facts["kills"]] == [900, 4500]
    assert facts["checkpoints"][11]["kind"] == "final"
    assert {"duration_ms", "size_bytes", "mode"} <= facts["checkpoints"][0].keys()
