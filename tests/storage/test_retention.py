"""Planning and applying: what is written down, what is refused, what is finished later."""

import json
from dataclasses import replace

import pytest

from laminar_core.checkpoint.recovery import Refuse
from laminar_core.checkpoint.recovery_facts import Wish
from laminar_core.checkpoint.retention_facts import DAY_MS, HOUR_MS, RetentionPolicy
from laminar_core.checkpoint.types import CheckpointId
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    StorageUnavailable,
)
from laminar_core.state.retention_paths import RetentionPaths
from laminar_core.state.retention_records import Tombstone
from laminar_core.storage.audit import AuditLog
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.retention import Retention
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.storage.retention_jobs import JOB, MANDATE, StoredJob, run
from tests.storage.stores import claim, claimant, damage

LAST = RetentionPolicy(keep_last=1)
PATHS = RetentionPaths(StoredJob().store.paths)


@pytest.fixture
def job() -> StoredJob:
    """Three checkpoints; the second no longer names the first increment, the third all others."""
    job = StoredJob()
    job.start()
    job.complete()
    job.complete(forget=1)
    job.complete()
    return job


def names(job: StoredJob, folder: str) -> list[str]:
    return [
        key.removeprefix(f"{JOB}/{folder}/") for key in job.store.objects.list(f"{JOB}/{folder}/")
    ]


class TestApplying:
    def test_bytes_go_and_what_the_newest_names_stays(self, job):
        result = run(job, LAST)
        assert (result.deleted_checkpoints, result.deleted_files) == (2, 3)
        assert names(job, "shared") == [
            "window/0000000001-0-00000001.seg",
            "window/0000000001-0-00000002.seg",
        ]
        assert job.store.completed_ids() == [3]
        assert job.store.verify(CheckpointId(3)).problem is None
        assert names(job, "checkpoints")[:4] == [
            "0000000001/deletion.json",
            "0000000001/trigger.json",
            "0000000002/deletion.json",
            "0000000002/trigger.json",
        ]
        assert names(job, "history") == [f"{n:010}.json" for n in (1, 2, 3)]

    def test_the_order_is_marker_bytes_manifest_and_oldest_first(self, job):
        """Bytes before what names them, history last: PROTOCOL section 12, FLINK-39439."""
        watched = FaultyStore(job.store.objects)
        run(job, LAST, watched)
        changed = [
            (verb, key) for verb, key in watched.calls if verb in {"put_if_absent", "delete"}
        ]
        steps = [key.removeprefix(f"{JOB}/").removeprefix("checkpoints/") for _, key in changed]
        assert steps == [
            "retention/0000000001.plan.json",
            "retention/0000000001.decision.json",
            "0000000001/deletion.json",
            "0000000002/deletion.json",
            "0000000001/operators/window/state_0.seg",
            "shared/window/0000000001-0-00000000.seg",
            "0000000001/manifest.json",
            "0000000002/operators/window/state_0.seg",
            "0000000002/manifest.json",
            "retention/0000000001.result.json",
        ]

    def test_nothing_to_do_writes_nothing(self, job):
        before = dict(job.store.objects._objects)
        assert run(job, RetentionPolicy(keep_last=3)) is None
        assert dict(job.store.objects._objects) == before

    def test_planning_writes_nothing(self, job):
        watched = FaultyStore(job.store.objects)
        job.retention(LAST, watched).plan()
        assert {verb for verb, _ in watched.calls} <= {"get", "size", "list", "children"}

    def test_many_requests_at_a_time_do_the_same(self, job):
        retention = Retention(job.store, LAST, lambda: job.clock_ms, readers=4)
        told = []
        result = retention.apply(retention.plan(), MANDATE, lambda *step: told.append(step))
        assert result.deleted_files == 3
        assert job.store.completed_ids() == [3]
        assert told[-1] == (5, 5)

    def test_every_byte_is_read_on_request(self, job):
        key = job.store.paths.state(CheckpointId(3), "window", 0)
        data = job.store.objects.get(key)
        job.store.objects.put(key, b"x" * len(data))
        by_size = Retention(job.store, LAST, lambda: job.clock_ms, readers=1)
        assert by_size.plan().plan.deleted_ids == (1, 2)
        by_bytes = Retention(job.store, LAST, lambda: job.clock_ms, verify="bytes", readers=1)
        planned = by_bytes.plan()
        assert planned.plan.deleted_ids == (1,)
        assert by_bytes.apply(planned, MANDATE).deleted_checkpoints == 1

    def test_every_act_is_in_the_audit_log(self, job):
        audit = AuditLog(job.store.objects, job.store.paths, lambda: job.clock_ms)
        retention = Retention(job.store, LAST, lambda: job.clock_ms, audit=audit, readers=1)
        retention.apply(retention.plan(), MANDATE)
        intended, done = audit.records()
        assert (intended.action, intended.outcome, intended.actor) == (
            "retention-apply",
            "intended",
            "me",
        )
        assert intended.after == {"checkpoints": [1, 2], "bytes": 168}
        assert (done.outcome, done.intent) == ("done", intended.number)
        assert done.after["deleted_files"] == 3


class TestStalePlans:
    """What changed between planning and applying is told, and nothing is deleted."""

    def refused(self, job: StoredJob, change) -> str:
        retention = job.retention(LAST)
        planned = retention.plan()
        change()
        stored = {k for k in job.store.objects._objects if "/retention/" not in k}
        with pytest.raises(ConfigurationError) as refused:
            retention.apply(planned, MANDATE)
        assert refused.value.code is ErrorCode.RETENTION_PLAN_STALE
        assert {k for k in job.store.objects._objects if "/retention/" not in k} == stored
        assert list(retention.log.unfinished()) == []
        return str(refused.value)

    def test_a_pin(self, job):
        assert "checkpoint 1 stays now: pinned as keep by me" in self.refused(
            job, lambda: job.pin(1)
        )

    def test_a_claim(self, job):
        def claimed():
            job.store.succeed_generation(job.generation, claimant())

        assert "generation 2 is claimed and has not written down" in self.refused(job, claimed)

    def test_a_generation_that_started_from_it(self, job):
        assert "generation 2 owns the job now" in self.refused(job, lambda: claim(job.store, 1))

    def test_damage_of_what_was_to_stay(self, job):
        key = job.store.paths.state(CheckpointId(3), "window", 0)
        said = self.refused(job, lambda: damage(job.store, key, "torn"))
        assert "checkpoint 2 stays now: the newest that can be restored" in said

    def test_somebody_else_was_faster(self, job):
        assert "checkpoint 1 is gone" in self.refused(job, lambda: run(job, LAST))

    def test_another_run_gave_it_up(self, job):
        retention = job.retention(LAST)
        planned = retention.plan()
        decide = retention.log.decide

        def late(number, *rest):
            decide(number, "abandon", "generation 7", "it was claimed")
            return decide(number, *rest)

        retention.log.decide = late
        with pytest.raises(ConfigurationError, match="generation 7 gave it up: it was claimed"):
            retention.apply(planned, MANDATE)
        assert job.store.completed_ids() == [1, 2, 3]

    def test_a_plan_that_was_forgotten_while_it_slept_is_not_carried_out(self, job):
        retention = job.retention(LAST)
        planned = retention.plan()
        decide = retention.log.decide

        def asleep(number, *rest):
            job.store.objects.delete(PATHS.plan(number))
            return decide(number, *rest)

        retention.log.decide = asleep
        with pytest.raises(ConfigurationError, match="does not hold any more"):
            retention.apply(planned, MANDATE)
        assert job.store.completed_ids() == [1, 2, 3]
        assert job.store.choose_checkpoint().manifest.checkpoint_id == 3

    def test_new_checkpoints_are_no_reason(self, job):
        retention = job.retention(LAST)
        planned = retention.plan()
        job.complete()
        assert retention.apply(planned, MANDATE).deleted_checkpoints == 2
        assert job.store.completed_ids() == [3, 4]


class TestFinishingLater:
    def interrupted(self, job: StoredJob, *faults: Fault) -> None:
        with pytest.raises(StorageUnavailable):
            run(job, LAST, FaultyStore(job.store.objects, *faults))

    def test_what_was_decided_is_finished_first(self, job):
        self.interrupted(job, Fault("delete", Effect.FAIL, "0000000001/operators"))
        assert job.store.choose_checkpoint(Wish(CheckpointId(1))).decision.cause == "being-deleted"
        job.pin(3)
        (result,) = job.retention(RetentionPolicy(keep_last=9)).finish_earlier()
        assert (result.number, result.deleted_checkpoints) == (1, 2)
        assert job.store.completed_ids() == [3]

    def test_what_was_not_decided_is_given_up(self, job):
        self.interrupted(job, Fault("put_if_absent", Effect.FAIL, "decision", last=2))
        assert job.retention(LAST).finish_earlier() == []
        assert job.store.completed_ids() == [1, 2, 3]
        assert run(job, LAST).number == 2

    def test_a_restore_between_plan_and_decision_gives_it_up(self, job):
        self.interrupted(job, Fault("put_if_absent", Effect.FAIL, "decision", last=2))
        job.start(1)
        assert job.retention(LAST).finish_earlier() == []
        assert job.store.verify(CheckpointId(1)).problem is None

    @pytest.mark.parametrize("step", ["plan", "decision"])
    def test_damaged_records_are_named_and_nothing_is_deleted(self, job, step):
        self.interrupted(job, Fault("delete", Effect.FAIL, "0000000001/operators"))
        damage(job.store, getattr(PATHS, step)(1), "torn")
        with pytest.raises(CorruptCheckpointError, match=f"0000000001.{step}.json"):
            job.retention(LAST).finish_earlier()
        assert job.store.choose_checkpoint(Wish(CheckpointId(1))).decision.cause == "being-deleted"
        job.store.objects.delete(PATHS.plan(1))  # The way out that the message tells.
        assert run(job, LAST).deleted_checkpoints == 2


class TestLeftOvers:
    @pytest.fixture
    def left(self, job) -> StoredJob:
        """A driver was killed in checkpoint 4; another one went on."""
        job.attempt(ended=False)
        job.start(3)
        job.complete()
        return job

    def test_seen_then_deleted_by_a_later_run(self, left):
        policy = RetentionPolicy(quarantine_min_ms=HOUR_MS)
        assert run(left, policy).quarantined_files == 2
        assert run(left, policy) is None
        left.clock_ms += HOUR_MS
        result = run(left, policy)
        assert (result.deleted_checkpoints, result.deleted_files) == (0, 2)
        assert names(left, "retention/quarantine") == []
        assert names(left, "checkpoints/0000000004") == ["manifest.json", "trigger.json"]
        assert run(left, policy) is None

    def test_a_publisher_that_slept_finds_its_place_taken(self):
        job = StoredJob()
        job.start()
        job.complete()
        late = job.prepare()
        job.start(1)
        job.complete()
        policy = RetentionPolicy(quarantine_min_ms=0)
        run(job, policy)
        run(job, policy)
        key = job.store.paths.manifest(CheckpointId(2))
        assert not job.store.objects.put_if_absent(key, late.to_bytes())
        with pytest.raises(FencedError):
            job.store.publish(late)
        assert job.store.find_manifest(CheckpointId(2)) is None
        assert job.store.completed_ids() == [1, 3]
        assert [s.outcome for s in job.store.list_summaries()] == [
            "completed",
            "pending",
            "completed",
        ]

    @pytest.mark.parametrize("own_files", [True, False])
    def test_a_publisher_that_was_faster_is_left_alone(self, own_files):
        job = StoredJob()
        job.start()
        job.complete()
        late = job.prepare()
        if not own_files:  # It consists of increments only.
            job.store.objects.delete(job.store.paths.state(CheckpointId(2), "window", 0))
        job.start(1)
        job.complete()
        policy = RetentionPolicy(quarantine_min_ms=0)
        run(job, policy)
        planned = job.retention(policy).plan()
        assert planned.plan.abandoned == (2,)
        key = job.store.paths.manifest(CheckpointId(2))

        class Late(FaultyStore):
            def put_if_absent(self, name, data):
                if name == key:
                    job.store.objects.put_if_absent(key, late.to_bytes())
                return super().put_if_absent(name, data)

        with pytest.raises(ConfigurationError, match="checkpoint 2 was completed after all"):
            job.retention(policy, Late(job.store.objects)).apply(planned, MANDATE)
        left = [part.problem for part in job.store.verify(CheckpointId(2)).parts if part.problem]
        assert len(left) == (0 if own_files else 1)

    def test_every_attempt_that_may_still_be_published_is_fenced_before_files_go(self, job):
        """Also one that left no file: it may name increments."""
        job.attempt(ended=False)
        job.store.objects.delete(job.store.paths.state(CheckpointId(4), "window", 0))
        job.start(3)
        job.complete()
        run(job, LAST)
        assert job.store.objects.get(job.store.paths.manifest(CheckpointId(4))) is not None
        assert job.store.find_manifest(CheckpointId(4)) is None

    def test_files_of_others_are_told_and_never_deleted(self, left):
        left.store.objects.put("payments/checkpoints/0000000001/notes.txt", b"mine")
        left.store.objects.put("payments/shared/window/more.seg", b"mine")
        plan = left.retention(replace(LAST, quarantine_min_ms=0)).plan().plan
        told = {v.path for v in plan.files if v.action == "report"}
        assert told == {"checkpoints/0000000001/notes.txt", "shared/window/more.seg"}
        for _ in range(3):
            run(left, replace(LAST, quarantine_min_ms=0))
        assert left.store.objects.get("payments/checkpoints/0000000001/notes.txt") == b"mine"
        assert left.store.objects.get("payments/shared/window/more.seg") == b"mine"


class TestForgetting:
    def test_history_goes_last_and_ids_stay_reserved(self, job):
        policy = replace(LAST, history_keep=0)
        assert run(job, policy).deleted_checkpoints == 2
        watched = FaultyStore(job.store.objects)
        run(job, policy, watched)
        deleted = [key.removeprefix(f"{JOB}/") for verb, key in watched.calls if verb == "delete"]
        assert deleted[:3] == [
            "commits/0000000001.json",
            "checkpoints/0000000001/deletion.json",
            "history/0000000001.json",
        ]
        assert names(job, "history") == ["0000000003.json"]
        assert names(job, "commits") == ["0000000003.json"]
        assert names(job, "checkpoints/0000000001") == ["trigger.json"]  # The id stays reserved.
        assert job.store.highest_checkpoint_id() == 3
        assert run(job, policy) is None

    def test_by_age(self, job):
        policy = replace(LAST, history_max_age_ms=DAY_MS)
        run(job, policy)
        assert run(job, policy) is None
        job.clock_ms += 2 * DAY_MS
        run(job, policy)
        assert names(job, "history") == ["0000000003.json"]

    def test_old_plans_are_forgotten(self, job, monkeypatch):
        monkeypatch.setattr("laminar_core.storage.retention_log.PLANS_REMEMBERED", 2)
        for _ in range(4):
            job.complete()
            run(job, LAST)
        plans = [name for name in names(job, "retention") if name.endswith("plan.json")]
        assert plans == ["0000000003.plan.json", "0000000004.plan.json"]
        assert run(job, LAST) is None


class TestRecoveryAfterwards:
    """Deleting old checkpoints does not turn "cannot read any" into "never had one"."""

    @pytest.mark.parametrize("history", [None, 0])
    def test_if_what_was_kept_is_lost_it_refuses(self, job, history):
        policy = replace(LAST, history_keep=history)
        run(job, policy)
        run(job, policy)
        for key in job.store.objects.list("payments/checkpoints/0000000003/"):
            job.store.objects.delete(key)
        claim_of(job)
        decision = job.store.choose_checkpoint().decision
        assert isinstance(decision, Refuse)
        assert "checkpoint 3 was committed and is gone" in decision.reason

    def test_what_was_deleted_is_told_as_that(self, job):
        run(job, LAST)
        with pytest.raises(ConfigurationError, match="checkpoint 1, retention deleted it"):
            job.store.read_manifest(CheckpointId(1))
        summaries = {s.checkpoint_id: s.deleted for s in job.store.list_summaries()}
        assert summaries == {1: True, 2: True, 3: False}


def test_a_tombstone_of_another_version_is_not_taken_for_a_manifest(job) -> None:
    stone = json.loads(Tombstone(checkpoint_id=9, plan=1).model_dump_json())
    key = job.store.paths.manifest(CheckpointId(3))
    job.store.objects.put(key, json.dumps(stone | {"format_version": 2}).encode())
    with pytest.raises(CorruptCheckpointError):
        job.store.find_manifest(CheckpointId(3))
    assert CheckpointStore(job.store.objects, JOB).choose_checkpoint().manifest.checkpoint_id == 2


def claim_of(job: StoredJob) -> None:
    job.store.succeed_generation(job.generation, claimant())
