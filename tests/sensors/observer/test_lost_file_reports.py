"""Lost files are on the checkpoint's partition and in the check, within a minute, and once."""

import dagster as dg
import pytest

from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.names import check_key
from laminar_core.sensors.alerting.alerts import Alert
from laminar_core.sensors.alerting.sensors import build_check_failure_sensor
from laminar_core.sensors.observer.new_records import BESIDE_MS
from laminar_core.sensors.policy import AlertPolicy
from tests.sensors.observed import Daemon, DiedError
from tests.sensors.streams import STREAM, Job, Ticks, mark_damaged
from tests.store.stores import damage

KEY = check_key(STREAM, "files_present")
HEARD: list[Alert] = []


def hear(alert: Alert) -> None:
    HEARD.append(alert)


def verdicts(daemon: Daemon) -> list[str]:
    """Return the evaluations, oldest first."""
    history = daemon.instance.event_log_storage.get_asset_check_execution_history(KEY, limit=500)
    found = [record.evaluation for record in reversed(history)]
    return ["passed" if each.passed else each.severity.value for each in found]


def marked(daemon: Daemon) -> list[str | None]:
    """Return the partitions that are reported to have lost files."""
    return [
        each.partition for each in daemon.observed("checkpoint") if "lost_files" in each.metadata
    ]


def later(job: Job, daemon: Daemon) -> str:
    job.clock.wait_ms(BESIDE_MS)
    return "; ".join(daemon.ticks())


def test_a_loss_is_reported_within_a_minute_without_another_checkpoint(job, daemon) -> None:
    job.complete()
    job.complete()
    daemon.ticks()
    assert verdicts(daemon) == ["passed"]
    mark_damaged(job, 2)
    assert "checkpoint 2 cannot be restored" in later(job, daemon)
    assert verdicts(daemon) == ["passed", "WARN"]
    assert marked(daemon) == ["0000000002"]
    (shown,) = daemon.observed("checkpoint")
    assert shown.description == (
        "checkpoint 2 cannot be restored: the job found damage while it ran, "
        "shared/a.arrow (missing)"
    )
    assert shown.metadata["files"].value == {"shared/a.arrow": "missing"}
    assert shown.metadata["found_by_generation"].value == 1
    for _ in range(3):
        assert "cannot be restored" not in later(job, daemon)
    assert verdicts(daemon) == ["passed", "WARN"]


def test_the_check_follows_what_becomes_of_it(job: Job, daemon: Daemon) -> None:
    job.complete()
    job.complete()
    mark_damaged(job, 2)
    daemon.ticks()
    job.store.generations.end(job.generation, "failed", "out of memory")
    assert "a restore goes back to checkpoint 1" in later(job, daemon)
    job.claim(base=1)
    job.complete()
    assert "Repaired: checkpoint 3" in later(job, daemon)
    job.store.objects.delete(job.store.paths.manifest(CheckpointId(2)))
    later(job, daemon)
    assert verdicts(daemon) == ["WARN", "ERROR", "WARN", "passed"]
    assert marked(daemon) == ["0000000002"]


@pytest.mark.parametrize("writes", range(5))
def test_a_tick_that_dies_tells_each_mark_once(job: Job, daemon: Daemon, writes: int) -> None:
    for _ in range(3):
        job.complete()
    daemon.ticks()
    mark_damaged(job, 1, 2, 3)
    job.clock.wait_ms(BESIDE_MS)
    daemon.dies_after = writes
    with pytest.raises(DiedError):
        daemon.ticks()
    daemon.ticks()
    daemon.cursor = None
    daemon.ticks()
    assert marked(daemon) == ["0000000001", "0000000002", "0000000003"]
    assert verdicts(daemon) == ["passed", "WARN"]


def test_an_unknown_timeline_keeps_nothing_else_from_being_reported(job, daemon) -> None:
    job.complete()
    mark_damaged(job, 1)
    job.store.objects.delete(job.store.paths.base_copy(job.generation))
    damage(job.store, job.store.paths.base(job.generation), "torn")
    assert "which checkpoints count is unknown" in daemon.tick()
    assert verdicts(daemon) == []


def test_a_loss_its_escalation_and_the_next_one_raise_alerts(job, daemon) -> None:
    """Goal: from the driver's record to the hook."""
    HEARD.clear()
    check = dg.AssetCheckSpec(KEY.name, asset=KEY.asset_key)

    @dg.multi_asset_check(specs=[check])
    def judge():
        yield from ()

    alerts = Ticks(
        daemon.instance,
        build_check_failure_sensor({STREAM: AlertPolicy(hook=f"{__name__}:hear")}, job.clock),
        daemon.uri,
        dg.Definitions(assets=[dg.AssetSpec(KEY.asset_key)], asset_checks=[judge]),
    )
    job.complete()
    job.complete()
    daemon.ticks()
    alerts.tick()
    mark_damaged(job, 2)
    later(job, daemon)
    alerts.tick()
    job.store.generations.end(job.generation, "failed", "out of memory")
    later(job, daemon)
    alerts.tick()
    job.claim(base=1)
    job.complete()
    later(job, daemon)
    alerts.tick()
    assert [alert.severity for alert in HEARD] == ["warning", "error"]
    assert HEARD[1].text.endswith("and a restore goes back to checkpoint 1")
    assert HEARD[1].runbook.endswith("#check-failed")
    mark_damaged(job, 3)
    later(job, daemon)
    alerts.tick()
    assert [alert.severity for alert in HEARD] == ["warning", "error", "warning"]
