"""Events beside checkpoints are reported once, unless a run reports them itself."""

import dagster as dg

from laminar_core.records.actor import Actor
from laminar_core.resources.names import ACT_TAG, ACTS_ON_TAG, DRILL_TAG, asset_key
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.retention.run import Retention
from laminar_core.sensors.observer.new_records import BESIDE_MS
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.drills import read_drills, write_drill
from tests.sensors.observed import Daemon, conclude, write_down
from tests.sensors.streams import STREAM, Job, stand_ins
from tests.store.stores import commit

# --- verdicts -------------------------------------------------------------------------------------


def test_the_newest_checkpoint_of_a_minute_is_judged_once(job: Job, daemon: Daemon) -> None:
    for _ in range(2):
        commit(job.store, job.complete(), 1)
    daemon.ticks()
    for _ in range(3):
        commit(job.store, job.complete(), 1)
        job.clock.wait_ms(BESIDE_MS // 3)
        daemon.ticks()
    for check in ("alignment_p99", "inflight_share", "chain_length"):
        assert daemon.evaluated(check) == [(2, True), (5, True)]
    visible = [each.metadata["committed_checkpoint"].value for each in daemon.observed("output")]
    assert visible == [2, 5]


def test_a_clock_that_steps_back_does_not_silence_the_verdicts(job: Job, daemon: Daemon) -> None:
    commit(job.store, job.complete(), 1)
    daemon.ticks()
    job.clock._now_ms -= 3_600_000
    commit(job.store, job.complete(), 1)
    daemon.ticks()
    assert daemon.evaluated("chain_length") == [(1, True), (2, True)]


def test_what_is_judged_bad_is_said_in_the_line_of_the_tick(job: Job, daemon: Daemon) -> None:
    for _ in range(3):
        job.complete(alignment_ms=2_000)
    assert "checkpoint 3: p99 of the last 3 alignment times is 2000 ms" in daemon.tick()
    assert daemon.evaluated("alignment_p99") == [(3, False)]


# --- output ---------------------------------------------------------------------------------------


def test_output_is_reported_when_it_is_visible(job: Job, daemon: Daemon) -> None:
    job.complete()
    daemon.ticks()
    assert daemon.observed("output") == []
    commit(job.store, 1, 1)
    daemon.ticks()
    (shown,) = daemon.observed("output")
    assert shown.metadata["committed_checkpoint"].value == 1


# --- retention ------------------------------------------------------------------------------------


def retain(job: Job, run_id: str | None = None) -> None:
    audit = AuditLog(job.store.objects, job.store.paths, job.clock.now_ms)
    policy = RetentionPolicy(keep_last=1)
    retention = Retention(job.store, policy, job.clock.now_ms, audit=audit, readers=1)
    retention.apply(retention.plan(), Actor("ada", reason="too many", run_id=run_id), {})


def test_the_partitions_of_deleted_checkpoints_go_and_their_history_stays(
    job: Job, daemon: Daemon
) -> None:
    for _ in range(4):
        commit(job.store, job.complete(), 1)
    daemon.ticks()
    retain(job)
    daemon.ticks()
    assert daemon.partitions() == [4]
    assert daemon.completed() == [1, 2, 3, 4]
    (shown,) = daemon.observed("retention")
    assert shown.metadata["checkpoints"].value == "1, 2, 3"
    assert shown.metadata["deleted_checkpoints"].value == 3
    assert shown.metadata["why"].value == "too many"
    assert shown.tags["laminar/retention-plan"] == "1"


def test_a_checkpoint_deleted_before_it_was_reported_gets_no_partition(job, daemon) -> None:
    for _ in range(3):
        commit(job.store, job.complete(), 1)
    retain(job)
    daemon.ticks()
    assert daemon.completed() == daemon.partitions() == [3]
    assert daemon.failed() == []


def test_what_a_run_of_this_dagster_deleted_that_run_shows(job: Job, daemon: Daemon) -> None:
    for _ in range(2):
        commit(job.store, job.complete(), 1)
    daemon.ticks()
    run = daemon.instance.create_run_for_job(
        stand_ins().resolve_job_def("laminar_mode"), status=dg.DagsterRunStatus.SUCCESS
    )
    retain(job, run.run_id)
    daemon.ticks()
    assert daemon.observed("retention") == []
    assert daemon.partitions() == [2]


def test_a_retention_that_failed_takes_no_partition_of_what_is_there(job, daemon) -> None:
    job.complete()
    daemon.ticks()
    number = write_down(job, "retention-apply", after={"checkpoints": [1], "bytes": 7})
    conclude(job, number, outcome="failed", reason="a driver was faster")
    daemon.ticks()
    assert daemon.partitions() == [1]
    (shown,) = daemon.observed("retention")
    assert shown.metadata["result"].value == "a driver was faster"


# --- drills ---------------------------------------------------------------------------------------


def test_drills_are_reported_once(job: Job, daemon: Daemon) -> None:
    job.drill()
    job.drill("failed")
    assert "drill of checkpoint 1 failed" in daemon.tick()
    daemon.cursor = None
    daemon.ticks()
    outcomes = [shown.metadata["outcome"].value for shown in daemon.observed("drill")]
    assert outcomes == ["passed", "failed"]


def test_drills_behind_a_gap_of_numbers_are_reported(job: Job, daemon: Daemon) -> None:
    """Numbers that are not there are not read: a stray file may have any."""
    job.drill()
    [first] = read_drills(job.store, [])
    write_drill(job.store, first.model_copy(update={"number": 8_000_000_000}))
    daemon.ticks()
    found = [(shown.tags or {})[DRILL_TAG] for shown in daemon.observed("drill")]
    assert found == ["1", "8000000000"]


def test_a_drill_of_a_run_is_left_to_that_run(job: Job, daemon: Daemon) -> None:
    running = daemon.instance.create_run_for_job(
        stand_ins().resolve_job_def("laminar_drill"),
        tags={ACT_TAG: "drill", ACTS_ON_TAG: STREAM},
        status=dg.DagsterRunStatus.STARTED,
    )
    number = job.drill()
    assert "is a drill, and reports it itself" in daemon.tick()
    shown = dg.AssetMaterialization(asset_key(STREAM, "drill"), tags={DRILL_TAG: str(number)})
    daemon.instance.report_runless_asset_event(shown)
    daemon.instance.report_run_failed(running)
    daemon.ticks()
    assert daemon.observed("drill") == []
