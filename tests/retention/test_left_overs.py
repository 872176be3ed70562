"""Left-overs and what is remembered; and what a recovery says of what retention deleted."""

import json
from dataclasses import replace

import pytest

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    FencedError,
)
from laminar_core.protocol.recovery import Refuse
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.retention import Tombstone
from laminar_core.records.retention_paths import RetentionPaths
from laminar_core.retention.facts import DAY_MS, HOUR_MS, RetentionPolicy
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.faulty_store import FaultyStore
from tests.retention.retention_jobs import JOB, LAST, ME, StoredJob, run
from tests.store.stores import claimant

PATHS = RetentionPaths(StoredJob().store.paths)


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
        assert left.names("retention/quarantine") == []
        assert left.names("checkpoints/0000000004") == ["manifest.json", "trigger.json"]
        assert run(left, policy) is None

    def test_a_file_of_a_deleted_checkpoint_goes_with_the_last_one_that_names_it(self):
        """After a restore, checkpoints may name files in the folder of the restored one."""
        job = StoredJob()
        job.start()
        first = CheckpointId(job.complete())
        job.start(first)
        inherited = job.store.manifests.read(first).subtasks[0].segments[0]
        job.chain = [inherited]
        job.start(job.complete())
        job.complete()
        policy = replace(LAST, quarantine_min_ms=0)
        key = job.store.paths.absolute(inherited.path)
        for _ in range(3):
            run(job, policy)
            assert job.store.objects.size(key) == inherited.size_bytes
            assert job.store.manifests.ids() == [2, 3]
            assert job.store.verify(CheckpointId(3)).problem is None
        job.start(3)
        job.chain = []
        job.complete()
        job.start(4)
        job.complete()
        run(job, policy)
        assert job.store.manifests.ids() == [4, 5]
        assert job.store.objects.size(key) is None
        assert job.names("retention/quarantine") == []

    def test_a_place_that_is_taken_stays_taken_when_the_rest_is_forgotten(self, left):
        policy = replace(LAST, history_keep=0, quarantine_min_ms=0)
        for _ in range(3):
            run(left, policy)
        left.number = 4
        left.end("aborted")
        run(left, policy)
        assert left.names("history") == ["0000000003.json", "0000000005.json"]  # 3: its base.
        assert left.names("checkpoints/0000000004") == ["manifest.json", "trigger.json"]

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
            job.store.manifests.publish(late)
        assert job.store.manifests.find(CheckpointId(2)) is None
        assert job.store.manifests.ids() == [1, 3]
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
            job.retention(policy, Late(job.store.objects)).apply(planned, ME, {})
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
        assert job.store.manifests.find(CheckpointId(4)) is None

    def test_files_of_others_are_reported_and_never_deleted(self, left):
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
    def test_history_goes_last_and_nothing_else_is_left(self, job):
        policy = replace(LAST, history_keep=0)
        assert run(job, policy).deleted_checkpoints == 2
        watched = FaultyStore(job.store.objects)
        run(job, policy, watched)
        deleted = [key.removeprefix(f"{JOB}/") for verb, key in watched.calls if verb == "delete"]
        assert deleted[:5] == [
            "commits/0000000001.json",
            "damage/0000000001.json",
            "checkpoints/0000000001/deletion.json",
            "checkpoints/0000000001/trigger.json",
            "history/0000000001.json",
        ]
        assert job.names("history") == ["0000000003.json"]
        assert job.names("commits") == ["0000000003.json"]
        assert job.store.attempts.ids() == [3]
        assert job.store.attempts.highest_id() == 3
        assert run(job, policy) is None

    def test_by_age(self, job):
        policy = replace(LAST, history_max_age_ms=DAY_MS)
        run(job, policy)
        assert run(job, policy) is None
        job.clock_ms += 2 * DAY_MS
        run(job, policy)
        assert job.names("history") == ["0000000003.json"]

    def test_old_plans_are_forgotten(self, job, monkeypatch):
        monkeypatch.setattr("laminar_core.store.retention_log.PLANS_REMEMBERED", 2)
        for _ in range(4):
            job.complete()
            run(job, LAST)
        plans = [name for name in job.names("retention") if name.endswith("plan.json")]
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

    def test_what_was_deleted_is_reported_as_that(self, job):
        run(job, LAST)
        with pytest.raises(ConfigurationError, match="checkpoint 1, retention deleted it"):
            job.store.manifests.read(CheckpointId(1))
        summaries = {s.checkpoint_id: s.deleted for s in job.store.list_summaries()}
        assert summaries == {1: True, 2: True, 3: False}


def test_a_tombstone_of_another_version_is_not_taken_for_a_manifest(job) -> None:
    stone = json.loads(Tombstone(checkpoint_id=9, plan=1).model_dump_json())
    key = job.store.paths.manifest(CheckpointId(3))
    job.store.objects.put(key, json.dumps(stone | {"format_version": 2}).encode())
    with pytest.raises(CorruptCheckpointError):
        job.store.manifests.find(CheckpointId(3))
    assert CheckpointStore(job.store.objects, JOB).choose_checkpoint().manifest.checkpoint_id == 2


def claim_of(job: StoredJob) -> None:
    job.store.claims.succeed(job.generation, claimant())
