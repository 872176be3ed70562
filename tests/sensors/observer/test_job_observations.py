"""Acts on a job are reported with actor and cost, unless a run of this Dagster shows them."""

import dagster as dg
import pytest

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.resources.names import RETENTION_PLAN_TAG
from laminar_core.sensors.facts.audit_follower import AuditFollower
from laminar_core.sensors.observer.new_records import ACTS_MAX, ObserverCursor
from laminar_core.sensors.run_records import HANGS_MS
from laminar_core.store.owner import this_process
from laminar_core.store.savepoint_export import export_as
from tests.sensors.observed import NOTHING_NEW, Daemon, conclude, write_down
from tests.sensors.streams import STREAM, Job, stand_ins
from tests.store.stores import damage, gone


def restored(job: Job, base: int | None, **facts: object) -> None:
    """Write the records of a driver's start."""
    write_down(
        job,
        "start-fresh" if base is None else "restore",
        before={"rejected": facts.pop("rejected", [])},
        after={"generation": job.generation, "checkpoint_id": base, "parallelism": 4},
        **facts,
    )


# --- starts and ends ------------------------------------------------------------------------------


def test_a_start_says_from_what_and_why(job: Job, daemon: Daemon) -> None:
    job.complete()
    job.claim(base=1)
    rejected = [{"checkpoint_id": 2, "reason": "torn"}]
    restored(job, 1, actor="sensor payments_recovery", reason="silent for 31 s", rejected=rejected)
    said = daemon.tick()
    assert "generation 2 starts from checkpoint 1: silent for 31 s" in said
    (shown,) = daemon.observed("deployment")
    facts = {name: value.value for name, value in shown.metadata.items()}
    assert facts["generation"] == 2
    assert facts["checkpoint_id"] == 1
    assert facts["actor"] == "sensor payments_recovery"
    assert facts["rejected"] == rejected
    assert facts["parallelism"] == 4


def test_a_death_says_how_long_nothing_ran_and_what_is_done_again(job, daemon) -> None:
    job.claim_by_the_dead()
    job.complete()
    job.clock.wait_ms(6_000)
    job.beat()  # A second later.
    job.clock.wait_ms(30_000)
    job.claim(base=1)
    restored(job, 1)
    daemon.tick()
    (shown,) = daemon.observed("deployment")
    assert shown.metadata["down_s"].value == 30.0
    assert shown.metadata["redone_s"].value == 7.0
    assert shown.metadata["before_it"].value == "killed, or cut off"


@pytest.mark.parametrize(
    ("outcome", "is_lost"), [("stopped", False), ("finished", False), ("failed", True)]
)
def test_only_what_died_has_lost_time(job: Job, daemon: Daemon, outcome: str, *, is_lost) -> None:
    job.beat()
    job.store.generations.end(job.generation, outcome, "so it is")
    job.clock.wait_ms(5_000)
    job.claim()
    restored(job, None)
    daemon.tick()
    (shown,) = daemon.observed("deployment")
    assert ("down_s" in shown.metadata) == is_lost


def test_restarts_of_a_driver_are_reported_although_a_run_started_it(
    job: Job, daemon: Daemon
) -> None:
    run = daemon.instance.create_run_for_job(stand_ins().resolve_job_def("laminar_mode"))
    restored(job, None, run_id=run.run_id)
    daemon.tick()
    (shown,) = daemon.observed("deployment")
    assert shown.metadata["run"].value == run.run_id


def test_an_end_is_reported(job: Job, daemon: Daemon) -> None:
    write_down(job, "end", reason="no rows left", after={"generation": 1, "outcome": "finished"})
    assert daemon.tick() == "generation 1 finished: no rows left"


# --- commands, pins, savepoints -------------------------------------------------------------------


def test_a_command_is_reported_when_it_has_ended_with_its_request(job, daemon) -> None:
    number = write_down(
        job, "mode", reason="p99 is 4 s", after={"command": 1, "kind": "mode", "mode": "unaligned"}
    )
    assert daemon.tick() == NOTHING_NEW
    conclude(job, number, reason="")
    assert daemon.tick() == "mode done: p99 is 4 s"
    (shown,) = daemon.observed("deployment")
    assert shown.metadata["mode"].value == "unaligned"
    assert shown.metadata["actor"].value == "ada"


def run_of(daemon: Daemon, status: dg.DagsterRunStatus) -> str:
    job = stand_ins().resolve_job_def("laminar_mode")
    return daemon.instance.create_run_for_job(job, status=status).run_id


def test_a_command_of_a_run_of_this_dagster_is_shown_by_that_run(job: Job, daemon: Daemon) -> None:
    """... if it came to that: one that was terminated while it waited has not told it."""
    done = run_of(daemon, dg.DagsterRunStatus.SUCCESS)
    ended = run_of(daemon, dg.DagsterRunStatus.CANCELED)
    for run_id in (done, ended, "of another Dagster"):
        number = write_down(job, "mode", after={"mode": "unaligned"}, run_id=run_id)
        conclude(job, number)
    daemon.ticks()
    shown = [each.metadata["run"].value for each in daemon.observed("deployment")]
    assert shown == [ended, "of another Dagster"]


@pytest.mark.parametrize("end", ["success", "failure", "none for a quarter of an hour"])
def test_a_run_that_has_not_ended_is_waited_for(job: Job, daemon: Daemon, end: str) -> None:
    run_id = run_of(daemon, dg.DagsterRunStatus.STARTED)
    number = write_down(job, "mode", after={"mode": "unaligned"}, run_id=run_id)
    conclude(job, number)
    assert daemon.tick() == f"run {run_id} is about to report what it did"
    run = daemon.instance.get_run_by_id(run_id)
    if end == "failure":
        daemon.instance.report_run_failed(run)
    elif end == "success":
        daemon.end(run, dg.DagsterRunStatus.SUCCESS)
    else:
        job.clock.wait_ms(HANGS_MS + 1_000)
    daemon.ticks()
    assert len(daemon.observed("deployment")) == (0 if end == "success" else 1)


def test_a_pin_is_reported_for_its_checkpoint(job: Job, daemon: Daemon) -> None:
    job.complete()
    number = write_down(job, "pin", after={"checkpoint_id": 1, "name": "keep"})
    conclude(job, number)
    write_down(job, "unpin", before={"checkpoint_id": 1, "name": "keep"})
    daemon.ticks()
    pinned, unpinned = daemon.observed("checkpoint")
    assert pinned.partition == unpinned.partition == "0000000001"
    assert unpinned.metadata["name"].value == "keep"


def test_a_savepoint_that_somebody_exports_is_a_materialisation(job, daemon, tmp_path) -> None:
    checkpoint_id = CheckpointId(job.complete())
    ada = Actor("ada", reason="to keep it")
    uri = export_as(job.store, checkpoint_id, f"{tmp_path}/safe", ada, job.clock.now_ms)
    daemon.ticks()
    daemon.cursor = None
    daemon.ticks()
    shown = daemon.instance.fetch_materializations(dg.AssetKey([STREAM, "savepoint"]), limit=9)
    (made,) = [record.asset_materialization for record in shown.records]
    assert made.metadata["savepoint"].value == uri
    assert daemon.observed("savepoint") == []


def test_a_savepoint_out_of_reach_is_reported_without_looking_into_it(
    job: Job, daemon: Daemon
) -> None:
    number = write_down(job, "stop", after={"kind": "stop", "target": "gopher://hole"})
    conclude(job, number)
    daemon.ticks()
    daemon.cursor = None
    daemon.ticks()
    shown = daemon.instance.fetch_materializations(dg.AssetKey([STREAM, "savepoint"]), limit=9)
    (made,) = [record.asset_materialization for record in shown.records]
    assert "not_readable_from_here" in made.metadata
    assert len(daemon.observed("deployment")) == 1


def test_an_export_that_failed_is_reported_as_one(job: Job, daemon: Daemon) -> None:
    number = write_down(job, "export", after={"checkpoint_id": 1, "savepoint": "/full"})
    conclude(job, number, outcome="failed", reason="the disk is full")
    daemon.ticks()
    (shown,) = daemon.observed("savepoint")
    assert shown.metadata["result"].value == "the disk is full"


# --- reading the log ------------------------------------------------------------------------------


def test_a_long_log_is_read_in_parts(job: Job, daemon: Daemon) -> None:
    for number in range(ACTS_MAX + 2):
        write_down(job, "end", after={"generation": number, "outcome": "failed"})
    daemon.tick()
    assert ObserverCursor.model_validate_json(daemon.cursor).audit == ACTS_MAX
    assert len(daemon.observed("deployment")) <= ACTS_MAX
    daemon.ticks()
    assert len(daemon.observed("deployment")) == ACTS_MAX + 2


@pytest.mark.parametrize("how", ["missing", "torn"])
@pytest.mark.parametrize("head", ["whole", "missing", "torn"])
def test_what_cannot_be_read_does_not_hide_what_follows(job, daemon, how: str, head: str) -> None:
    first, lost, last = (
        write_down(job, "end", after={"generation": number, "outcome": "failed"})
        for number in (1, 2, 3)
    )
    assert first < lost < last
    paths = job.store.paths
    damage(job.store, paths.audit_record(lost), how)
    if head != "whole":
        damage(job.store, paths.audit_head, head)
    daemon.ticks()
    shown = [each.metadata["generation"].value for each in daemon.observed("deployment")]
    assert shown == [1, 3]


def test_a_log_without_news_costs_one_request(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = write_down(job, "end", after={"generation": 1, "outcome": "failed"})
    asked: list[str] = []
    get = type(job.store.objects).get

    def counting(self, key: str):
        asked.append(key)
        return get(self, key)

    monkeypatch.setattr(type(job.store.objects), "get", counting)
    assert list(AuditFollower(job.store).after(newest, 50)) == []
    assert asked == [job.store.paths.audit_head]


def test_the_owner_of_a_claim_does_not_matter(job: Job, daemon: Daemon) -> None:
    """A start by another machine is reported like any other."""
    job.claim(gone(this_process()))
    restored(job, None)
    daemon.tick()
    assert len(daemon.observed("deployment")) == 1


def test_a_plan_that_has_no_number_is_reported_without_one(job: Job, daemon: Daemon) -> None:
    """Goal: a record that somebody has changed keeps no later one from being reported."""
    number = write_down(job, "retention-apply", before={"plan": "the third"})
    conclude(job, number)
    daemon.tick()
    (shown,) = daemon.observed("retention")
    assert RETENTION_PLAN_TAG not in (shown.tags or {})
