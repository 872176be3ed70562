"""The facts for retention are read from a store, also from damaged and foreign objects."""

from dataclasses import replace

import pytest

from laminar_core.errors import CorruptCheckpointError, StorageUnavailable
from laminar_core.protocol.types import CheckpointId, CheckpointKind
from laminar_core.retention.facts import (
    Completed,
    Incomplete,
    RetentionPolicy,
    Trace,
    Unreadable,
)
from laminar_core.retention.reading import Depth, read_facts
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.retention.retention_jobs import JOB, StoredJob, run
from tests.store.stores import claimant, damage, never, open_job

ALONE = Depth(readers=1)


@pytest.fixture
def job() -> StoredJob:
    job = StoredJob()
    job.start()
    job.complete(kind=CheckpointKind.SAVEPOINT)
    job.complete()
    job.attempt(ended=True)
    job.complete()
    return job


def facts_of(job: StoredJob, depth: Depth = ALONE):
    return read_facts(job.store, 7, depth)


def checkpoint(facts, number: int):
    (found,) = [c for c in facts.checkpoints if c.checkpoint_id == number]
    return found


@pytest.mark.parametrize("readers", [1, 8])
def test_everything_is_read(job, readers) -> None:
    facts = facts_of(job, replace(ALONE, readers=readers))
    assert (facts.now_ms, facts.newest_generation, len(facts.bases)) == (7, 1, 1)
    assert [type(c) for c in facts.checkpoints] == [Completed, Completed, Completed, Incomplete]
    one = checkpoint(facts, 1)
    assert one.is_savepoint
    assert one.damage is None
    assert not checkpoint(facts, 2).is_savepoint
    assert facts.committed == {1, 2, 4}
    assert {f.path: f.size_bytes for f in facts.files if f.path in one.files} == one.files
    assert checkpoint(facts, 3).generation == 1
    kinds = [(f.kind, f.checkpoint_id, f.generation) for f in facts.files]
    assert kinds.count(("shared", None, 1)) == 4
    assert facts.traces == ()


def test_nobody_owns_an_empty_job() -> None:
    facts = read_facts(open_job(), 7, ALONE)
    assert (facts.newest_generation, facts.checkpoints, facts.files) == (None, (), ())


@pytest.mark.parametrize("how", ["missing", "torn", "longer"])
def test_damage_is_seen_by_the_length(job, how) -> None:
    damage(job.store, job.store.paths.state(CheckpointId(2), "window", 0), how)
    found = checkpoint(facts_of(job), 2).damage
    assert found is not None
    assert "operators/window/state_0.seg" in found


def test_damage_of_a_shared_file_is_that_of_all_who_name_it(job) -> None:
    damage(job.store, "payments/shared/window/0000000001-0-00000000.seg", "missing")
    facts = facts_of(job)
    assert [checkpoint(facts, n).damage is None for n in (1, 2, 4)] == [False, False, False]


def test_rot_is_seen_by_reading_every_byte(job) -> None:
    damage(job.store, job.store.paths.state(CheckpointId(2), "window", 0), "rotten")
    assert checkpoint(facts_of(job), 2).damage is None
    assert "sha256" in checkpoint(facts_of(job, replace(ALONE, verify="bytes")), 2).damage
    known = replace(ALONE, damage={CheckpointId(2): "rotten"})
    assert checkpoint(facts_of(job, known), 2).damage == "rotten"


def test_a_manifest_that_cannot_be_read_is_reported(job) -> None:
    damage(job.store, job.store.paths.manifest(CheckpointId(2)), "torn")
    found = checkpoint(facts_of(job), 2)
    assert isinstance(found, Unreadable)
    assert found.manifest_path == "checkpoints/0000000002/manifest.json"


def test_a_reservation_that_cannot_be_read_names_nobody(job) -> None:
    damage(job.store, job.store.paths.trigger(CheckpointId(3)), "torn")
    assert checkpoint(facts_of(job), 3).generation is None


def test_without_a_base_nothing_is_known(job) -> None:
    for key in job.store.objects.list(job.store.paths.generations):
        if "base" in key:  # And its copy.
            damage(job.store, key, "torn")
    with pytest.raises(CorruptCheckpointError):
        facts_of(job)


def test_a_checkpoint_that_completes_meanwhile_is_whole(job) -> None:
    """Its files are not in the listing, which is older than its manifest."""

    class Late(FaultyStore):
        def list(self, folder):
            found = super().list(folder)
            if folder == job.store.paths.shared:
                job.complete()
            return found

    facts = read_facts(type(job.store)(Late(job.store.objects), JOB), 7, ALONE)
    assert all(c.damage is None for c in facts.checkpoints if isinstance(c, Completed))


def test_what_is_remembered_is_read_only_if_it_matters(job) -> None:
    run(job, RetentionPolicy(keep_last=1, keep_savepoints=False))
    remembers = facts_of(job, replace(ALONE, remembers=True))
    assert remembers.traces == tuple(Trace(CheckpointId(n)) for n in (1, 2, 3))
    assert remembers.marked == {1, 2}
    dated = facts_of(job, replace(ALONE, remembers=True, dates=True))
    assert [t.ended_at_ms is None for t in dated.traces] == [False] * 3


def test_a_quarantine_record_that_cannot_be_read_says_just_now(job) -> None:
    job.start(4)
    job.complete()
    policy = RetentionPolicy(quarantine_min_ms=0)
    run(job, policy)
    (first, *_) = job.store.objects.list("payments/retention/quarantine/")
    damage(job.store, first, "torn")
    assert max(facts_of(job).quarantined.values()) > 2**60
    assert run(job, policy).deleted_files == 1


def test_a_store_that_does_not_answer_is_no_damage(job) -> None:
    silent = open_job(FaultyStore(job.store.objects, Fault("sizes", Effect.FAIL, "/shared/")))
    with pytest.raises(StorageUnavailable):
        read_facts(silent, 7, ALONE)


def test_what_claims_announce_is_read_if_the_policy_wants_to_know(job) -> None:
    asking = replace(ALONE, announced=True)
    assert facts_of(job, asking).announced == frozenset()
    announcing = replace(claimant(), default_retention={"keep_last": 10})
    generation = job.store.claims.claim(announcing, wait_ms=never, take_over=True)
    job.store.generations.record_base(generation, CheckpointId(4))
    job.generation, job.chain = generation, []
    job.complete()
    assert facts_of(job, asking).announced == {generation}
    assert facts_of(job).announced == frozenset()
    damage(job.store, job.store.paths.claim(generation), "torn")
    assert facts_of(job, asking).announced == frozenset()


def test_a_file_that_no_listing_showed_is_looked_up_before_it_counts_as_missing(job) -> None:
    """The listing of the shared files may be older than the checkpoint that names one."""
    blind = LaterListing(job.store.objects, job.store.paths.shared)
    found = [
        c for c in read_facts(open_job(blind), 7, ALONE).checkpoints if isinstance(c, Completed)
    ]
    assert [c.damage for c in found] == [None] * 3


class LaterListing(FaultyStore):
    """A store in which a folder was empty when it was listed."""

    def __init__(self, inner, folder: str) -> None:
        super().__init__(inner)
        self._empty = folder

    def sizes(self, folder: str) -> dict[str, int]:
        return {} if folder == self._empty else super().sizes(folder)
