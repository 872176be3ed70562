"""Storage and requests of a job are counted, measured, or left out, but never guessed."""

import pytest

from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import Heartbeat
from laminar_core.store.usage import (
    RecordUsage,
    checkpoint_interval_ms,
    read_record_usage,
    read_traffic,
)
from tests.retention.retention_jobs import HOUR_MS, StoredJob
from tests.store.stores import damage


@pytest.fixture
def job() -> StoredJob:
    job = StoredJob()
    job.start()
    for _ in range(4):
        job.complete()
    return job


def beat(job: StoredJob, generation: int, at_ms: int, **progress) -> None:
    heartbeat = Heartbeat(sequence=1, at_ms=at_ms, progress=progress)
    job.store.generations.beat(Generation(generation), heartbeat)


def test_everything_but_the_files_of_checkpoints_is_a_record(job):
    keys = job.store.objects.list("")
    files = {job.store.paths.relative(key) for key in keys if key.endswith(".seg")}
    found = read_record_usage(job.store, files)
    records = [key for key in keys if not key.endswith(".seg")]
    assert (found.objects, found.measured) == (len(records), len(records))
    assert found.size_bytes == sum(job.store.objects.size(key) for key in records)


def test_of_many_records_an_even_sample_is_measured(job):
    for number in range(100):
        job.store.objects.put(f"payments/audit/{number + 1:010}.json", b"x" * 10)
    found = read_record_usage(job.store, set(), sample_max=20)
    assert found.objects > 100
    assert 10 <= found.measured <= 20
    mean = found.measured_bytes / found.measured
    assert found.size_bytes == round(mean * found.objects)


def test_nothing_has_no_size():
    assert RecordUsage(0, 0, 0).size_bytes == 0


def test_another_job_of_the_store_is_not_counted(job):
    job.store.objects.put("payments2/audit/0000000001.json", b"x")
    before = read_record_usage(StoredJob(job.store.objects).store, set()).objects
    job.store.objects.put("payments2/audit/0000000002.json", b"x")
    assert read_record_usage(job.store, set()).objects == before


def test_traffic_is_what_a_generation_said_last(job):
    job.start(4)
    beat(job, 1, 1_700_000_100_000, rows_in=5, requests={"puts": 7, "lists": 2, "later": 1})
    beat(job, 2, 1_700_000_060_000, rows_in=5)
    (traffic,) = read_traffic(job.store)
    assert (traffic.generation, traffic.duration_ms) == (1, 100_000)
    assert (traffic.requests.puts, traffic.requests.lists, traffic.requests.gets) == (7, 2, 0)


def test_only_the_newest_generations_are_read(job):
    for _ in range(4):
        job.start(4)
    for generation in range(1, 6):
        beat(job, generation, 1_700_000_000_001, requests={"puts": generation})
    assert [t.generation for t in read_traffic(job.store, most=2)] == [4, 5]


def test_a_damaged_claim_or_heartbeat_is_left_out(job):
    job.start(4)
    for generation in (1, 2):
        beat(job, generation, 1_700_000_000_001, requests={"puts": 1})
    damage(job.store, job.store.paths.claim(Generation(1)), "torn")
    damage(job.store, job.store.paths.heartbeat(Generation(2)), "torn")
    assert read_traffic(job.store) == []


def test_the_pace_is_that_of_the_newest_generation(job):
    assert checkpoint_interval_ms(job.store) == HOUR_MS / 2
    job.start(4)
    job.complete()
    assert checkpoint_interval_ms(job.store) is None
    job.clock_ms += HOUR_MS
    job.complete()
    assert checkpoint_interval_ms(job.store) == 1.5 * HOUR_MS


def test_attempts_that_did_not_complete_and_damaged_ones_do_not_count(job):
    job.attempt(ended=True)
    job.complete()
    damage(job.store, job.store.paths.outcome(job.store.attempts.ended_ids()[1]), "torn")
    assert checkpoint_interval_ms(job.store) == 5 * HOUR_MS / 2 / 3
    assert checkpoint_interval_ms(StoredJob().store) is None
