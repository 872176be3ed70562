"""A store shows which checkpoints have lost files, while their job runs and afterwards."""

from pathlib import Path

import pytest

from laminar_core.driver.events import FilesDamaged
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.damage import DamagedFile
from laminar_core.sensors.facts.lost_files import (
    MARKS_MAX,
    Marks,
    damage_in_words,
    lost_files,
    read_marks,
)
from laminar_core.sensors.judgements import LostFiles
from laminar_core.store.file_scrub import DamageLog
from tests.sensors.streams import Job, mark_damaged, stored_job
from tests.simulated.test_lost_files import Harm, simulate
from tests.store.stores import damage


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.claim()
    for _ in range(3):
        job.complete()
    return job


def found(job: Job) -> LostFiles | None:
    return lost_files(job.store, read_marks(job.store))


def known(job: Job) -> LostFiles:
    lost = found(job)
    assert lost is not None
    return lost


def test_a_job_that_lost_nothing_has_no_marks(job: Job) -> None:
    assert found(job) is None


def test_the_newest_is_damaged_as_long_as_nothing_has_completed_since(job: Job) -> None:
    mark_damaged(job, 2, 3)
    lost = known(job)
    assert (lost.checkpoint_ids, lost.newest_id, lost.whole_id) == ((2, 3), 3, 1)
    assert lost.example == "shared/a.arrow (missing)"
    assert lost.found_at_ms == job.clock.now_ms()
    assert lost.is_in_memory
    job.complete()
    assert (known(job).newest_id, known(job).whole_id) == (4, 4)


@pytest.mark.parametrize("end", ["it ended", "another one began"])
def test_what_a_generation_had_in_memory_ends_with_it(job: Job, end: str) -> None:
    mark_damaged(job, 3)
    if end == "it ended":
        job.store.generations.end(job.generation, "failed", "out of memory")
    else:
        job.claim(base=3)
    assert not known(job).is_in_memory


def test_a_new_past_has_no_damage_of_the_old_one(job: Job) -> None:
    """Goal: after a step back the damaged ones are not what a restore begins with."""
    mark_damaged(job, 2, 3)
    job.claim(base=1)
    assert (known(job).newest_id, known(job).whole_id) == (1, 1)


def test_nothing_is_left_to_restore_if_all_are_damaged(job: Job) -> None:
    mark_damaged(job, 1, 2, 3)
    assert known(job).whole_id is None


def test_what_retention_has_deleted_lacks_nothing_but_its_mark_still_counts(job: Job) -> None:
    mark_damaged(job, 2, 3)
    job.store.objects.delete(job.store.paths.manifest(CheckpointId(3)))
    assert (known(job).checkpoint_ids, known(job).newest_mark) == ((2,), 3)
    job.store.objects.delete(job.store.paths.manifest(CheckpointId(2)))
    assert found(job) is None


def test_a_mark_that_cannot_be_read_marks(job: Job) -> None:
    mark_damaged(job, 3)
    damage(job.store, job.store.paths.damage(CheckpointId(3)), "torn")
    lost = known(job)
    assert (lost.checkpoint_ids, lost.is_in_memory) == ((3,), False)
    assert lost.example == "the record of which cannot be read"


def test_only_so_many_are_looked_at_but_all_are_known() -> None:
    marks = Marks(tuple(map(CheckpointId, range(1, 200))))
    assert len(marks.newest) == MARKS_MAX
    assert marks.newest[-1] == 199


def test_damage_is_said_with_the_first_file_and_the_number_of_others(job: Job) -> None:
    files = [DamagedFile(path=f"shared/{name}", problem="digest") for name in "abc"]
    log = DamageLog(job.store.objects, job.store.paths)
    log.record(CheckpointId(3), job.generation, files, job.clock.now_ms())
    log.record(CheckpointId(2), job.generation, [], job.clock.now_ms())
    three, none = log.read(CheckpointId(3)), log.read(CheckpointId(2))
    assert three is not None
    assert none is not None
    assert damage_in_words(three) == "shared/a (digest) and 2 more files"
    assert damage_in_words(none) == "0 files"


def test_a_real_job_is_seen_to_lose_a_file_and_to_heal_it() -> None:
    _, simulation = simulate(1)
    harm = Harm(simulation, "missing")
    seen: list[LostFiles | None] = []
    simulation.when(
        FilesDamaged,
        lambda: seen.append(lost_files(simulation.store, read_marks(simulation.store))),
    )
    simulation.run()
    (during,) = seen
    after = lost_files(simulation.store, read_marks(simulation.store))
    assert during is not None
    assert during.is_in_memory
    assert during.example == f"{harm.path} (missing)"
    assert during.newest_id in during.checkpoint_ids
    assert after is not None
    assert after.newest_id == after.whole_id == simulation.store.manifests.ids()[-1]
    assert set(harm.naming) <= set(after.checkpoint_ids)
