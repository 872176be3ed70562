"""A history sees what the store really did, even if the caller got another answer."""

from random import Random

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.history import History
from laminar_core.testing.jobs import Job
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation


def watched() -> tuple[Job, Simulation, History]:
    job, disk = windows_job(2), SimulatedDisk()
    simulation = Simulation(job.plan, checkpoint=CoordinatorConfig(interval_ms=20), objects=disk)
    return job, simulation, History(simulation, disk, job.ledgers, Random(1))


def test_writes_are_kept_in_order_and_parsed():
    _, simulation, history = watched()
    simulation.run()
    facts = history.facts()
    assert [claim.generation for _, claim in facts.claims] == [1]
    assert [base.generation for _, base in facts.bases] == [1]
    completed = simulation.store.manifests.ids()
    assert [manifest.checkpoint_id for _, manifest in facts.manifests] == completed
    assert [commit.checkpoint_id for _, commit in facts.commits] == completed
    assert [trigger.checkpoint_id for _, trigger in facts.triggers] == completed
    assert [write.order for write in history.writes] == list(range(len(history.writes)))


def test_a_write_whose_answer_is_lost_has_happened():
    _, simulation, history = watched()
    lost = []

    def lose(call):
        if call.moment == "after" and call.key.endswith("/trigger.json") and not lost:
            lost.append(call.key)
            raise StorageUnavailable(ErrorCode.STORE_IO, "lost")

    simulation.observers.append(lose)
    simulation.run()
    assert [w.key for w in history.writes if w.key in lost] == lost


def test_a_cut_is_the_store_and_the_output_at_that_moment():
    job, simulation, history = watched()
    simulation.run()
    cut = history.cut
    store = simulation.store
    twin = type(store)(cut.disk, store.job)
    assert twin.manifests.ids()[-1] == cut.checkpoint_id
    assert twin.verify(cut.checkpoint_id).problem is None
    assert cut.checkpoint_id not in twin.attempts.committed_ids()
    assert cut.checkpoint_id not in cut.ledgers["out"].commits
    assert job.ledgers["out"].commits


def test_a_deletion_of_what_a_manifest_names_is_noticed_before_it_happens():
    _, simulation, history = watched()
    simulation.run()
    manifest = simulation.store.manifests.read(simulation.store.manifests.ids()[0])
    named = simulation.store.paths.absolute(manifest.files()[0].path)
    observed = simulation._open_store("driver-1", lambda: True).objects
    observed.delete("simulated/checkpoints/0000009999/leftover")
    assert history.deletions == []
    observed.delete(named)
    assert history.deletions == [f"driver-1 deletes {named} of checkpoint 1"]
    simulation.objects.delete("simulated/checkpoints/0000000001/manifest.json")
    observed.delete(named)
    assert len(history.deletions) == 1  # Without a manifest nobody restores it.
