from dataclasses import replace

import pytest

from laminar_core.errors import CorruptCheckpointError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.counting_store import CountedObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.checkpoint_index import IndexBlock
from laminar_core.records.retention import parse_sealed
from laminar_core.retention.reading import Depth, read_facts
from laminar_core.store.checkpoint_index import WORTH_MIN, CheckpointIndex
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.retention.retention_jobs import LAST, StoredJob
from tests.store.stores import damage

PLAIN = Depth(readers=1)
INDEXED = replace(PLAIN, indexed=True)
COUNT = WORTH_MIN + 8


@pytest.fixture
def job() -> StoredJob:
    """A job with a fork, so that some of its checkpoints are orphans, and an index."""
    stored = StoredJob()
    stored.start()
    for _ in range(COUNT - 4):
        stored.complete(forget=int(len(stored.chain) > 2))
    stored.start(base=COUNT - 8)
    for _ in range(4):
        stored.complete()
    write(stored)
    return stored


def index_of(job: StoredJob) -> CheckpointIndex:
    return CheckpointIndex(job.store.objects, job.store.paths)


def write(job: StoredJob) -> int:
    sha256 = index_of(job).store_sha256()
    assert sha256 is not None
    return index_of(job).write(1, sha256)


def without_index(job: StoredJob) -> None:
    job.store.objects.delete(job.store.paths.index_block(1))


def indexed_ids(job: StoredJob) -> list[CheckpointId]:
    return list(index_of(job).read(job.store.objects.sizes(job.store.paths.checkpoints)))


def answers(job: StoredJob) -> tuple[object, object]:
    return job.store.list_summaries(), read_facts(job.store, 7, INDEXED)


def test_lists_and_plans_are_the_same_with_and_without_an_index(job) -> None:
    job.complete(committed=False)
    job.attempt(ended=False)
    damage(job.store, job.store.objects.list(job.store.paths.shared)[5], "missing")
    indexed = answers(job)
    assert len(indexed_ids(job)) == COUNT
    without_index(job)
    assert indexed == answers(job)
    assert indexed[1] == read_facts(job.store, 7, PLAIN)


def test_a_list_reads_one_block_instead_of_its_manifests(job) -> None:
    counted = CountedObjectStore(job.store.objects)
    CheckpointStore(counted, "payments").list_summaries()
    indexed = counted.counts.gets
    without_index(job)
    CheckpointStore(counted, "payments").list_summaries()
    assert counted.counts.gets - 2 * indexed == COUNT - 2  # The block, and the first claim.


def test_a_plan_that_is_carried_out_does_not_read_the_index(job) -> None:
    counted = CountedObjectStore(job.store.objects)
    retention = job.retention(LAST, counted)
    planned = retention.plan()
    before = counted.counts.gets
    assert retention.plan(indexed=True) == planned
    assert before > COUNT > counted.counts.gets - before


def test_a_checkpoint_that_was_deleted_since_is_not_listed(job) -> None:
    deleted = CheckpointId(3)
    job.store.objects.delete(job.store.paths.manifest(deleted))
    assert deleted not in indexed_ids(job)
    (_, _, third, *_) = job.store.list_summaries()
    assert third.generation == 1
    assert third.size_bytes == 0, "its history says so, which has no size in this test"


def test_a_manifest_of_another_length_is_read(job) -> None:
    damage(job.store, job.store.paths.manifest(CheckpointId(3)), "torn")
    assert CheckpointId(3) not in indexed_ids(job)
    (_, _, third, *_) = job.store.list_summaries()
    assert third.problem is not None


@pytest.mark.parametrize("how", ["torn", "longer", "rotten"])
def test_a_damaged_block_is_as_good_as_none(job, how) -> None:
    expected = answers(job)
    damage(job.store, job.store.paths.index_block(1), how)
    assert indexed_ids(job) == []
    assert answers(job) == expected


@pytest.mark.parametrize(
    "changes", [{"job": "other"}, {"store_sha256": "0" * 64}], ids=["job", "store"]
)
def test_a_block_of_another_job_or_store_is_as_good_as_none(job, changes) -> None:
    key = job.store.paths.index_block(1)
    block = parse_sealed(IndexBlock, bytes(job.store.objects.get(key) or b""))
    job.store.objects.put(key, block.model_copy(update=changes).to_bytes())
    assert indexed_ids(job) == []


def test_a_forged_block_changes_what_is_shown_and_not_what_is_deleted(job) -> None:
    expected = job.retention(LAST).plan()
    key = job.store.paths.index_block(1)
    block = parse_sealed(IndexBlock, bytes(job.store.objects.get(key) or b""))
    last = block.checkpoints[-1].model_copy(update={"files": ()})
    forged = block.model_copy(update={"checkpoints": (*block.checkpoints[:-1], last)})
    job.store.objects.put(key, forged.to_bytes())
    assert job.retention(LAST).plan(indexed=True) != expected
    assert job.retention(LAST).plan() == expected


def test_a_block_with_few_manifests_is_neither_read_nor_kept(job) -> None:
    for number in range(1, COUNT - WORTH_MIN + 2):
        job.store.objects.delete(job.store.paths.manifest(CheckpointId(number)))
    assert indexed_ids(job) == []
    assert write(job) == WORTH_MIN - 1
    assert index_of(job).stored() == frozenset()


def test_a_block_that_is_written_twice_is_the_same(job) -> None:
    before = job.store.objects.get(job.store.paths.index_block(1))
    assert write(job) == COUNT
    assert job.store.objects.get(job.store.paths.index_block(1)) == before


def test_a_manifest_that_cannot_be_read_is_left_out_and_reported(job) -> None:
    damage(job.store, job.store.paths.manifest(CheckpointId(3)), "rotten")
    assert write(job) == COUNT - 1
    (_, _, third, *_) = job.store.list_summaries()
    assert third.problem is not None


@pytest.mark.parametrize(
    "error",
    [
        StorageUnavailable(ErrorCode.STORE_READ_ONLY, "permission denied"),
        StorageUnavailable(ErrorCode.STORE_ACCESS_DENIED, "access denied"),
        CorruptCheckpointError(ErrorCode.NOT_A_FILE, "a link"),
    ],
    ids=["mode", "policy", "link"],
)
def test_an_index_that_may_not_be_read_is_as_good_as_none(job, monkeypatch, error) -> None:
    expected = answers(job)
    children = job.store.objects.children

    def refuse(folder: str) -> list[str]:
        if folder == job.store.paths.index:
            raise error
        return children(folder)

    monkeypatch.setattr(job.store.objects, "children", refuse)
    assert indexed_ids(job) == []
    assert answers(job) == expected


def test_a_store_that_does_not_answer_is_no_missing_index(job, monkeypatch) -> None:
    def fail(folder: str) -> list[str]:
        raise StorageUnavailable(ErrorCode.STORE_IO, folder)

    sizes = job.store.objects.sizes(job.store.paths.checkpoints)
    monkeypatch.setattr(job.store.objects, "children", fail)
    with pytest.raises(StorageUnavailable):
        index_of(job).read(sizes)
