import pytest

from laminar_core.errors import CorruptCheckpointError, StorageUnavailable
from laminar_core.objectstore.counting_store import CountedObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.damage import FILES_NAMED_MAX, DamagedFile
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.file_scrub import (
    DamageLog,
    damage_by_listing,
    damage_by_reading,
    naming_any,
)
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.retention.retention_jobs import StoredJob
from tests.store.stores import claim, complete, damage, open_job


@pytest.fixture
def job() -> StoredJob:
    job = StoredJob(CountedObjectStore(MemoryObjectStore()))
    job.start()
    for _ in range(4):
        job.complete()
    return job


def read(job: StoredJob, number: int) -> CheckpointManifest:
    return job.store.manifests.read(CheckpointId(number))


def listed(job: StoredJob, number: int) -> list[tuple[str, str]]:
    found = damage_by_listing(job.store.objects, job.store.paths, read(job, number))
    return [(file.path, file.problem) for file in found]


@pytest.mark.parametrize(
    ("how", "problem"), [("missing", "missing"), ("torn", "length"), ("longer", "length")]
)
def test_a_listing_shows_what_is_gone_or_has_another_length(job, how, problem):
    assert listed(job, 4) == []
    for file in read(job, 4).files():
        key = job.store.paths.absolute(file.path)
        before = job.store.objects.get(key)
        damage(job.store, key, how)
        assert listed(job, 4) == [(file.path, problem)]
        job.store.objects.put(key, before)


def test_it_costs_two_listings_and_one_where_nothing_is_shared(job):
    manifest, before = read(job, 4), job.store.objects.counts
    damage_by_listing(job.store.objects, job.store.paths, manifest)
    cost = job.store.objects.counts - before
    assert (cost.lists, cost.heads, cost.gets) == (2, 0, 0)
    store = open_job(CountedObjectStore(MemoryObjectStore()))
    own = complete(store, 1, claim(store))
    before = store.objects.counts
    damage_by_listing(store.objects, store.paths, own)
    assert (store.objects.counts - before).lists == 1


def test_files_in_the_folder_of_the_checkpoint_that_was_restored_are_looked_for_there():
    """A stop writes all state as its own; the next checkpoint adds to it and names it."""
    store = open_job()
    stopped = complete(store, 1, claim(store))
    named = stopped.model_copy(update={"checkpoint_id": 2})
    assert damage_by_listing(store.objects, store.paths, named) == ()
    file = next(iter(stopped.files()))
    store.objects.delete(store.paths.absolute(file.path))
    (lost,) = damage_by_listing(store.objects, store.paths, named)
    assert (lost.path, lost.problem) == (file.path, "missing")


@pytest.mark.parametrize(
    ("how", "problem"),
    [("missing", "missing"), ("torn", "length"), ("longer", "length"), ("rotten", "digest")],
)
def test_reading_shows_other_bytes_as_well(job, how, problem):
    file = next(iter(read(job, 4).files()))
    objects, paths = job.store.objects, job.store.paths
    assert damage_by_reading(objects, paths, file) is None
    damage(job.store, paths.absolute(file.path), how)
    assert damage_by_reading(objects, paths, file) == problem


def test_a_store_that_does_not_answer_is_no_damage(job):
    manifest = read(job, 4)
    faults = Fault("get", Effect.FAIL), Fault("sizes", Effect.FAIL)
    faulty, paths = FaultyStore(job.store.objects, *faults), job.store.paths
    with pytest.raises(StorageUnavailable):
        damage_by_listing(faulty, paths, manifest)
    file = next(iter(manifest.files()))
    with pytest.raises(StorageUnavailable):
        damage_by_reading(faulty, paths, file)


def test_what_lacks_a_file_is_not_published(job):
    prepared = job.prepare()
    lost = prepared.subtasks[0].segments[1]
    job.store.objects.delete(job.store.paths.absolute(lost.path))
    found = job.store.manifests.publish_if_whole(prepared)
    assert found == (DamagedFile(path=lost.path, problem="missing"),)
    assert not job.store.manifests.is_complete(CheckpointId(prepared.checkpoint_id))


def test_what_is_whole_is_published(job):
    prepared = job.prepare()
    assert job.store.manifests.publish_if_whole(prepared) == ()
    assert job.store.manifests.is_complete(CheckpointId(prepared.checkpoint_id))


# --- which checkpoints name a file --------------------------------------------------------------


def naming(job: StoredJob, path: str) -> list[int]:
    lineage = (read(job, number) for number in range(job.number, 0, -1))
    found = naming_any(job.store.paths, lineage, [DamagedFile(path=path, problem="missing")])
    return sorted(manifest.checkpoint_id for manifest, _ in found)


def test_all_that_follow_each_other_and_name_a_file_are_found(job):
    first, *_, last = read(job, 4).subtasks[0].segments[1:]
    assert naming(job, first.path) == [1, 2, 3, 4]
    assert naming(job, last.path) == [4]
    job.complete(forget=1)
    assert naming(job, first.path) == []


def test_a_checkpoint_of_files_of_its_own_does_not_end_the_search(job):
    whole = job.chain
    job.chain = []
    savepoint = job.prepare(kind=CheckpointKind.SAVEPOINT)
    own = savepoint.subtasks[0].model_copy(update={"segments": savepoint.subtasks[0].segments[:1]})
    job.store.manifests.publish(
        savepoint.model_copy(update={"subtasks": (own, *savepoint.subtasks[1:])})
    )
    job.chain = whole
    job.complete()
    assert naming(job, whole[0].path) == [1, 2, 3, 4, 6]


# --- the record ---------------------------------------------------------------------------------

LOST = DamagedFile(path="shared/window/0000000001-0-00000000.seg", problem="digest")


def test_what_was_found_first_stands(job):
    log = DamageLog(job.store.objects, job.store.paths)
    log.record(CheckpointId(2), Generation(1), [LOST], 7)
    log.record(CheckpointId(2), Generation(1), [LOST, LOST], 8)
    found = log.read(CheckpointId(2))
    assert (found.found_at_ms, found.file_count, found.files) == (7, 1, (LOST,))
    assert log.ids() == {2}
    assert log.in_words() == {2: f"the job found {LOST.path} damaged while it ran (digest)"}
    assert log.read(CheckpointId(3)) is None


def test_a_record_names_so_many_files_and_counts_all(job):
    log = DamageLog(job.store.objects, job.store.paths)
    log.record(CheckpointId(2), Generation(1), [LOST] * (FILES_NAMED_MAX + 5), 7)
    found = log.read(CheckpointId(2))
    assert (found.file_count, len(found.files)) == (FILES_NAMED_MAX + 5, FILES_NAMED_MAX)


def test_a_mark_that_cannot_be_read_marks_all_the_same(job):
    log = DamageLog(job.store.objects, job.store.paths)
    job.store.objects.put(job.store.paths.damage(CheckpointId(2)), b"rot")
    with pytest.raises(CorruptCheckpointError):
        log.read(CheckpointId(2))
    assert log.in_words() == {2: "the job found it damaged while it ran"}


def test_the_list_and_the_status_say_it(job):
    DamageLog(job.store.objects, job.store.paths).record(CheckpointId(4), Generation(1), [LOST], 7)
    marked = [s.checkpoint_id for s in job.store.list_summaries() if s.damaged]
    assert marked == [4]
