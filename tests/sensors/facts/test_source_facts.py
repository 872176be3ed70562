"""Numbers of the sources are read from the heartbeat of the newest generation."""

from pathlib import Path

import pytest

from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.sensors.facts.source_facts import headrooms, read_sources
from laminar_core.sensors.judgements import Headroom
from tests.sensors.streams import Job, stored_job

NUMBERS = SourceNumbers(
    lag_rows=7, headroom_checkpoint_id=3, headroom_rows=10, headroom_seconds=3_600
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return stored_job(tmp_path)


def test_a_job_without_a_heartbeat_has_no_numbers(job: Job) -> None:
    assert read_sources(job.store) is None
    job.claim()
    assert read_sources(job.store) is None
    assert headrooms(None, 0) == ()


def test_only_the_newest_generation_counts(job: Job) -> None:
    job.claim()
    job.beat(payments=NUMBERS)
    known = read_sources(job.store)
    assert known is not None
    assert (known.generation, known.numbers) == (job.generation, {"payments": NUMBERS})
    job.claim()
    assert read_sources(job.store) is None


@pytest.mark.parametrize(("outcome", "counts"), [("stopped", True), ("failed", True)])
def test_a_job_that_is_down_still_loses_its_rows(job: Job, outcome: str, *, counts: bool) -> None:
    job.claim()
    job.beat(payments=NUMBERS)
    job.store.generations.end(job.generation, outcome, "so it is")
    assert (read_sources(job.store) is not None) is counts


def test_a_job_that_has_read_everything_needs_no_rows(job: Job) -> None:
    job.claim()
    job.beat(payments=NUMBERS)
    job.store.generations.end(job.generation, "finished", "")
    assert read_sources(job.store) is None


def test_time_goes_on_while_the_driver_is_silent(job: Job) -> None:
    job.claim()
    job.beat(payments=NUMBERS, files=SourceNumbers())
    known = read_sources(job.store)
    now_ms = job.clock.now_ms()
    assert headrooms(known, now_ms + 1_800_000) == (Headroom("payments", 3, 10, 1_800),)
    assert headrooms(known, now_ms - 5_000) == (Headroom("payments", 3, 10, 3_600),)
