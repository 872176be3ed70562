"""Results keep all values, and the conditions under which they were measured."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from benchmarks.record import Machine, Record, figures_of, read_records
from benchmarks.result import Result

MACHINE = Machine(
    system="Linux x86_64",
    cores=2,
    memory_bytes=24 << 30,
    python="3.11.7",
    java="17.0.15",
    pyspark="4.3.0",
    pyarrow="26.0.1",
    laminar="0.1.0",
)
SPEED = Result.of_rounds("speed", [10.0, 30.0, 20.0], "rows/s", "higher", 25.0)
PAUSE = Result("pause", 4.0, "ms", "lower")


def record(**changes: object) -> Record:
    fields = {
        "benchmark": "fast",
        "command": "laminar bench fast",
        "began": datetime(2026, 11, 28, 9, 30, tzinfo=UTC),
        "ended": datetime(2026, 11, 28, 9, 31, tzinfo=UTC),
        "machine": MACHINE,
        "load_before": 0.5,
        "load_after": 1.5,
        "runs": 1,
        "figures": figures_of([[SPEED, PAUSE]]),
    }
    return Record.model_validate(fields | changes)


def test_a_result_of_rounds_is_their_median_and_keeps_them() -> None:
    assert (SPEED.value, SPEED.values, SPEED.met) == (20.0, (10.0, 30.0, 20.0), False)


def test_figures_have_the_rounds_of_all_runs() -> None:
    again = Result.of_rounds("speed", [40.0, 50.0], "rows/s", "higher", 25.0)
    speed, pause = figures_of([[SPEED, PAUSE], [again, Result("pause", 6.0, "ms", "lower")]])
    assert (speed.values, speed.median, speed.met) == ((10.0, 30.0, 20.0, 40.0, 50.0), 30.0, True)
    assert (pause.values, pause.median, pause.met) == ((4.0, 6.0), 5.0, None)


def test_a_record_is_read_as_it_was_saved(tmp_path: Path) -> None:
    kept = record()
    assert kept.save(tmp_path / "results").name == "fast.json"
    assert read_records(tmp_path / "results") == {"fast": kept}


@pytest.mark.parametrize(
    "changes",
    [
        {"began": datetime(2026, 11, 28, 9, 30)},  # noqa: DTZ001 - without a zone
        {"load_before": None},
        {"figures": [{"name": "n", "unit": "s", "better": "lower", "values": []}]},
        {"runs": 0},
    ],
    ids=["time without zone", "load neither noted nor described", "figure without value", "no run"],
)
def test_a_record_that_lacks_a_condition_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        record(**changes)


def test_a_load_that_was_not_noted_is_described() -> None:
    assert record(load_before=None, conditions="nothing else ran").load_before is None
