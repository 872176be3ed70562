"""A driver is killed beside two standbys: one of them goes on, and the output is exact."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.spark.jobs_under_test import Driver, SmallJob

pytestmark = [pytest.mark.large, pytest.mark.spark]

SLOWLY = 1_000
"""Rows a second: the input lasts for minutes, longer than two standbys need to start."""


def test_of_two_standbys_one_takes_a_killed_driver_over(tmp_path: Path) -> None:
    job = SmallJob(tmp_path).write_input()
    with ExitStack() as processes:
        driver, *standbys = (
            processes.enter_context(Driver(command, tmp_path / "driver.log"))
            for command in (
                job.command(rows_per_second=SLOWLY),
                job.command("--standby", rows_per_second=400_000),
                job.command("--standby", rows_per_second=400_000),
            )
        )
        driver.wait_for("generation-started")
        for standby in standbys:
            waiting = standby.wait_for("standby-waiting")
            while waiting["generation"] is None:  # It was faster than the driver.
                waiting = standby.wait_for("standby-waiting")
            assert waiting["is_warm"]
        driver.wait_for("checkpoint-completed")
        driver.process.kill()
        told = [list(standby.events()) for standby in standbys]
        codes = [standby.process.wait() for standby in standbys]

    assert codes == [0, 0]
    last = [events[-1]["event"] for events in told]
    assert sorted(last) == ["finished", "standby-ended"]
    winner, loser = sorted(told, key=lambda events: events[-1]["event"])
    starts = [event for event in winner if event["event"] == "generation-started"]
    assert starts[0]["restored_checkpoint_id"] is not None
    assert not [event for event in loser if event["event"] == "generation-started"]
    assert job.committed() == job.expected()
    assert job.visible() == job.expected()
