"""Positions of a removed source outlive savepoints, retention, damage, deaths and full stores."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from laminar_core.driver.events import CheckpointCompleted, CheckpointFailed
from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.errors import (
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
    StorageUnavailable,
)
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.retention.run import Retention
from laminar_core.store.savepoint_export import export_as
from laminar_core.testing.jobs import normal, rows_of
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.world import ProcessKilledError
from tests.simulated.changing_sources import TABLES, Changing, positions
from tests.store.stores import damage

SOMEBODY = Actor("somebody", reason="to test")
LAST = RetentionPolicy(keep_last=1, quarantine_min_ms=0)


def carried_files(manifest: CheckpointManifest) -> list[str]:
    """Return the files of removed sources."""
    entries = [entry for entry in manifest.subtasks if entry.operator_id in manifest.carried]
    return [segment.path for entry in entries for segment in entry.segments]


def without_b(seed: int = 0) -> tuple[Changing, CheckpointManifest, CheckpointManifest]:
    """Run with ``b`` and then without; return the newest checkpoints of both runs."""
    job = Changing(seed)
    with_b = job.run_and_stop("a", "b")
    return job, with_b, job.run_and_stop("a")


def whole(job: Changing) -> list[int]:
    store = job.simulation.store
    return [n for n in store.manifests.ids() if store.verify(n).problem is None]


def test_every_checkpoint_has_its_own_copy_of_the_positions() -> None:
    job, with_b, _ = without_b()
    manifests = job.simulation.store.manifests
    later = [manifests.read(n) for n in manifests.ids() if n > with_b.checkpoint_id]
    assert len(later) > 3
    for manifest in later:
        assert positions(manifest, "b") == positions(with_b, "b")
        own = f"checkpoints/{manifest.checkpoint_id:010}/"
        assert carried_files(manifest)
        assert all(path.startswith(own) for path in carried_files(manifest))
        entries = [e for e in manifest.subtasks if e.operator_id in manifest.carried]
        assert [e.written_bytes for e in entries] == [e.size_bytes for e in entries]


# --- savepoints -----------------------------------------------------------------------------------


def exported(job: Changing, target: Path) -> str:
    """Export the newest checkpoint as ``laminar savepoint export`` does."""
    store, clock = job.simulation.store, job.simulation.world
    newest = store.manifests.ids()[-1]
    return export_as(store, newest, str(target), SOMEBODY, lambda: int(clock.now_ms))


def renamed(before: Changing, seed: int) -> Changing:
    """Return another job, with a store of its own, that shows the same output."""
    return Changing(seed, job="renamed", ledger=before.ledger)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_another_job_continues_them_from_a_moved_savepoint(
    seed: int, workers: int, tmp_path: Path
) -> None:
    job, with_b, _ = without_b(seed)
    exported(job, tmp_path / "s")
    shutil.move(tmp_path / "s", tmp_path / "moved")
    other = renamed(job, seed + 10)
    other.start("b", "a", workers=workers)
    result = other.simulation.run(from_savepoint=str(tmp_path / "moved"))
    assert result.outcome == "finished"
    other.check("a", "b")
    imported = other.simulation.store.manifests.read(other.simulation.store.manifests.ids()[0])
    assert imported.carried["b"].checkpoint_id == with_b.checkpoint_id
    assert other.newest().carried == {}


def test_a_savepoint_is_imported_without_the_source_and_it_returns_later(tmp_path: Path) -> None:
    job, with_b, _ = without_b()
    exported(job, tmp_path / "s")
    other = renamed(job, 10)
    other.start("a", "c")
    other.simulation.when(CheckpointCompleted, other.simulation.stop, 3)
    other.simulation.run(from_savepoint=str(tmp_path / "s"))
    shutil.rmtree(tmp_path / "s")
    assert positions(other.newest(), "b") == positions(with_b, "b")
    exported(other, tmp_path / "again")
    third = Changing(20, job="third", ledger=job.ledger)
    third.start("a", "b", "c", workers=3)
    third.simulation.run(from_savepoint=str(tmp_path / "again"))
    third.check("a", "b", "c")


def test_positions_in_a_savepoint_can_be_given_up_as_well(tmp_path: Path) -> None:
    job, _, _ = without_b()
    before = Counter(normal(job.ledger.rows()))
    exported(job, tmp_path / "s")
    other = renamed(job, 10)
    other.start("a", "b2")
    savepoint = str(tmp_path / "s")
    with pytest.raises(IncompatibleStateError, match="--accept source-drop:b and a --reason"):
        other.simulation.run(from_savepoint=savepoint)
    drop = (parse_acceptance("source-drop:b"),)
    result = other.simulation.run(from_savepoint=savepoint, accepted=drop)
    assert result.outcome == "finished"
    read_twice = before & Counter(normal(rows_of(TABLES["b"])))
    everything = Counter(normal(rows_of(TABLES["a"] + TABLES["b"])))
    assert read_twice
    assert Counter(normal(other.ledger.rows())) == everything + read_twice


def test_the_same_job_goes_back_to_a_savepoint_and_the_source_returns(tmp_path: Path) -> None:
    job, _, _ = without_b()
    exported(job, tmp_path / "s")
    job.run_and_stop("a", "b")
    job.start("a", "b")
    assert job.simulation.run(from_savepoint=str(tmp_path / "s")).outcome == "finished"
    job.check("a", "b")


# --- retention ------------------------------------------------------------------------------------


def retain(job: Changing) -> None:
    """Delete everything but the newest checkpoint, left-overs too."""
    clock = job.simulation.world
    for _ in range(3):  # Left-overs are put into quarantine first.
        runner = Retention(job.simulation.store, LAST, lambda: int(clock.now_ms), readers=1)
        runner.finish_earlier()
        runner.apply(runner.plan(), SOMEBODY, {})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(3))
def test_retention_keeps_them_with_the_checkpoints_that_it_keeps(seed: int) -> None:
    job, with_b, base = without_b(seed)
    newest = job.run_and_stop("a", "c", workers=3)
    retain(job)
    store = job.simulation.store
    kept = [base, newest]
    assert store.manifests.ids() == [m.checkpoint_id for m in kept], "the source took part in none"
    parts = {k for k in store.objects.list(store.paths.checkpoints) if "/operators/" in k}
    assert parts == {store.paths.absolute(f.path) for manifest in kept for f in manifest.files()}
    assert whole(job) == store.manifests.ids()
    assert positions(newest, "b") == positions(with_b, "b")
    job.finish("a", "b", "c")
    job.check("a", "b", "c")


@pytest.mark.parametrize("seed", range(2))
def test_retention_at_every_checkpoint_of_a_running_job_deletes_none_of_them(seed: int) -> None:
    job = Changing(seed)
    job.run_and_stop("a", "b")
    for names in (("a",), ("a", "c")):
        for number in range(1, 5):
            job.simulation.when(
                CheckpointCompleted, lambda: retain(job), number=job.completed + number
            )
        newest = job.run_and_stop(*names, kill="driver")
        assert whole(job)[-1] == newest.checkpoint_id
    job.finish("b", "a", "c")
    job.check("a", "b", "c")


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["missing", "torn", "rotten"])
def test_damage_to_one_copy_costs_one_checkpoint(how: str) -> None:
    job, _, newest = without_b()
    store = job.simulation.store
    before = store.manifests.ids()[-2]
    (path, *_) = carried_files(newest)
    damage(store, store.paths.absolute(path), how)
    report = store.verify(CheckpointId(newest.checkpoint_id))
    assert [part.path for part in report.parts if part.problem] == [path]
    assert whole(job)[-1] == before
    job.finish("a", "b")
    job.check("a", "b")
    base = store.generations.bases()[-1]
    assert base.checkpoint_id == before


def test_if_all_copies_are_lost_the_start_is_refused_by_the_name_of_a_file() -> None:
    job, _, _ = without_b()
    store = job.simulation.store
    lost = {}
    for checkpoint_id in store.manifests.ids():
        for entry in store.manifests.read(checkpoint_id).subtasks:
            for segment in entry.segments if entry.operator_id == "b" else ():
                key = store.paths.absolute(segment.path)
                lost[key] = store.objects.get(key)
                damage(store, key, "missing")
    job.start("a")
    with pytest.raises(CorruptCheckpointError, match="/operators/b/state_0") as refused:
        job.simulation.run()
    assert refused.value.code is ErrorCode.NO_RESTORABLE_CHECKPOINT
    with pytest.raises(CorruptCheckpointError, match="/operators/b/state_0"):
        job.simulation.run(accepted=(parse_acceptance("source-drop:b"),))
    for key, data in lost.items():
        assert data is not None
        store.objects.put(key, data)
    job.finish("a", "b")
    job.check("a", "b")


def test_a_copy_that_is_lost_under_a_running_job_harms_no_later_checkpoint() -> None:
    job = Changing()
    job.run_and_stop("a", "b")
    job.start("a")
    store, damaged = job.simulation.store, list[int]()

    def lose() -> None:
        newest = job.newest()
        damaged.append(newest.checkpoint_id)
        damage(store, store.paths.absolute(carried_files(newest)[0]), "rotten")

    job.simulation.when(CheckpointCompleted, lose, job.completed + 2)
    job.simulation.when(CheckpointCompleted, job.simulation.stop, job.completed + 4)
    job.simulation.run()
    assert len(damaged) == 1
    assert not {*damaged} & {*whole(job)}
    assert job.newest().checkpoint_id in whole(job)
    assert not [e for e in job.simulation.events if isinstance(e, CheckpointFailed)]
    job.finish("a", "b")
    job.check("a", "b")


# --- while they are written -----------------------------------------------------------------------


def at_first_copy(job: Changing, moment: str, act: Callable[[], None]) -> None:
    """Act when the next run writes a position of ``b`` for the first time."""

    def observe(call: StoreCall) -> None:
        is_copy = call.verb == "put_if_absent" and "/operators/b/state_" in call.key
        if is_copy and call.moment == moment and observe in job.simulation.observers:
            job.simulation.observers.remove(observe)
            act()

    job.simulation.observers.append(observe)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_that_dies_while_it_writes_them_loses_nothing(moment: str) -> None:
    job = Changing()
    with_b = job.run_and_stop("a", "b")
    job.start("a")
    at_first_copy(job, moment, job.simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        job.simulation.run()
    newest = job.run_and_stop("a")
    assert positions(newest, "b") == positions(with_b, "b")
    job.finish("a", "b")
    job.check("a", "b")


def test_a_store_that_is_full_at_that_moment_costs_one_checkpoint_and_leaves_nothing() -> None:
    job = Changing(checkpoint=CoordinatorConfig(interval_ms=40, tolerable_failures=1))
    job.run_and_stop("a", "b")
    refused = list[str]()

    def refuse(call: StoreCall) -> None:
        folder, _, name = call.key.partition("/operators/b/")
        if name and call.verb == "put_if_absent" and folder in (refused or [folder]):
            refused.append(folder)
            raise StorageUnavailable(ErrorCode.STORE_FULL, "no space left")

    job.simulation.observers.append(refuse)
    newest = job.run_and_stop("a")
    (failed,) = [e for e in job.simulation.events if isinstance(e, CheckpointFailed)]
    assert "no space left" in failed.reason
    store = job.simulation.store
    assert failed.checkpoint_id is not None
    assert store.objects.list(store.paths.parts(failed.checkpoint_id)) == []
    assert newest.checkpoint_id in whole(job)
    job.finish("a", "b")
    job.check("a", "b")


# --- other numbers of workers ---------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kill", ["", "driver", "worker"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_growing", [False, True])
def test_they_are_divided_anew_after_one_three_and_two_workers(
    seed: int, kill: str, *, is_growing: bool
) -> None:
    job = Changing(seed, is_growing=is_growing)
    job.run_and_stop("a", "b", workers=1, kill=kill)
    of_three = job.run_and_stop("a", "b", workers=3, kill=kill)
    of_two = job.run_and_stop("a", workers=2, kill=kill)
    assert (of_two.workers, of_two.parallelism["b"], of_two.parallelism["b-time"]) == (2, 3, 3)
    assert positions(of_two, "b") == positions(of_three, "b")
    job.run_and_stop("a", workers=1, kill=kill)
    back = job.run_and_stop("b", "a", workers=2, kill=kill)
    assert back.parallelism["b"] == 2
    job.finish("b", "a", workers=3)
    job.check("a", "b")
