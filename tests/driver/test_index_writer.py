import pytest

from laminar_core.driver.index_writer import IndexWriter
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.checkpoint_index import BLOCK
from laminar_core.store.checkpoint_index import WORTH_MIN, CheckpointIndex
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.driver.hosts import Background
from tests.retention.retention_jobs import StoredJob
from tests.store.stores import damage, open_job


@pytest.fixture
def job() -> StoredJob:
    """A job whose checkpoints are in block 1 and 3; nothing is in block 2."""
    stored = StoredJob()
    stored.start()
    for first in (1, 2 * BLOCK + 1):
        stored.number = first - 1
        for _ in range(WORTH_MIN):
            stored.complete(forget=1)
    return stored


def writer_of(job: StoredJob, *faults: Fault) -> tuple[IndexWriter, Background, FaultyStore]:
    objects = FaultyStore(job.store.objects, *faults)
    background = Background()
    return IndexWriter(open_job(objects), job.generation, background), background, objects


def complete(writer: IndexWriter, background: Background, checkpoint_id: int) -> None:
    writer.completed(CheckpointId(checkpoint_id))
    background.run()


def stored(job: StoredJob) -> list[int]:
    return sorted(CheckpointIndex(job.store.objects, job.store.paths).stored())


def test_a_young_job_costs_no_request(job) -> None:
    writer, background, objects = writer_of(job)
    complete(writer, background, BLOCK)
    assert objects.calls == []


def test_missing_blocks_are_written_one_with_each_checkpoint(job) -> None:
    writer, background, _ = writer_of(job)
    complete(writer, background, 3 * BLOCK + 1)
    assert stored(job) == [3]
    complete(writer, background, 3 * BLOCK + 2)
    assert stored(job) == [1, 3]


def test_nothing_is_asked_once_all_blocks_are_there(job) -> None:
    writer, background, objects = writer_of(job)
    for number in range(3):
        complete(writer, background, 3 * BLOCK + 1 + number)
    before = len(objects.calls)
    complete(writer, background, 3 * BLOCK + 9)
    assert len(objects.calls) == before


def test_a_block_is_not_written_before_its_last_number_is_used(job) -> None:
    writer, background, _ = writer_of(job)
    for number in range(3):
        complete(writer, background, 3 * BLOCK - 9 + number)
    assert stored(job) == [1]
    complete(writer, background, 3 * BLOCK + 1)
    assert stored(job) == [1, 3]


def test_a_damaged_block_is_written_again(job) -> None:
    writer, background, _ = writer_of(job)
    complete(writer, background, 3 * BLOCK + 1)
    damage(job.store, job.store.paths.index_block(3), "rotten")
    again, background, _ = writer_of(job)
    complete(again, background, 3 * BLOCK + 2)
    index = CheckpointIndex(job.store.objects, job.store.paths)
    assert index.block(3, index.store_sha256() or "") is not None


def test_a_block_that_retention_has_emptied_is_deleted(job) -> None:
    writer, background, _ = writer_of(job)
    complete(writer, background, 3 * BLOCK + 1)
    job.store.objects.delete(job.store.paths.manifest(CheckpointId(3 * BLOCK - BLOCK + 1)))
    again, background, _ = writer_of(job)
    complete(again, background, 3 * BLOCK + 2)
    assert stored(job) == [1]


@pytest.mark.parametrize("verb", ["sizes", "get", "put"])
def test_what_failed_is_tried_with_the_next_checkpoint(job, verb) -> None:
    writer, background, _ = writer_of(job, Fault(verb, Effect.FAIL, last=2))
    for number in range(3):
        complete(writer, background, 3 * BLOCK + 1 + number)
    assert 3 in stored(job)


def test_nothing_is_written_if_another_store_is_in_its_place(job) -> None:
    job.store.objects.put(job.store.paths.claim(job.generation), b"of another store")
    background = Background()
    complete(IndexWriter(job.store, job.generation, background), background, 3 * BLOCK + 1)
    assert stored(job) == []
