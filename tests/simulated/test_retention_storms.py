"""Whole jobs whose old checkpoints are deleted all the time, while much else goes wrong, too."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.errors import LaminarError
from laminar_core.records.actor import Actor
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.retention.run import Retention
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.disaster_kinds import KINDS
from laminar_core.testing.disasters import Disasters
from laminar_core.testing.observed_store import ObservedStore, StoreCall
from laminar_core.testing.scenarios import SCENARIOS, windows_job
from laminar_core.testing.simulation import JOB, Simulation
from laminar_core.testing.world import ProcessKilledError

SEEDS = 6
FOUND = {71: "a driver that slept reserved ids once more that retention had forgotten"}
DELETED: Counter[str] = Counter()


class Killed(BaseException):
    """Retention is gone; nothing catches this."""


def retention(planned: Disasters) -> None:
    """Somebody deletes old checkpoints now and then; often it is killed in the middle of that."""
    dice, simulation = Random(planned.dice.random()), planned.simulation
    policy = RetentionPolicy(
        keep_last=dice.choice((1, 1, 2)),
        quarantine_min_ms=dice.choice((0, 50)),
        history_keep=dice.choice((None, 0, 3)),
    )

    def once() -> None:
        left = dice.choice((None, None, dice.randrange(60)))

        def observe(call: StoreCall) -> None:
            nonlocal left
            if call.moment == "before" and left is not None:
                left -= 1
                if left < 0:
                    raise Killed

        store = CheckpointStore(ObservedStore(simulation.objects, "retention", observe), JOB)
        runner = Retention(store, policy, lambda: int(simulation.world.now_ms), readers=1)
        try:
            runner.finish_earlier()
            result = runner.apply(runner.plan(), Actor("somebody"), {})
        except (Killed, LaminarError) as error:
            DELETED[type(error).__name__] += 1
            return
        if result is not None and planned.hit("retention", f"plan {result.number}"):
            DELETED["checkpoints"] += result.deleted_checkpoints
            DELETED["files"] += result.deleted_files

    def again() -> None:
        if planned.result is None:
            once()
            simulation.world.at_turn(simulation.world.turns + dice.randrange(1, 80), again)

    simulation.world.at_turn(dice.randrange(1, 200), again)


def require_exact(seed: int) -> None:
    drawn = draw(seed)
    # Of few checkpoints all may be damaged, and then there is nothing to recover from.
    kinds = tuple(kind for kind in drawn.disasters if kind != "corruption")
    setting = replace(drawn, disasters=(*kinds, "retention"))
    report = simulate_setting(setting, SCENARIOS[setting.scenario])
    assert report.passed, "\n".join([*map(str, report.violations), *report.trace[-60:]])


@pytest.mark.large
@pytest.mark.sampled(6)
@pytest.mark.parametrize("first", range(2, 20, SEEDS))
def test_a_job_is_exact_while_its_past_is_deleted(first: int, monkeypatch) -> None:
    monkeypatch.setitem(KINDS, "retention", retention)
    DELETED.clear()
    for seed in range(first, first + SEEDS):
        require_exact(seed)
    assert DELETED["checkpoints"] > SEEDS, DELETED


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_mended(seed: int, monkeypatch) -> None:
    monkeypatch.setitem(KINDS, "retention", retention)
    require_exact(seed)


def test_what_a_deleted_checkpoint_left_to_its_successors_survives_every_restart() -> None:
    """Goal: a start sweeps away what never completed, and not what later checkpoints name.

    Method: a stop checkpoint has its state in its own folder, and those after it build on that.
    Retention deletes the stop checkpoint, but for what they name; then drivers start again.
    """
    job = windows_job(2, pace=100)
    simulation = Simulation(job.plan, parallelism=2, seed=5)
    simulation.when(CheckpointCompleted, simulation.stop, number=2)
    assert simulation.run().outcome == "stopped"
    stopped = simulation.store.manifests.ids()[-1]
    for _ in range(2):
        count = sum(isinstance(event, CheckpointCompleted) for event in simulation.events)
        simulation.when(CheckpointCompleted, simulation.kill_driver, number=count + 1)
        with pytest.raises(ProcessKilledError):
            simulation.run()
    runner = Retention(
        simulation.store, RetentionPolicy(keep_last=1), lambda: int(simulation.world.now_ms)
    )
    runner.apply(runner.plan(), Actor("somebody"), {})
    *_, newest = kept = simulation.store.manifests.ids()
    assert stopped not in kept
    folder = f"checkpoints/{stopped:010}/"
    named = {file.path for file in simulation.store.manifests.read(newest).files()}
    assert any(folder in path for path in named), "else this test shows nothing"
    simulation.when(GenerationStarted, lambda: simulation.world.later(50, simulation.kill_driver))
    simulation.run_to_end()
    job.check()
