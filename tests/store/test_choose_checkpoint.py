import pytest

from laminar_core.errors import CorruptCheckpointError, StorageUnavailable
from laminar_core.protocol.recovery import Refuse, RestoreFrom, StartFresh
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.store.stores import DAMAGE, claim, commit, complete, damage, ids, open_job, write


@pytest.fixture
def store():
    return open_job()


@pytest.fixture
def job(store):
    """Three completed checkpoints of generation 1, the first committed."""
    generation = claim(store)
    for checkpoint_id in (1, 2, 3):
        complete(store, checkpoint_id, generation)
    commit(store, 1, generation)
    return store


def test_a_new_job_starts_fresh(store):
    claim(store)
    choice = store.choose_checkpoint()
    assert (choice.decision, choice.manifest, choice.redrive) == (StartFresh(), None, ())


def test_the_newest_is_restored_and_what_is_not_committed_is_redriven(job):
    choice = job.choose_checkpoint()
    assert choice.decision == RestoreFrom(CheckpointId(3))
    assert choice.manifest == job.manifests.read(CheckpointId(3))
    assert [m.checkpoint_id for m in choice.redrive] == [2, 3]


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("what", ["state", "manifest"])
def test_a_damaged_one_is_passed_over_and_reported(job, what, how):
    key = (
        job.paths.manifest(CheckpointId(3))
        if what == "manifest"
        else job.paths.state(CheckpointId(3), "window", 1)
    )
    damage(job, key, how)
    choice = job.choose_checkpoint()
    assert isinstance(choice.decision, RestoreFrom)
    if (what, how) == ("manifest", "missing"):  # Then it never completed.
        assert (choice.decision.checkpoint_id, choice.decision.rejected) == (2, ())
    else:
        assert choice.decision.checkpoint_id == 2
        (rejected,) = choice.decision.rejected
        assert rejected.checkpoint_id == 3
        assert key in rejected.reason


def test_a_rotten_bit_anywhere_in_the_manifest_never_restores_other_state(job):
    key = job.paths.manifest(CheckpointId(3))
    whole = job.objects.get(key)
    good = job.manifests.read(CheckpointId(3))
    for position in range(0, len(whole), 11):
        data = bytearray(whole)
        data[position] ^= 1
        job.objects.put(key, bytes(data))
        choice = job.choose_checkpoint()
        assert isinstance(choice.decision, RestoreFrom)
        if choice.decision.checkpoint_id == 3:
            assert choice.manifest.files() == good.files()


def test_if_none_is_whole_it_refuses_and_never_starts_empty_in_silence(job):
    for checkpoint_id in ids(1, 2, 3):
        damage(job, job.paths.state(checkpoint_id, "window", 0), "rotten")
    refused = job.choose_checkpoint()
    assert isinstance(refused.decision, Refuse)
    assert "none of 3 checkpoints can be restored (newest: 3" in refused.decision.reason
    assert refused.manifest is None
    fresh = job.choose_checkpoint(RestoreRequest(allow_fresh=True))
    assert isinstance(fresh.decision, StartFresh)
    assert fresh.decision.committed_beyond == (1,)


def test_if_everything_is_gone_but_the_commits_it_refuses(job):
    for key in job.objects.list(job.paths.checkpoints):
        job.objects.delete(key)
    assert isinstance(job.choose_checkpoint().decision, Refuse)


def test_an_unreadable_commit_record_is_evidence_of_a_commit(job):
    for key in job.objects.list(job.paths.checkpoints):
        job.objects.delete(key)
    damage(job, job.paths.commit(CheckpointId(1)), "torn")
    assert isinstance(job.choose_checkpoint().decision, Refuse)


def test_the_orphan_of_a_zombie_is_neither_restored_nor_committed(job):
    orphan = write(job, 4, 1)
    claim(job, base=3)
    job.objects.put(job.paths.manifest(CheckpointId(4)), orphan.to_bytes())
    complete(job, 5, 2)
    damage(job, job.paths.manifest(CheckpointId(5)), "torn")
    choice = job.choose_checkpoint()
    assert isinstance(choice.decision, RestoreFrom)
    assert choice.decision.checkpoint_id == 3
    assert [(r.checkpoint_id, r.orphan) for r in choice.decision.rejected] == [
        (5, False),
        (4, True),
    ]
    assert [m.checkpoint_id for m in choice.redrive] == [2, 3]


def test_an_unreadable_orphan_is_recognised_by_its_reservation(job):
    write(job, 4, 1)
    claim(job, base=3)
    job.objects.put(job.paths.manifest(CheckpointId(4)), b"torn")
    choice = job.choose_checkpoint()
    assert [r.orphan for r in choice.decision.rejected] == [True]


def test_a_wanted_one_is_restored(job):
    commit(job, 2, 1)
    choice = job.choose_checkpoint(RestoreRequest(CheckpointId(1)))
    assert choice.decision == RestoreFrom(CheckpointId(1), (), (CheckpointId(2),))


def test_a_wanted_one_that_is_not_there_is_refused(job):
    choice = job.choose_checkpoint(RestoreRequest(CheckpointId(9), allow_fresh=True))
    assert isinstance(choice.decision, Refuse)


@pytest.mark.parametrize("how", ["torn", "rotten", "of another"])
def test_a_damaged_commit_record_is_no_reason_to_leave_output_out(job, how):
    """A record that was copied to the name of a checkpoint that nobody committed, for one."""
    if how == "of another":
        record = job.objects.get(job.paths.commit(CheckpointId(1)))
        job.objects.put(job.paths.commit(CheckpointId(3)), record)
        redriven = [2, 3]
    else:
        damage(job, job.paths.commit(CheckpointId(1)), how)
        redriven = [1, 2, 3]
    assert [m.checkpoint_id for m in job.choose_checkpoint().redrive] == redriven


def test_one_with_a_deletion_marker_is_passed_over(job):
    job.objects.put(job.paths.deletion(CheckpointId(3)), b"{}")
    choice = job.choose_checkpoint()
    assert choice.manifest.checkpoint_id == 2
    assert [r.cause for r in choice.decision.rejected] == ["being-deleted"]
    assert job.manifests.is_being_deleted(CheckpointId(3))


def test_the_newest_before_a_time(job):
    completed = [job.manifests.read(n).completed_at_ms for n in ids(1, 2, 3)]
    assert len(set(completed)) == 1  # The clock of these stands still.
    refused = job.choose_checkpoint(RestoreRequest(before_ms=completed[0]))
    assert refused.decision.cause == "never-completed"
    assert (
        job.choose_checkpoint(RestoreRequest(before_ms=completed[0] + 1)).manifest.checkpoint_id
        == 3
    )


def test_files_of_older_checkpoints_are_not_read_without_need(job):
    watched = FaultyStore(job.objects)
    open_job(watched).choose_checkpoint()
    read = [key for verb, key in watched.calls if verb == "get" and key.endswith(".seg")]
    assert len(read) == 2
    assert all("0000000003" in key for key in read)


def test_who_does_not_restore_may_examine_files_in_another_way(job):
    watched = FaultyStore(job.objects)
    asked = []

    def examine(manifest):
        asked.append(manifest.checkpoint_id)
        return "known to be damaged" if manifest.checkpoint_id == 3 else None

    choice = open_job(watched).choose_checkpoint(examine=examine)
    assert (choice.manifest.checkpoint_id, asked) == (2, [3, 2])
    assert [r.reason for r in choice.decision.rejected] == ["known to be damaged"]
    assert not [key for _, key in watched.calls if key.endswith(".seg")]


def test_a_store_that_does_not_answer_is_no_reason_to_fall_back(job):
    silent = open_job(FaultyStore(job.objects, Fault("get", Effect.FAIL, ".seg")))
    with pytest.raises(StorageUnavailable):
        silent.choose_checkpoint()


def test_an_unreadable_base_stops_the_choice(job):
    job.objects.put(job.paths.base(Generation(1)), b"torn")
    assert job.choose_checkpoint().manifest.checkpoint_id == 3  # There is a copy.
    job.objects.delete(job.paths.base_copy(Generation(1)))
    with pytest.raises(CorruptCheckpointError):
        job.choose_checkpoint()
