"""The outcome of each attempt at a checkpoint is known from stored fields, not from texts."""

from pathlib import Path

import pytest

from laminar_core.codec.digest import sha256_hex
from laminar_core.protocol.types import CheckpointId
from laminar_core.sensors.facts.attempts import Attempts, Failed
from tests.sensors.streams import Job, stored_job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.claim()
    job.trigger()
    return job


def damaged(job: Job, history: bytes) -> Failed:
    """The first attempt, once its history is these bytes."""
    job.store.objects.put(job.store.paths.outcome(CheckpointId(1)), history)
    ((_, found),) = Attempts(job.store).after(0)
    assert isinstance(found, Failed)
    return found


def test_a_damaged_history_is_known_by_what_is_stored(job: Job) -> None:
    found = damaged(job, b"{}")
    trigger = job.store.objects.get(job.store.paths.trigger(CheckpointId(1)))
    assert (found.outcome, found.sha256) == ("damaged", sha256_hex(b"{}" + trigger))


def test_another_damage_is_another_one_though_the_words_are_the_same(job: Job) -> None:
    first, second = damaged(job, b'{"a": 1}'), damaged(job, b'{"a": 2}')
    assert first.reason == second.reason
    assert first.sha256 != second.sha256
