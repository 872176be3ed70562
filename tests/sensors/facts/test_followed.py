"""Following attempts from tick to tick finds what a listing would, and asks for next to nothing."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.sensors.facts.followed import Followed, follow
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.faulty_store import FaultyStore
from tests.sampling import drawn
from tests.sensors.streams import STREAM, Job, stored_job
from tests.store.stores import damage


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.claim()
    return job


def look(job: Job, before: Followed, back: int = 100) -> tuple[list[int], Followed]:
    ended, after = follow(job.store, job.generation, before, back, job.clock.now_ms())
    return [record.checkpoint_id for record in ended], after


def test_each_end_is_reported_once(job: Job) -> None:
    first, second = job.trigger(), job.trigger()
    job.end(first, "declined")
    ended, known = look(job, Followed())
    assert ended == [first]
    assert [attempt.checkpoint_id for attempt in known.open] == [second]
    job.end(second, "completed")
    third = job.complete()
    assert look(job, known)[0] == [second, third]
    ended, known = look(job, look(job, known)[1])
    assert (ended, known.open, known.checkpoint_id) == ([], (), third)


def test_the_first_look_goes_back_so_far_and_to_this_generation_only(job: Job) -> None:
    job.complete()
    job.claim(base=1)
    ids = [job.complete() for _ in range(5)]
    assert look(job, Followed())[0] == ids
    assert look(job, Followed(), back=2)[0] == ids[-2:]


def test_nothing_new_costs_two_requests(job: Job) -> None:
    _, known = look(job, Followed())
    job.store = CheckpointStore(counted := FaultyStore(job.store.objects), STREAM)
    look(job, known)
    assert [verb for verb, _ in counted.calls] == ["size", "size"]


@pytest.mark.parametrize("how", ["missing", "torn"])
def test_an_attempt_whose_reservation_is_damaged_hides_no_later_one(job: Job, how: str) -> None:
    _, known = look(job, Followed())
    lost, next_one = job.complete(), job.complete()
    damage(job.store, job.store.paths.trigger(CheckpointId(lost)), how)
    assert look(job, known)[0][-1] == next_one


def forget(job: Job, *ids: int) -> None:
    """Delete old attempts, as retention does."""
    for checkpoint_id in map(CheckpointId, ids):
        job.store.objects.delete(job.store.paths.trigger(checkpoint_id))
        job.store.objects.delete(job.store.paths.outcome(checkpoint_id))


def test_numbers_that_retention_forgot_hide_later_ones_for_half_a_minute(job: Job) -> None:
    job.complete()
    _, known = look(job, Followed())
    forgotten = [job.trigger() for _ in range(4)]
    newest = job.complete()
    forget(job, *forgotten)
    ended, known = look(job, known)
    assert ended == []
    job.clock.wait_ms(30_000)
    assert look(job, known)[0] == [newest]


@settings(max_examples=drawn(60))
@given(st.lists(st.sampled_from(["trigger", "end", "look", "restart"]), max_size=40))
def test_in_any_order_every_end_of_the_generation_is_reported_once(steps: list[str]) -> None:
    job = Job(CheckpointStore(MemoryObjectStore(), STREAM))
    job.claim()
    known, told, open_ids, ended = Followed(), [], [], []
    for step in [*steps, "look"]:
        if step == "trigger" and len(open_ids) < 5:
            open_ids.append(job.trigger())
        elif step == "end" and open_ids:
            ended.append(open_ids.pop(len(open_ids) // 2))
            job.end(ended[-1], "completed")
        elif step == "restart":
            job.claim()
            known, told, open_ids, ended = Followed(), [], [], []
        elif step == "look":
            ids, known = look(job, known)
            told += ids
    assert sorted(told) == sorted(ended)
    assert [attempt.checkpoint_id for attempt in known.open] == open_ids
    assert Generation(job.generation) == job.store.claims.newest()
