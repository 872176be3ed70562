"""A target that never takes rows back shows each row once, whatever dies, sleeps or is down.

Wherever a driver stops in the midst of a commit, its successor finds out from the marker what is
there. Mistakes that real sinks could make have to be found by the same tests.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

import pytest

from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    IncompatibleStateError,
    StorageUnavailable,
)
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import normal, payments, rows_of
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.topic import STEPS, Flaw, Topic, TopicSink, TopicStep
from laminar_core.testing.world import ProcessKilledError

OFTEN = CoordinatorConfig(interval_ms=10)
IN_A_COMMIT = STEPS[STEPS.index("commit") : STEPS.index("published") + 1]


@dataclass
class TopicJob:
    """A job that copies payments into a topic."""

    topic: Topic
    simulation: Simulation

    def problem(self) -> str | None:
        """Say how the rows that readers see differ from the expected ones; None: not at all."""
        found, expected = normal(self.topic.rows()), normal(rows_of(payments()))
        if found == expected:
            return None
        return f"{len(found)} rows, {len(set(found))} different, of {len(expected)}"

    def staged(self) -> list[str]:
        store = self.simulation.store
        return store.objects.list(store.paths.staged)


def topic_job(flaw: Flaw = "none", seed: int = 0) -> TopicJob:
    topic = Topic()
    pipeline = Pipeline("copy")
    source = MemorySource(payments(), batch_rows=8)
    pipeline.source("in", source, rows_per_second=1_000).sink("out", TopicSink(topic, "t", flaw))
    return TopicJob(topic, Simulation(pipeline.plan(), seed=seed, checkpoint=OFTEN))


def at(step: TopicStep, number: int, act: Callable[[], None]) -> Callable[[TopicStep], None]:
    """Act when this step has been done so many times, once."""
    left = [number]

    def observe(done: TopicStep) -> None:
        if done == step:
            left[0] -= 1
            if left[0] == 0:
                act()

    return observe


def die_at(job: TopicJob, step: TopicStep, number: int = 1) -> bool:
    """Kill the driver at a step; its successors end the job. Return whether it got there."""

    def die() -> None:
        job.simulation.kill_driver()
        raise ProcessKilledError(job.simulation.drivers[-1].name)

    job.topic.observe = at(step, number, die)
    job.simulation.run_to_end()
    return len(job.simulation.drivers) > 1


def sleep_at(job: TopicJob, step: TopicStep, number: int = 1) -> bool:
    """Let the driver sleep at a step until its successor is done. Return whether it got there."""
    slept = []

    def sleep() -> None:
        slept.append(step)
        sleeper = job.simulation.drivers[-1]
        sleeper.hold()
        job.simulation.run()
        sleeper.hold(held=False)

    job.topic.observe = at(step, number, sleep)
    try:
        job.simulation.run()
    except FencedError:
        assert slept
    job.simulation.world.run_until(lambda: False, 5_000)
    return bool(slept)


def interrupted(flaw: Flaw = "none") -> TopicJob:
    """A job whose driver was killed when output of three checkpoints was visible."""
    job = topic_job(flaw)
    die = at("published", 3, job.simulation.kill_driver)
    job.topic.observe = die
    with pytest.raises(ProcessKilledError):
        job.simulation.run()
    job.topic.observe = lambda _: None
    return job


def rot_newest(job: TopicJob) -> int:
    """Damage all manifests from the newest one with visible output on; return its number."""
    store, visible = job.simulation.store, job.topic.marker
    assert visible is not None
    for later in store.manifests.ids():
        if later >= visible:
            store.objects.put(store.paths.manifest(later), b"rot")
    return visible


class TestSteps:
    @pytest.mark.parametrize("number", [1, 3])
    @pytest.mark.parametrize("step", STEPS)
    def test_a_driver_that_dies_at_any_step_is_followed_by_one_that_knows(self, step, number):
        job = topic_job()
        reached = die_at(job, step, number)
        assert reached or (number > 1 and step in ("looked", "take_over", "discard_uncommitted"))
        assert job.problem() is None
        assert job.staged() == []

    @pytest.mark.parametrize("step", STEPS)
    def test_a_driver_that_wakes_at_any_step_changes_nothing_any_more(self, step):
        job = topic_job()
        assert sleep_at(job, step)
        assert job.problem() is None

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("seed", range(12))
    def test_a_target_that_does_not_answer_now_and_then_gets_each_row_once(self, seed):
        job, dice, failed = topic_job(seed=seed), Random(seed), []

        def fail(step: TopicStep) -> None:
            if step != "stage" and dice.random() < 0.2:
                failed.append(step)
                raise StorageUnavailable(ErrorCode.STORE_IO, "the broker did not answer")

        job.topic.observe = fail
        job.simulation.run()
        assert failed
        assert job.problem() is None

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("seed", range(6))
    def test_everything_at_once(self, seed):
        """Deaths, sleepers and lost answers, one after the other, at steps that the seed draws."""
        job, dice = topic_job(seed=seed), Random(seed)

        def disaster(_: TopicStep) -> None:
            dies = dice.random()
            if dies < 0.05 and len(job.simulation.drivers) < 6:
                job.simulation.kill_driver()
                raise ProcessKilledError(job.simulation.drivers[-1].name)
            if dies < 0.15:
                raise StorageUnavailable(ErrorCode.STORE_IO, "the answer was lost")

        job.topic.observe = disaster
        job.simulation.run_to_end()
        assert job.problem() is None


class TestCanaries:
    """These sinks are wrong, and the tests above would say so."""

    @pytest.mark.parametrize("flaw", ["no-marker", "marker-outside"])
    def test_a_sink_that_cannot_know_what_it_published_is_caught(self, flaw):
        caught = []
        for step in IN_A_COMMIT:
            job = topic_job(flaw)
            try:
                die_at(job, step, 2)
            except CorruptCheckpointError:  # It looks for rows that it published before.
                caught.append(step)
            else:
                caught += [step] if job.problem() else []
        assert "published" in caught

    def test_a_sink_that_looks_before_it_fences_is_caught(self):
        """The sleeper publishes between the look and the fence."""
        problems = {}
        for flaw in ("none", "looks-before-it-fences"):
            job = topic_job(flaw)
            simulation = job.simulation

            def sleep(job=job, simulation=simulation) -> None:
                sleeper = simulation.drivers[-1]
                sleeper.hold()
                awake = at("looked", 1, lambda: simulation.drivers[0].hold(held=False))
                paused = []

                def observe(step: TopicStep) -> None:
                    awake(step)
                    if step == "looked" and not paused:
                        paused.append(step)
                        job.topic.publish()  # What the sleeper was about to do.

                job.topic.observe = observe
                simulation.run()

            job.topic.observe = at("marker-set", 2, sleep)
            with suppress(FencedError, ConfigurationError):
                simulation.run()
            problems[flaw] = job.problem()
        assert problems["none"] is None
        assert problems["looks-before-it-fences"]


class TestGoingBack:
    def test_a_start_behind_visible_output_is_refused_before_anything_is_recorded(self):
        job = interrupted()
        visible = rot_newest(job)
        bases = len(job.simulation.store.generations.bases())
        with pytest.raises(IncompatibleStateError, match="readers would see rows twice") as refused:
            job.simulation.run()
        assert refused.value.code is ErrorCode.OUTPUT_REPEATED
        assert f"up to checkpoint {visible}" in str(refused.value)
        assert len(job.simulation.store.generations.bases()) == bases

    def test_a_person_may_accept_it_and_later_starts_are_not_asked_again(self):
        job = interrupted()
        visible = rot_newest(job)
        accepted = (parse_acceptance("sink-repeat:out"),)
        # It dies before it has completed anything: its successor goes back as far.
        job.topic.observe = at("discard_uncommitted", 1, job.simulation.kill_driver)
        with pytest.raises(ProcessKilledError):
            job.simulation.run(accepted=accepted)
        job.simulation.run()
        starts = [e for e in job.simulation.events if isinstance(e, GenerationStarted)]
        assert starts[-1].restored_checkpoint_id < visible
        found = normal(job.topic.rows())
        assert set(found) == set(normal(rows_of(payments())))
        assert len(found) > len(set(found)), "they were said to be seen twice"

    def test_what_was_accepted_is_in_the_audit_log(self):
        job = interrupted()
        visible = rot_newest(job)
        job.simulation.run(accepted=(parse_acceptance("sink-repeat:out"),))
        store = job.simulation.store
        records = [store.objects.get(key) for key in store.objects.list(store.paths.audit)]
        line = f"to {visible} is shown twice".encode()
        assert sum(line in record for record in records if record) == 1

    def test_what_nothing_needs_is_refused(self):
        job = interrupted()
        with pytest.raises(ConfigurationError, match="nothing needs --accept sink-repeat:out"):
            job.simulation.run(accepted=(parse_acceptance("sink-repeat:out"),))
        job.simulation.run()
        assert job.problem() is None


class TestStagedRows:
    def test_rows_of_an_uncommitted_checkpoint_that_are_gone_refuse_the_start(self):
        job = topic_job()
        job.simulation.when(CheckpointCompleted, job.simulation.kill_driver, 2)
        down = StorageUnavailable(ErrorCode.STORE_IO, "the broker did not answer")

        def fail(step: TopicStep) -> None:
            if step == "commit":
                raise down

        job.topic.observe = fail
        with pytest.raises(ProcessKilledError):
            job.simulation.run()
        job.topic.observe = lambda _: None
        staged = job.staged()
        assert staged
        for key in staged:
            job.simulation.store.objects.delete(key)
        with pytest.raises(Exception, match="restore an older checkpoint") as lost:
            job.simulation.run()
        assert lost.value.code is ErrorCode.TRANSACTION_LOST
        job.simulation.run(accepted=(parse_acceptance("sink-lost:out"),))
        found = normal(job.topic.rows())
        assert len(found) == len(set(found)) < len(rows_of(payments()))

    def test_nothing_is_left_in_the_store_after_the_job(self):
        job = topic_job()
        job.simulation.run()
        assert job.problem() is None
        assert job.staged() == []


class TestTargetDown:
    def test_commits_queue_up_to_the_limit_and_then_sources_pause(self):
        """While the target is down for long, the store does not fill with staged rows."""
        job = topic_job()
        limit, simulation = 3, job.simulation
        simulation.options = replace(
            simulation.options, checkpoint=replace(OFTEN, max_uncommitted=limit)
        )
        down_until_ms = simulation.world.now_ms + 20_000
        most, read_ms = [0], []

        def observe(step: TopicStep) -> None:
            if step == "commit" and simulation.world.now_ms < down_until_ms:
                store = simulation.store
                waiting = len(store.manifests.ids()) - len(store.attempts.committed_ids())
                most[0] = max(most[0], waiting)
                raise StorageUnavailable(ErrorCode.STORE_IO, "the broker is down")
            if step == "published":
                read_ms.append(simulation.world.now_ms)

        job.topic.observe = observe
        result = simulation.run()
        assert (result.outcome, result.generations) == ("finished", 1)
        assert most[0] == limit + 1, "one was under way when the limit was reached"
        assert min(read_ms) >= down_until_ms
        assert job.problem() is None
