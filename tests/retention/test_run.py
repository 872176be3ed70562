"""Planning and applying: what is written down, what is refused, what is finished later."""

import pytest

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    StorageUnavailable,
)
from laminar_core.objectstore.s3 import S3ObjectStore
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.damage import DamagedFile
from laminar_core.records.retention_paths import RetentionPaths
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.retention.run import Retention
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.file_scrub import DamageLog
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.retention.retention_jobs import JOB, LAST, ME, StoredJob, run
from tests.store.stores import claim, claimant, damage

PATHS = RetentionPaths(StoredJob().store.paths)


class TestApplying:
    def test_bytes_go_and_what_the_newest_names_stays(self, job):
        result = run(job, LAST)
        assert (result.deleted_checkpoints, result.deleted_files) == (2, 3)
        assert job.names("shared") == [
            "window/0000000001-0-00000001.seg",
            "window/0000000001-0-00000002.seg",
        ]
        assert job.store.manifests.ids() == [3]
        assert job.store.verify(CheckpointId(3)).problem is None
        assert job.names("checkpoints")[:4] == [
            "0000000001/deletion.json",
            "0000000001/trigger.json",
            "0000000002/deletion.json",
            "0000000002/trigger.json",
        ]
        assert job.names("history") == [f"{n:010}.json" for n in (1, 2, 3)]

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
        assert {verb for verb, _ in watched.calls} <= {"get", "size", "list", "sizes", "children"}

    def test_many_requests_at_a_time_do_the_same(self, job):
        retention = Retention(job.store, LAST, lambda: job.clock_ms, readers=4)
        told = []
        result = retention.apply(retention.plan(), ME, {}, lambda *step: told.append(step))
        assert result.deleted_files == 3
        assert job.store.manifests.ids() == [3]
        assert told[-1] == (5, 5)

    def test_in_a_bucket(self, s3_server):
        job = StoredJob(S3ObjectStore(s3_server.uri()))
        job.start()
        for _ in range(3):
            job.complete(forget=1)
        retention = Retention(job.store, LAST, lambda: job.clock_ms, readers=4)
        assert retention.apply(retention.plan(), ME, {}).deleted_checkpoints == 2
        assert job.store.manifests.ids() == [3]
        assert job.store.verify(CheckpointId(3)).problem is None
        assert retention.plan().plan.is_empty

    def test_every_byte_is_read_on_request(self, job):
        key = job.store.paths.state(CheckpointId(3), "window", 0)
        data = job.store.objects.get(key)
        job.store.objects.put(key, b"x" * len(data))
        by_size = Retention(job.store, LAST, lambda: job.clock_ms, readers=1)
        assert by_size.plan().plan.deleted_ids == (1, 2)
        by_bytes = Retention(job.store, LAST, lambda: job.clock_ms, verify="bytes", readers=1)
        planned = by_bytes.plan()
        assert planned.plan.deleted_ids == (1,)
        assert by_bytes.apply(planned, ME, {}).deleted_checkpoints == 1

    def test_every_act_is_in_the_audit_log(self, job):
        audit = AuditLog(job.store.objects, job.store.paths, lambda: job.clock_ms)
        retention = Retention(job.store, LAST, lambda: job.clock_ms, audit=audit, readers=1)
        retention.apply(retention.plan(), ME, {})
        (record,) = audit.records()
        assert (record.action, record.outcome, record.actor) == ("retention-apply", "done", "me")
        plan = job.store.objects.get(f"{job.store.paths.job}/{record.after['list']}")
        assert record.after == {
            "checkpoints": [1, 2],
            "files": 3,
            "bytes": 168,
            "list": "retention/0000000001.plan.json",
            "list_sha256": sha256_hex(plan),
        }

    def test_the_record_is_durable_before_the_first_deletion(self, job):
        audit = AuditLog(job.store.objects, job.store.paths, lambda: job.clock_ms)
        deletes = FaultyStore(job.store.objects, Fault("delete", Effect.FAIL, last=99))
        store = CheckpointStore(deletes, job.store.job)
        retention = Retention(store, LAST, lambda: job.clock_ms, audit=audit, readers=1)
        with pytest.raises(StorageUnavailable):
            retention.apply(retention.plan(), ME, {})
        assert [record.after["checkpoints"] for record in audit.records()] == [[1, 2]]
        for number in (1, 2):
            key = job.store.paths.state(CheckpointId(number), "window", 0)
            assert job.store.objects.size(key) is not None
        again = Retention(job.store, LAST, lambda: job.clock_ms, audit=audit, readers=1)
        again.finish_earlier()
        assert [record.reason for record in audit.records()][1:] == [
            "an earlier run was interrupted"
        ]

    def test_what_cannot_be_audited_is_not_deleted(self, job):
        before = set(job.store.manifests.ids())
        fault = Fault("put_if_absent", Effect.FAIL, key="/audit/", last=99)
        store = CheckpointStore(FaultyStore(job.store.objects, fault), JOB)
        audit = AuditLog(store.objects, store.paths, lambda: job.clock_ms)
        retention = Retention(store, LAST, lambda: job.clock_ms, audit=audit, readers=1)
        with pytest.raises(StorageUnavailable):
            retention.apply(retention.plan(), ME, {})
        kept = {c for c in before if job.store.objects.size(job.store.paths.manifest(c))}
        assert kept == before

    def test_two_applies_leave_two_records_and_none_that_is_open(self, job):
        audit = AuditLog(job.store.objects, job.store.paths, lambda: job.clock_ms)
        retention = Retention(job.store, LAST, lambda: job.clock_ms, audit=audit, readers=1)
        retention.apply(retention.plan(), ME, {})
        job.complete()
        retention.apply(retention.plan(), ME, {})
        assert [record.outcome for record in audit.records()] == ["done", "done"]


class TestStalePlans:
    """A change between planning and applying is reported, and nothing is deleted."""

    def refused(self, job: StoredJob, change) -> str:
        retention = job.retention(LAST)
        planned = retention.plan()
        change()
        stored = {k for k in job.store.objects._objects if "/retention/" not in k}
        with pytest.raises(ConfigurationError) as refused:
            retention.apply(planned, ME, {})
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
            job.store.claims.succeed(job.generation, claimant())

        assert "generation 2 is claimed, and its base is not recorded yet" in self.refused(
            job, claimed
        )

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
            retention.apply(planned, ME, {})
        assert job.store.manifests.ids() == [1, 2, 3]

    def test_a_plan_that_was_forgotten_while_it_slept_is_not_carried_out(self, job):
        retention = job.retention(LAST)
        planned = retention.plan()
        decide = retention.log.decide

        def asleep(number, *rest):
            job.store.objects.delete(PATHS.plan(number))
            return decide(number, *rest)

        retention.log.decide = asleep
        with pytest.raises(ConfigurationError, match="is no longer valid"):
            retention.apply(planned, ME, {})
        assert job.store.manifests.ids() == [1, 2, 3]
        assert job.store.choose_checkpoint().manifest.checkpoint_id == 3

    def test_new_checkpoints_are_no_reason(self, job):
        retention = job.retention(LAST)
        planned = retention.plan()
        job.complete()
        assert retention.apply(planned, ME, {}).deleted_checkpoints == 2
        assert job.store.manifests.ids() == [3, 4]


class TestFinishingLater:
    def interrupted(self, job: StoredJob, *faults: Fault) -> None:
        with pytest.raises(StorageUnavailable):
            run(job, LAST, FaultyStore(job.store.objects, *faults))

    def test_what_was_decided_is_finished_first(self, job):
        self.interrupted(job, Fault("delete", Effect.FAIL, "0000000001/operators"))
        assert (
            job.store.choose_checkpoint(RestoreRequest(CheckpointId(1))).decision.cause
            == "being-deleted"
        )
        job.pin(3)
        (result,) = job.retention(RetentionPolicy(keep_last=9)).finish_earlier()
        assert (result.number, result.deleted_checkpoints) == (1, 2)
        assert job.store.manifests.ids() == [3]

    def test_what_was_not_decided_is_given_up(self, job):
        self.interrupted(job, Fault("put_if_absent", Effect.FAIL, "decision", last=2))
        assert job.retention(LAST).finish_earlier() == []
        assert job.store.manifests.ids() == [1, 2, 3]
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
        assert (
            job.store.choose_checkpoint(RestoreRequest(CheckpointId(1))).decision.cause
            == "being-deleted"
        )
        job.store.objects.delete(PATHS.plan(1))  # The way out that the message tells.
        assert run(job, LAST).deleted_checkpoints == 2


def test_a_checkpoint_that_the_running_job_found_damaged_is_not_the_newest_restorable(job):
    """Its files have their lengths, so only the mark shows that one of them has other bytes."""
    lost = DamagedFile(path=job.chain[-1].path, problem="digest")
    log = DamageLog(job.store.objects, job.store.paths)
    log.record(CheckpointId(3), job.generation, [lost], 1)
    planned = Retention(job.store, LAST, lambda: job.clock_ms).plan()
    verdicts = {v.checkpoint_id: v for v in planned.plan.checkpoints}
    assert verdicts[2].action == verdicts[3].action == "keep"
    assert "the newest that can be restored" in verdicts[2].reasons
    assert "newer than the newest that can be restored" in verdicts[3].reasons
