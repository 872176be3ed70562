"""A job in Spark is told from outside to take savepoints and to stop; it goes on elsewhere.

Driver and commands are real processes that share nothing but the store.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.jobs_under_test import ROOT, Driver, SmallJob

pytestmark = [pytest.mark.early, pytest.mark.large, pytest.mark.spark]


def laminar(*words: str) -> dict:
    """Run a command that must succeed; what it prints with --json."""
    command = [sys.executable, "-m", "laminar_core.cli", *words, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ended_well(driver: Driver) -> bool:
    for _ in driver.events():
        pass
    return driver.process.wait() == 0


def test_a_job_that_was_stopped_with_a_savepoint_goes_on_under_another_name(tmp_path: Path) -> None:
    job = SmallJob(tmp_path).write_input()
    first, last, moved = (str(tmp_path / name) for name in ("first", "last", "moved"))
    with Driver(job.command(rows_per_second=5_000), tmp_path / "log") as driver:
        next(e for e in driver.events() if e["event"] == "progress" and e["rows_out"])
        taken = laminar("savepoint", first, "--store", job.store, "--reason", "before the move")
        assert (taken["outcome"], taken["savepoint"]) == ("completed", first)
        stopped = laminar("stop", "--savepoint", last, "--store", job.store)
        assert (stopped["outcome"], stopped["savepoint"]) == ("completed", last)
        assert ended_well(driver)
    assert laminar("savepoint", "verify", last)["ok"]
    assert 0 < len(job.committed()) < len(job.expected())

    Path(last).rename(moved)
    more = ("--job", "renamed", "--from-savepoint", moved, "--claim")
    with Driver(job.command(*more), tmp_path / "log") as driver:
        assert ended_well(driver)
    assert job.committed() == job.expected()
    assert job.visible() == job.expected()
    assert not Path(moved, "savepoint.json").exists(), "claimed, and a checkpoint built on it"
    listed = laminar("savepoint", "list", str(tmp_path))
    assert [one["savepoint"] for one in listed] == [first]
