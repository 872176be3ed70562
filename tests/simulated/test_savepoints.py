"""Savepoints of a running job, taken by commands in its store; restored here and elsewhere."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from laminar_core.driver.commands.texts import describe_result
from laminar_core.driver.events import CheckpointCompleted, CheckpointFailed, DataFlowing
from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    IncompatibleStateError,
    StorageUnavailable,
)
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.pipeline import Pipeline
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.commands import SetMode, StopJob, TakeCheckpoint, TakeSavepoint
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.savepoints import delete_savepoint, read_savepoint
from laminar_core.testing.jobs import DELAY, normal, payments, windowed, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.scenarios import windows_job
from tests.simulated.savepoint_stories import ALIGNED, UNALIGNED, Story, take

# --- taking -------------------------------------------------------------------------------------


def test_a_checkpoint_is_taken_when_somebody_asks_for_it():
    story = Story(CoordinatorConfig(interval_ms=None))
    story.at_start(TakeCheckpoint())
    story.simulation.run()
    result = story.result()
    assert (result.outcome, result.checkpoint_id) == ("completed", 1)
    assert [m.kind for m in story.manifests()] == [CheckpointKind.MANUAL, CheckpointKind.FINAL]
    story.job.check()


@pytest.mark.parametrize("seed", range(2))
def test_a_savepoint_of_an_unaligned_job_under_backpressure_is_aligned(seed, tmp_path):
    story = Story(UNALIGNED, seed)
    story.at_start(TakeSavepoint(target=str(tmp_path / "s")))
    story.simulation.run()
    assert story.result().outcome == "completed"
    record = read_savepoint(LocalObjectStore(tmp_path / "s")).record
    cut = record.cut()
    assert (cut.kind, cut.mode, cut.inflight_data) == (CheckpointKind.SAVEPOINT, "aligned", ())
    assert any(m.mode == "unaligned" for m in story.manifests()), "nothing to tell it from"
    assert (record.origin.job, record.actor, record.canonical) == ("simulated", "ann", True)
    story.job.check()


def test_a_savepoint_that_does_not_stop_the_job_commits_nothing(tmp_path):
    story = Story()
    story.at_start(TakeSavepoint(target=str(tmp_path / "s")))
    story.simulation.run()
    taken = story.result().checkpoint_id
    assert taken is not None
    assert taken not in story.simulation.store.attempts.committed_ids()


@pytest.mark.parametrize("with_savepoint", [False, True], ids=["plain", "savepoint"])
def test_a_stop_says_once_how_the_job_ended_and_the_store_says_who_did_it(tmp_path, with_savepoint):
    story = Story()
    story.at_start(StopJob(target=str(tmp_path / "s") if with_savepoint else None))
    assert story.simulation.run().outcome == "stopped"
    result, store = story.result(), story.simulation.store
    assert result.checkpoint_id == store.manifests.ids()[-1]
    assert describe_result(result) == (
        f"checkpoint {result.checkpoint_id} is the savepoint {tmp_path / 's'}"
        if with_savepoint
        else f"checkpoint {result.checkpoint_id} completed, the job has stopped"
    )
    end = store.generations.read_end(Generation(1))
    assert end is not None
    assert (end.outcome, end.reason) == ("stopped", "by ann: a test")


def test_a_job_that_its_own_process_stops_says_so():
    story = Story()
    story.simulation.when(DataFlowing, story.simulation.stop)
    assert story.simulation.run().outcome == "stopped"
    end = story.simulation.store.generations.read_end(Generation(1))
    assert end is not None
    assert (end.outcome, end.reason) == ("stopped", "by its own process")


def test_a_stop_with_a_savepoint_ends_the_job_and_has_committed_its_output(tmp_path):
    story = take(tmp_path / "s")
    found = read_savepoint(LocalObjectStore(tmp_path / "s"))
    checkpoint_id = found.record.origin.checkpoint_id
    assert story.simulation.store.attempts.committed_ids()[-1] == checkpoint_id
    assert found.verify().problem is None
    assert 0 < len(story.job.ledgers["out"].rows()) < len(story.job.expected["out"])


# --- restoring ----------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("checkpoint", [ALIGNED, UNALIGNED])
def test_a_moved_savepoint_continues_under_another_name_exactly(checkpoint, seed, tmp_path):
    before = take(tmp_path / "s", checkpoint, seed)
    shutil.move(tmp_path / "s", tmp_path / "moved")
    after = Story(checkpoint, seed + 10, name="renamed")
    after.job.load(before.job.ledgers)
    result = after.simulation.run(from_savepoint=str(tmp_path / "moved"))
    assert result.outcome == "finished"
    after.job.check()
    imported = after.manifests()[0]
    assert imported.imported_from == str(tmp_path / "moved")
    assert imported.parent_checkpoint_id is None
    origin = read_savepoint(LocalObjectStore(tmp_path / "moved")).record.origin
    assert imported.checkpoint_id > origin.checkpoint_id
    assert imported.generation > origin.generation


@pytest.mark.parametrize("workers", [1, 3])
def test_a_savepoint_continues_with_another_number_of_workers(workers, tmp_path):
    before = take(tmp_path / "s")
    after = Story(name="renamed")
    after.job.load(before.job.ledgers)
    result = after.simulation.run(from_savepoint=str(tmp_path / "s"), parallelism=workers)
    assert result.outcome == "finished"
    after.job.check()


def test_a_savepoint_is_never_touched_unless_it_is_claimed(tmp_path):
    before = take(tmp_path / "s")
    files = {p: p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file()}
    after = Story(name="renamed")
    after.job.load(before.job.ledgers)
    after.simulation.run(from_savepoint=str(tmp_path / "s"))
    assert {p: p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file()} == files


def test_a_claimed_savepoint_is_deleted_after_the_first_checkpoint_that_builds_on_it(
    tmp_path, monkeypatch
):
    """Its copy is the job's first checkpoint; whoever deletes it finds one more."""
    before = take(tmp_path / "s")
    after = Story(name="renamed")
    after.job.load(before.job.ledgers)
    store = after.simulation.store
    completed: list[int] = []

    def watched(objects, deletion):
        assert (tmp_path / "s/savepoint.json").exists()
        completed.append(len(store.manifests.ids()))
        delete_savepoint(objects, deletion)

    monkeypatch.setattr("laminar_core.store.savepoint_import.delete_savepoint", watched)
    after.simulation.run(from_savepoint=str(tmp_path / "s"), claim_savepoint=True)
    assert completed == [2]
    assert not [p for p in (tmp_path / "s").rglob("*") if p.is_file()]
    after.job.check()
    acts = AuditLog(store.objects, store.paths, lambda: 0).records()
    assert ("delete-savepoint", "done") in [(act.action, act.outcome) for act in acts]


def test_in_the_same_job_it_is_a_step_back_and_later_output_is_taken_back(tmp_path):
    story = Story()
    story.at_start(TakeSavepoint(target=str(tmp_path / "s")))
    assert story.simulation.run().outcome == "finished"
    story.job.check()
    rows = story.job.ledgers["out"].rows()
    result = story.simulation.run(from_savepoint=str(tmp_path / "s"))
    assert result.outcome == "finished"
    story.job.check()
    assert len(rows) == len(story.job.ledgers["out"].rows())
    store = story.simulation.store
    orphans = [s.checkpoint_id for s in store.list_summaries() if s.orphan]
    origin = read_savepoint(LocalObjectStore(tmp_path / "s")).record.origin
    assert orphans
    assert min(orphans) == origin.checkpoint_id + 1


def test_a_savepoint_behind_which_the_job_went_back_is_refused_in_that_job(tmp_path):
    story = Story()
    savepoint = TakeSavepoint(target=str(tmp_path / "s"))
    story.at_start(savepoint)
    story.simulation.run()
    assert story.result().outcome == "completed"
    story.simulation.run(restore_id=CheckpointId(1))
    with pytest.raises(IncompatibleStateError, match="was restored to an older checkpoint than"):
        story.simulation.run(from_savepoint=str(tmp_path / "s"))
    story.job.check()


def test_a_savepoint_of_another_job_does_not_replace_what_a_job_has(tmp_path):
    take(tmp_path / "s")
    other = Story(name="other")
    other.simulation.run()
    claims = other.simulation.store.claims.newest()
    with pytest.raises(IncompatibleStateError, match="under a new name"):
        other.simulation.run(from_savepoint=str(tmp_path / "s"))
    assert other.simulation.store.claims.newest() == claims, "refused before it was claimed"


def test_a_fork_may_not_write_where_its_origin_does(tmp_path):
    before = Story()
    before.at_start(TakeSavepoint(target=str(tmp_path / "s")))
    before.simulation.run()
    fork = Story(name="fork")
    fork.job.load(before.job.ledgers)
    with pytest.raises(ConfigurationError, match="shows output up to checkpoint"):
        fork.simulation.run(from_savepoint=str(tmp_path / "s"))


def test_a_fork_that_writes_elsewhere_shows_what_comes_after_the_savepoint(tmp_path):
    before = Story()
    before.at_start(TakeSavepoint(target=str(tmp_path / "s")))
    before.simulation.run()
    taken = before.result().checkpoint_id
    assert taken is not None
    fork = Story(name="fork")
    fork.simulation.run(from_savepoint=str(tmp_path / "s"))
    ledger = before.job.ledgers["out"]
    # What the origin committed with the next checkpoint was before the savepoint's cut.
    manifest = before.simulation.store.manifests.read(CheckpointId(taken))
    owed = {str(c["name"]) for entry in manifest.subtasks for c in entry.committables}
    shown = {n for c, names in ledger.commits.items() if c < taken for n in names} | owed
    earlier = sum(batch.num_rows for name in shown for batch in ledger.visible[name])
    assert len(fork.job.ledgers["out"].rows()) == len(ledger.rows()) - earlier


# --- canonical ----------------------------------------------------------------------------------


def leave(story: Story, stop: StopJob) -> None:
    story.tell(stop)


def savepoint_files(target: Path, state: StateOptions, seed: int) -> dict[str, bytes]:
    """Return the files of a savepoint of a job that has read everything, with open windows."""
    tables = payments()
    p = Pipeline("endless")
    rows = p.source("in", MemorySource(tables, bounded=False)).watermark("ts", max_delay=DELAY)
    job = with_ledgers(p, {"out": (windowed(rows, window="1 hour"), [])})
    story = Story(ALIGNED, seed, job=job)
    story.simulation.options = replace(story.simulation.options, state=state)
    stop = StopJob(target=str(target))
    story.simulation.when(CheckpointCompleted, lambda: leave(story, stop), number=3)
    assert story.simulation.run().outcome == "stopped"
    assert story.result().outcome == "completed"
    assert read_savepoint(LocalObjectStore(target)).record.canonical
    folder = target / "operators/totals"
    return {path.name: path.read_bytes() for path in folder.rglob("*.seg")}


def test_the_same_state_gives_the_same_bytes_however_it_was_kept(tmp_path):
    ways = [
        StateOptions(snapshots="full"),
        StateOptions(snapshots="incremental"),
        StateOptions(snapshots="changelog"),
        StateOptions(snapshots="incremental", backend="rocksdb", simulated_files=True),
    ]
    found = [savepoint_files(tmp_path / str(seed), state, seed) for seed, state in enumerate(ways)]
    assert len(found[0]) == 2
    for other in found[1:]:
        assert other == found[0]


# --- when it goes wrong -------------------------------------------------------------------------


def test_a_stop_whose_copy_fails_lets_the_job_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalObjectStore, "get", lambda *_: b"")
    story = Story()
    story.at_start(StopJob(target=str(tmp_path / "s")))
    assert story.simulation.run().outcome == "finished"
    assert story.result().outcome == "failed"
    assert "not what was just written" in story.result().reason
    assert not (tmp_path / "s/savepoint.json").exists()
    story.job.check()


def test_a_stop_whose_checkpoint_fails_lets_the_job_go_on(tmp_path):
    story = Story(CoordinatorConfig(interval_ms=None))
    story.at_start(StopJob(target=str(tmp_path / "s")))
    failing = []

    def refuse(call) -> None:
        if call.key.endswith("1.begun.json") and call.verb == "put_if_absent":
            failing.append(call.key)
        if failing and "/operators/" in call.key and call.verb == "put_if_absent":
            raise StorageUnavailable(ErrorCode.STORE_FULL, "no space left")

    story.simulation.observers.append(refuse)
    story.simulation.when(CheckpointFailed, lambda: story.simulation.observers.remove(refuse))
    assert story.simulation.run().outcome == "finished"
    assert story.result().outcome == "failed"
    assert "no space left" in story.result().reason
    assert not (tmp_path / "s").exists()
    assert [m.kind for m in story.manifests()] == [CheckpointKind.FINAL]
    story.job.check()


def test_a_job_that_somebody_stops_anyway_ends_although_the_copy_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalObjectStore, "get", lambda *_: b"")
    story = Story()
    story.at_start(StopJob(target=str(tmp_path / "s")))

    def on_begun(call) -> None:
        begun = call.verb == "put_if_absent" and call.key.endswith("1.begun.json")
        if begun and call.moment == "after":
            story.simulation.world.later(0, story.simulation.stop)

    story.simulation.observers.append(on_begun)
    assert story.simulation.run().outcome == "stopped"
    assert story.result().outcome == "failed"
    assert story.simulation.run().outcome == "finished"
    story.job.check()


def test_a_target_that_is_taken_is_refused_before_anything_is_done(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s/notes.txt").write_text("mine")
    story = Story(CoordinatorConfig(interval_ms=None))
    story.at_start(StopJob(target=str(tmp_path / "s")))
    assert story.simulation.run().outcome == "finished"
    assert story.result().outcome == "refused"
    assert "not empty" in story.result().reason
    assert [m.kind for m in story.manifests()] == [CheckpointKind.FINAL]


def test_a_command_that_a_dead_driver_had_begun_is_answered_and_not_repeated(tmp_path):
    story = Story()
    story.at_start(StopJob(target=str(tmp_path / "s")))

    def kill(call) -> None:
        begun = call.verb == "put_if_absent" and call.key.endswith("1.begun.json")
        if begun and call.moment == "after":
            story.simulation.kill_driver()

    story.simulation.observers.append(kill)
    assert story.simulation.run_to_end().outcome == "finished"
    assert story.result().outcome == "interrupted"
    assert not (tmp_path / "s").exists()
    story.job.check()


# --- modes --------------------------------------------------------------------------------------


def test_the_mode_changes_for_checkpoints_from_then_on_and_outlives_a_restart():
    story = Story(ALIGNED)
    story.at_start(SetMode(mode="unaligned"))
    changed: list[int] = []

    def crash() -> None:
        changed.append(story.simulation.store.manifests.ids()[-1])
        story.simulation.kill_worker(0)

    def on_result(call) -> None:
        if call.key.endswith("1.result.json") and call.moment == "after":
            story.simulation.world.later(400, crash)

    story.simulation.observers.append(on_result)
    story.simulation.run()
    assert story.result().details["alignment_timeout_ms"] == 0
    modes = [m.mode for m in story.manifests() if m.kind is CheckpointKind.PERIODIC]
    assert modes[0] == "aligned"
    later = [m for m in story.manifests() if m.generation == Generation(2)]
    assert {m.mode for m in later if m.kind is CheckpointKind.PERIODIC} == {"unaligned"}
    story.job.check()


# --- for ever -----------------------------------------------------------------------------------

GOLDEN = Path(__file__).parent.parent / "golden/savepoint_v1"
SHOWN_BEFORE = 44


def golden_story() -> Story:
    """The job of the golden savepoint; nothing in it is described by its code."""
    story = Story(ALIGNED, job=windows_job(2), name="golden")
    story.simulation.paces = {0: 40.0, 1: 40.0}
    return story


def write_golden() -> int:
    """Only for a new format, in a new folder; returns how much output came before it."""
    story = golden_story()
    story.at_start(StopJob(target=str(GOLDEN)))
    story.simulation.run()
    return len(story.job.ledgers["out"].rows())


def test_a_savepoint_of_the_first_format_is_restored_for_ever():
    story = Story(ALIGNED, job=windows_job(2), name="restored")
    assert story.simulation.run(from_savepoint=str(GOLDEN)).outcome == "finished"
    shown, expected = normal(story.job.ledgers["out"].rows()), normal(story.job.expected["out"])
    assert len(set(shown)) == len(shown) == len(expected) - SHOWN_BEFORE
    assert set(shown) <= set(expected)
