"""A small job for tests of retention."""

import pytest

from tests.retention.retention_jobs import StoredJob


@pytest.fixture
def job() -> StoredJob:
    """Three checkpoints; the second no longer names the first increment, the third all others."""
    job = StoredJob()
    job.start()
    job.complete()
    job.complete(forget=1)
    job.complete()
    return job
