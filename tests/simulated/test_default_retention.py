"""The default policy deletes what a run has completed that announced it, and nothing older."""

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.actor import Actor
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.run import Retention
from laminar_core.testing.simulation import Simulation
from tests.simulated.simulated_jobs import never_ending_job

DEFAULT = RetentionConfig.default().model_copy(update={"keep_last": 2, "hourly": 0, "daily": 0})


def test_what_an_earlier_run_has_kept_stays_and_what_announced_it_goes():
    plan = never_ending_job().plan
    simulation = Simulation(plan, checkpoint=CoordinatorConfig(interval_ms=20))
    for number in (4, 9):
        simulation.when(CheckpointCompleted, simulation.stop, number)
    assert simulation.run().outcome == "stopped"
    store = simulation.store
    kept = store.manifests.ids()
    assert len(kept) > 3
    assert simulation.run(default_retention=DEFAULT.announcement()).outcome == "stopped"
    own = [c for c in store.manifests.ids() if c not in kept]
    assert len(own) > 3
    claims = [summary.claim for summary in store.generations.summaries()]
    assert [c is not None and c.default_retention is not None for c in claims] == [False, True]

    runner = Retention(store, DEFAULT.policy(), lambda: 0, readers=1)
    runner.apply(runner.plan(), Actor("me"), {})
    assert store.manifests.ids() == [*kept, *own[-2:]]
