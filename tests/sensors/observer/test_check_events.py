"""Which checkpoints the newest one is compared with."""

from pathlib import Path

import pytest

from laminar_core.protocol.types import CheckpointId
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, read_stored
from laminar_core.sensors.observer.check_events import alignment_before
from tests.sensors.streams import Job, stored_job
from tests.store.stores import damage


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.claim()
    return job


def newest(job: Job, checkpoint_id: int) -> StoredCheckpoint:
    found = read_stored(job.store, CheckpointId(checkpoint_id))
    assert isinstance(found, StoredCheckpoint)
    return found


def test_it_is_the_ones_before_it_oldest_first_and_no_more_than_wanted(job: Job) -> None:
    ids = [job.complete(alignment_ms=time_ms) for time_ms in (1, 2, 3, 4)]
    assert alignment_before(job.store, newest(job, ids[-1]), 10) == [1.0, 2.0, 3.0]
    assert alignment_before(job.store, newest(job, ids[-1]), 2) == [2.0, 3.0]
    assert alignment_before(job.store, newest(job, ids[0]), 2) == []


def test_attempts_that_failed_or_cannot_be_read_do_not_count(job: Job) -> None:
    job.complete(alignment_ms=1)
    job.end(job.trigger(), "expired", alignment_ms=99)
    damaged = job.complete(alignment_ms=2)
    damage(job.store, job.store.paths.outcome(CheckpointId(damaged)), "torn")
    assert alignment_before(job.store, newest(job, job.complete()), 10) == [1.0]


def test_a_generation_starts_with_a_clean_slate(job: Job) -> None:
    """An earlier generation saw another load, or another mode."""
    before = job.complete(alignment_ms=99)
    job.claim(base=before)
    job.complete(alignment_ms=1)
    assert alignment_before(job.store, newest(job, job.complete()), 10) == [1.0]
