"""A generation starts from the right checkpoint, whatever its predecessors left behind."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from laminar_core.connectors.base import Discovery
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.discovery import fixed_list
from laminar_core.driver.events import CheckpointCompleted, GenerationFailed, GenerationStarted
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    StorageUnavailable,
)
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.retention_log import RetentionLog
from laminar_core.testing.jobs import Job
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.retention.retention_jobs import planned
from tests.store.stores import damage

OFTEN = CoordinatorConfig(interval_ms=10)


def interrupted(seed: int = 0, checkpoints: int = 3) -> tuple[Job, Simulation]:
    """A job whose driver was killed after so many checkpoints."""
    job = windows_job(2, pace=300)
    simulation = Simulation(job.plan, seed=seed, checkpoint=OFTEN)
    simulation.when(CheckpointCompleted, simulation.kill_driver, checkpoints)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return job, simulation


def interrupted_commit() -> tuple[Job, Simulation]:
    """A job whose driver died in a commit: a part was visible, and nothing was listed."""
    job = windows_job(2, pace=300)
    simulation = Simulation(job.plan, checkpoint=OFTEN)
    ledger = job.ledgers["out"]

    def die(*call: str) -> None:
        if call == ("publish", "after") and len(simulation.store.manifests.ids()) > 1:
            ledger.observe = lambda *_: None
            simulation.kill_driver()
            raise ProcessKilledError("driver-1")

    ledger.observe = die
    with pytest.raises(ProcessKilledError):
        simulation.run()
    assert ledger.visible.keys() - {n for names in ledger.commits.values() for n in names}
    return job, simulation


def finished() -> tuple[Job, Simulation]:
    """A job that ran to its end and left more than three checkpoints."""
    job = windows_job(2, pace=300)
    simulation = Simulation(job.plan, checkpoint=OFTEN)
    simulation.run()
    assert len(simulation.store.manifests.ids()) > 3
    return job, simulation


def started(simulation: Simulation) -> GenerationStarted:
    """The newest start."""
    return [e for e in simulation.events if isinstance(e, GenerationStarted)][-1]


def rot_from(simulation: Simulation, checkpoint_id: int) -> None:
    """Damage the manifests of this checkpoint and all later ones."""
    for later in simulation.store.manifests.ids():
        if later >= checkpoint_id:
            simulation.objects.put(simulation.store.paths.manifest(later), b"rot")


def once(matches: Callable[[StoreCall], bool], action: Callable[[], None]):
    """Observe the store; act at the first call that matches."""
    done = False

    def observe(call: StoreCall) -> None:
        nonlocal done
        if not done and matches(call):
            done = True
            action()

    return observe


class TestFallingBack:
    @pytest.mark.parametrize("how", ["missing", "torn", "rotten", "longer"])
    def test_damaged_state_is_not_restored_and_that_is_said(self, how):
        job, simulation = interrupted()
        newest = simulation.store.manifests.ids()[-1]
        state = next(
            entry.segments[0].path
            for entry in simulation.store.manifests.read(newest).subtasks
            if entry.segments
        )
        damage(simulation.store, f"simulated/{state}", how)
        simulation.run()
        start = started(simulation)
        assert start.restored_checkpoint_id == newest - 1
        assert [rejected.checkpoint_id for rejected in start.rejected] == [newest]
        assert state in start.rejected[0].reason
        job.check()

    def test_output_that_was_committed_beyond_is_taken_back(self):
        job, simulation = finished()
        ledger = job.ledgers["out"]
        newest, rows = max(ledger.commits), len(ledger.rows())
        rot_from(simulation, newest)
        seen = []
        ledger.observe = lambda *call: seen.append((call, len(ledger.rows())))
        simulation.run()
        assert started(simulation).restored_checkpoint_id == newest - 1
        assert dict(seen)["withdraw_after", "after"] < rows
        job.check()

    def test_a_driver_asleep_before_it_withdraws_spares_its_successors_output(self):
        job, simulation = finished()
        ledger, taken_over = job.ledgers["out"], []
        rot_from(simulation, max(ledger.commits))

        def observe(verb: str, moment: str) -> None:
            if (verb, moment) == ("withdraw_after", "before") and not taken_over:
                taken_over.append(True)
                simulation.run(take_over=True)  # The sleeper's coordinator still beats.

        ledger.observe = observe
        with pytest.raises(FencedError):
            simulation.run()
        assert taken_over
        job.check()

    def test_nothing_usable_is_refused_and_nothing_withdrawn(self):
        job, simulation = interrupted()
        rot_from(simulation, 1)
        rows = job.ledgers["out"].rows()
        with pytest.raises(CorruptCheckpointError, match="can be restored") as refused:
            simulation.run()
        assert refused.value.code is ErrorCode.NO_RESTORABLE_CHECKPOINT
        assert job.ledgers["out"].rows() == rows


class TestSettlingOutput:
    def test_a_decided_commit_is_made_by_the_next_generation(self):
        job, simulation = interrupted()
        ledger = job.ledgers["out"]
        newest = simulation.store.manifests.ids()[-1]
        simulation.objects.delete(simulation.store.paths.commit(newest))
        for name in ledger.commits.pop(newest, []):
            ledger.staged[name] = ledger.visible.pop(name)
        simulation.run()
        assert started(simulation).restored_checkpoint_id == newest
        assert newest in simulation.store.attempts.committed_ids()
        job.check()

    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize(
        "verb", ["commit", "last_committed", "withdraw_after", "discard_uncommitted"]
    )
    def test_a_sink_that_fails_while_output_is_settled_costs_an_attempt(self, verb, moment):
        job, simulation = finished()
        ledger = job.ledgers["out"]
        if verb == "commit":
            newest = simulation.store.manifests.ids()[-1]
            simulation.objects.delete(simulation.store.paths.commit(newest))
        if verb == "withdraw_after":
            rot_from(simulation, max(ledger.commits))
        failures = [(verb, moment)]

        def fail(*call: str) -> None:
            if call in failures:
                failures.remove(call)
                raise StorageUnavailable(ErrorCode.STORE_IO, "the sink did not answer")

        ledger.observe = fail
        result = simulation.run()
        assert (result.outcome, failures) == ("finished", [])
        failed = [e.reason for e in simulation.events if isinstance(e, GenerationFailed)]
        assert failed == ["the sink did not answer"]
        job.check()

    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize("verb", ["discard_uncommitted", "withdraw_after"])
    def test_a_driver_that_dies_while_it_goes_back_is_followed_by_one_that_goes_back(
        self, verb, moment
    ):
        """Otherwise output is withdrawn that the successor, at a newer checkpoint, never repeats.

        So the base is recorded before the output is settled.
        """
        job, simulation = finished()
        ledger = job.ledgers["out"]

        def die(*call: str) -> None:
            if call == (verb, moment):
                ledger.observe = lambda *_: None
                simulation.kill_driver()
                raise ProcessKilledError("driver-2")

        ledger.observe = die
        with pytest.raises(ProcessKilledError):
            simulation.run(restore_id=2)
        simulation.run()  # Nobody asks for checkpoint 2 again.
        assert started(simulation).restored_checkpoint_id == 2
        job.check()

    def test_rows_that_an_interrupted_commit_made_visible_are_taken_back_with_its_checkpoint(self):
        job, simulation = interrupted_commit()
        newest = simulation.store.manifests.ids()[-1]
        rot_from(simulation, newest)
        simulation.run()
        assert started(simulation).restored_checkpoint_id == newest - 1
        job.check()

    def test_what_nobody_committed_is_discarded(self):
        job, simulation = interrupted()
        simulation.run()
        generations = {name.partition("-")[0] for name in job.ledgers["out"].staged}
        assert generations <= {"2"}

    def test_decided_output_that_is_gone_is_refused_and_an_older_one_makes_it_again(self):
        job, simulation = finished()
        ledger, store = job.ledgers["out"], simulation.store
        newest = max(ledger.commits)
        assert newest > 1, "there must be something to go back to"
        store.objects.delete(store.paths.commit(newest))
        for name in ledger.commits.pop(newest):
            del ledger.visible[name]
        bases = len(store.generations.bases())
        with pytest.raises(CorruptCheckpointError, match="is gone: restore an older") as lost:
            simulation.run(restore_id=newest)
        assert lost.value.code is ErrorCode.TRANSACTION_LOST
        assert len(store.generations.bases()) == bases  # Refused before anything was decided.
        simulation.run(restore_id=newest - 1)
        job.check()


class TestBeingDeleted:
    """Who decides: ``store.retention_log``."""

    @pytest.mark.parametrize(("is_decided", "behind"), [(True, 1), (False, 0)])
    def test_what_a_decided_plan_deletes_is_passed_over_and_others_are_given_up(
        self, is_decided, behind
    ):
        job, simulation = interrupted()
        newest = simulation.store.manifests.ids()[-1]
        plans = RetentionLog(simulation.objects, simulation.store.paths)
        plans.create_plan(planned(1, newest))
        if is_decided:
            plans.decide(1, "apply", "somebody", "tidiness", (newest,))
        simulation.run()
        assert started(simulation).restored_checkpoint_id == newest - behind
        said = plans.decide(1, "apply", "somebody", "tidiness")
        assert said.verdict == ("apply" if is_decided else "abandon")
        job.check()


class TestFencing:
    def test_a_driver_asleep_after_its_choice_starts_nothing(self):
        """Its base cannot be recorded any more: the successor closed it."""
        job, simulation = interrupted()
        simulation.observers.append(
            once(
                lambda call: call.verb == "put_if_absent" and call.key.endswith("2.base.json"),
                simulation.run,
            )
        )
        with pytest.raises(FencedError):
            simulation.run()
        assert simulation.store.generations.read_base(2).closed_by == 3
        assert [e.generation for e in simulation.events if isinstance(e, GenerationStarted)] == [
            1,
            3,
        ]
        job.check()

    def test_a_driver_asleep_before_its_first_output_check_is_not_told_of_another_run(self):
        job = windows_job(2, pace=300)
        simulation = Simulation(job.plan)
        asleep = []

        def observe(verb: str, moment: str) -> None:
            if (verb, moment) == ("last_committed", "before") and not asleep:
                asleep.append(True)
                simulation.run()

        job.ledgers["out"].observe = observe
        with pytest.raises(FencedError):
            simulation.run()
        job.check()


@dataclass(frozen=True)
class CountingRowsOnly(MemorySource):
    """A source of the time when every offset was a number of rows."""

    def discovery(self) -> Discovery:
        return fixed_list(lambda: pa.table({"split_id": [0], "next_row": [0], "row_count": [1]}))


def test_a_source_without_the_columns_of_a_split_is_refused_and_they_are_named():
    p = Pipeline("simulated")
    p.source("in", CountingRowsOnly([pa.table({"n": [1]})])).sink("out", CollectSink())
    with pytest.raises(
        ConfigurationError, match=r"source in: .* without split \(string\)"
    ) as caught:
        Simulation(p.plan()).run()
    assert caught.value.code is ErrorCode.WRONG_SCHEMA
    assert "split_table()" in str(caught.value)


class TestRestoreRequests:
    def test_going_back_to_a_checkpoint_takes_back_what_came_after_it(self):
        job, simulation = finished()
        simulation.run(restore_id=2)
        assert started(simulation).restored_checkpoint_id == 2
        job.check()

    def test_going_back_before_a_time(self):
        job, simulation = finished()
        third = simulation.store.manifests.read(3)
        simulation.run(restore_before_ms=third.completed_at_ms)
        assert started(simulation).restored_checkpoint_id == 2
        job.check()

    def test_there_never_was_one_and_none_can_be_read_are_different_answers(self):
        job = windows_job(2)
        with pytest.raises(ConfigurationError) as never:
            Simulation(job.plan).run(restore_id=1)
        _, simulation = finished()
        rot_from(simulation, 1)
        with pytest.raises(CorruptCheckpointError) as unreadable:
            simulation.run(restore_before_ms=2**42)
        answers = [(e.value.code, e.value.exit_code) for e in (never, unreadable)]
        assert answers == [
            (ErrorCode.NO_SUCH_CHECKPOINT, 2),
            (ErrorCode.NO_RESTORABLE_CHECKPOINT, 5),
        ]

    def test_a_restore_request_binds_until_a_generation_has_started_from_it(self):
        job, simulation = finished()

        def fail() -> None:
            raise StorageUnavailable(ErrorCode.STORE_IO, "it did not answer")

        simulation.observers.append(once(lambda call: "manifest" in call.key, fail))
        simulation.run(restore_id=2)
        assert started(simulation).restored_checkpoint_id == 2
        failed = [e.reason for e in simulation.events if isinstance(e, GenerationFailed)]
        assert failed == ["it did not answer"]
        job.check()

    def test_a_restart_continues_from_the_newest_checkpoint_whatever_was_requested(self):
        job, simulation = finished()
        newest = sum(isinstance(e, CheckpointCompleted) for e in simulation.events)
        simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0), number=newest + 1)
        simulation.run(restore_id=1)
        starts = [e for e in simulation.events if isinstance(e, GenerationStarted)]
        restored = [event.restored_checkpoint_id for event in starts]
        assert restored[:2] == [None, 1]
        assert restored[2] > newest
        job.check()

    def test_starting_fresh_withdraws_the_output(self):
        job, simulation = finished()
        rot_from(simulation, 1)
        simulation.run(allow_fresh=True)
        assert started(simulation).restored_checkpoint_id is None
        job.check()
