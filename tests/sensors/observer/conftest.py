"""A stored job, and the sensor that tells of it."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.sensors.observer.sensor import build_checkpoint_reporter
from laminar_core.sensors.policy import AlertPolicy
from tests.sensors.observed import Daemon
from tests.sensors.streams import STREAM, Job, stored_job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.claim()
    return job


@pytest.fixture
def daemon(job: Job) -> Iterator[Daemon]:
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = build_checkpoint_reporter({STREAM: AlertPolicy()}, job.clock)
        yield Daemon(instance, sensor, job.store.objects.uri)
