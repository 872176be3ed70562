"""Files that are lost or damaged under a running job are noticed, reported, and written again."""

from dataclasses import replace

import pytest

from laminar_core.driver.events import CheckpointCompleted, CheckpointFailed, FilesDamaged
from laminar_core.errors import StorageUnavailable
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.file_scrub import DamageLog
from laminar_core.testing.aggregate_jobs import running_totals_job
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import Job
from laminar_core.testing.simulation import Simulation

LOST_AFTER = 6
"""Checkpoints: by then each operator names files of several."""


def simulate(
    seed: int = 0, *, pace: float = 20.0, options: StateOptions | None = None, **run: object
) -> tuple[Job, Simulation]:
    job = running_totals_job(2, pace)
    checkpoint = CoordinatorConfig(interval_ms=100, tolerable_failures=3)
    simulation = Simulation(job.plan, seed=seed, checkpoint=checkpoint, objects=SimulatedDisk())
    state = options or StateOptions(segments_max=100)
    simulation.options = replace(simulation.options, state=state, **run)
    return job, simulation


def newest(simulation: Simulation) -> CheckpointManifest:
    return simulation.store.manifests.read(simulation.store.manifests.ids()[-1])


def shared_files(manifest: CheckpointManifest) -> list[str]:
    return [file.path for file in manifest.files() if file.path.startswith("shared/")]


def told(simulation: Simulation, kind: type) -> list:
    return [event for event in simulation.events if isinstance(event, kind)]


def whole(simulation: Simulation) -> list[int]:
    ids = simulation.store.manifests.ids()
    return [n for n in ids if simulation.store.verify(n).problem is None]


class Harm:
    """Does something to a shared file of the newest checkpoint, by default the oldest."""

    def __init__(
        self, simulation: Simulation, how: str, which: int = 0, number: int = LOST_AFTER
    ) -> None:
        self.simulation, self.how, self.which = simulation, how, which
        self.path = ""
        self.naming: list[int] = []
        simulation.when(CheckpointCompleted, self.do, number=number)

    def do(self) -> None:
        store = self.simulation.store
        self.path = shared_files(newest(self.simulation))[self.which]
        self.naming = [
            n for n in store.manifests.ids() if self.path in shared_files(store.manifests.read(n))
        ]
        key = store.paths.absolute(self.path)
        data = store.objects.get(key)
        if self.how == "missing":
            store.objects.delete(key)
        else:
            store.objects.put(key, data[:-1] if self.how == "length" else b"x" + data[1:])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["missing", "length"])
def test_what_a_listing_shows_costs_one_checkpoint_and_never_counts(how, seed):
    job, simulation = simulate(seed)
    harm = Harm(simulation, how)
    assert simulation.run().generations == 1
    job.check()
    (event,) = told(simulation, FilesDamaged)
    assert [(file.path, file.problem) for file in event.files] == [(harm.path, how)]
    assert (event.found_by, event.generation) == ("listing", 1)
    assert len(event.rewritten_operators) == 1
    assert set(harm.naming) <= set(event.checkpoint_ids)
    completed = set(simulation.store.manifests.ids())
    assert completed - set(whole(simulation)) == set(event.checkpoint_ids)
    assert DamageLog(simulation.objects, simulation.store.paths).ids() == set(event.checkpoint_ids)
    failed = told(simulation, CheckpointFailed)
    assert 1 <= len(failed) <= 2
    assert all(harm.path in f.reason for f in failed)
    assert max(whole(simulation)) > max(event.checkpoint_ids)


def test_before_the_scrub_every_later_checkpoint_named_the_lost_file():
    """The scrub writes the whole state, so that the operator's chain goes on without the file."""
    _, simulation = simulate()
    harm = Harm(simulation, "missing")
    simulation.run()
    later = [n for n in simulation.store.manifests.ids() if n > max(harm.naming) + 1]
    manifests = [simulation.store.manifests.read(n) for n in later]
    assert len(later) > 5
    assert all(harm.path not in shared_files(manifest) for manifest in manifests)
    grown = [len(shared_files(manifest)) for manifest in manifests]
    assert grown[0] < grown[-2], "the new chain takes increments again"


@pytest.mark.large
def test_a_digest_is_found_by_reading_in_turn():
    job, simulation = simulate(pace=5.0)
    harm = Harm(simulation, "digest")
    assert simulation.run().generations == 1
    job.check()
    (event,) = told(simulation, FilesDamaged)
    assert [(file.path, file.problem) for file in event.files] == [(harm.path, "digest")]
    assert event.found_by == "reading"
    assert len(told(simulation, CheckpointFailed)) <= 1, "one that was under way at most"
    completed = set(simulation.store.manifests.ids())
    assert completed - set(whole(simulation)) == set(event.checkpoint_ids)
    assert newest(simulation).checkpoint_id in whole(simulation)


@pytest.mark.large
def test_without_a_budget_nothing_is_read():
    _, simulation = simulate(pace=5.0, scrub_bytes_per_second=0)
    Harm(simulation, "digest")
    simulation.run()
    assert not told(simulation, FilesDamaged)


def test_what_cannot_be_merged_is_written_again_also_without_a_budget():
    options = StateOptions(segments_max=8)
    job, simulation = simulate(options=options, scrub_bytes_per_second=0)
    Harm(simulation, "digest", -1)
    assert simulation.run().generations == 1
    job.check()
    assert told(simulation, FilesDamaged)
    assert newest(simulation).checkpoint_id in whole(simulation)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("snapshots", ["incremental", "changelog"])
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_every_way_of_keeping_state_heals(snapshots, backend):
    options = StateOptions(snapshots, 30, segments_max=100, backend=backend, simulated_files=True)
    job, simulation = simulate(options=options)
    Harm(simulation, "missing")
    simulation.run()
    job.check()
    assert told(simulation, FilesDamaged)
    assert newest(simulation).checkpoint_id in whole(simulation)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(6))
def test_who_dies_while_it_heals_restores_the_newest_that_is_whole(seed):
    job, simulation = simulate(seed)
    Harm(simulation, "missing", -1)
    victim = simulation.kill_driver if seed % 2 else lambda: simulation.kill_worker(0)
    simulation.when(CheckpointFailed, lambda: simulation.world.later(seed * 3.0, victim))
    simulation.run_to_end()
    job.check()
    assert newest(simulation).checkpoint_id in whole(simulation)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_answer_that_is_lost_while_it_reports_does_not_stop_it(moment):
    job, simulation = simulate()
    Harm(simulation, "missing")
    left = [3]

    def observe(call) -> None:
        if call.moment == moment and "/damage/" in call.key and left[0]:
            left[0] -= 1
            raise StorageUnavailable("store-io", "it did not answer")

    simulation.observers.append(observe)
    simulation.run()
    job.check()
    assert len(told(simulation, FilesDamaged)) == 1
    assert newest(simulation).checkpoint_id in whole(simulation)


def test_a_host_that_loses_its_mount_completes_nothing_that_the_driver_does_not_see():
    """Workers write into the empty directory below; the listing of the driver lacks their files."""
    job, simulation = simulate()
    simulation.when(CheckpointCompleted, lambda: simulation.unmount_worker(0), number=4)
    simulation.when(CheckpointFailed, lambda: simulation.mount_worker(0), number=2)
    simulation.run()
    job.check()
    assert told(simulation, FilesDamaged)
    assert whole(simulation) == simulation.store.manifests.ids()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_copy_that_was_made_while_the_generation_ran_is_completed_anew(seed):
    """It has the claim, so it is the store; what it lacks is missed, and written again."""
    job, simulation = simulate(seed)
    copies: list[SimulatedDisk] = []
    simulation.when(CheckpointCompleted, lambda: copies.append(simulation.objects.copy()), number=3)
    simulation.when(
        CheckpointCompleted, lambda: simulation.objects.unmount(instead=copies[0]), number=8
    )
    simulation.run()
    job.check()
    assert newest(simulation).checkpoint_id in whole(simulation)


@pytest.mark.parametrize("before", ["full", "incremental"])
def test_a_chain_goes_on_from_the_folder_of_what_was_restored(before):
    """A full checkpoint, or the one that stopped the job, is what the next chain begins with."""
    job, simulation = simulate(options=StateOptions(before, segments_max=100))
    simulation.when(CheckpointCompleted, simulation.stop, number=4)
    assert simulation.run().outcome == "stopped"
    state = StateOptions("incremental", segments_max=100)
    simulation.options = replace(simulation.options, state=state)
    simulation.run()
    job.check()
    assert not told(simulation, CheckpointFailed)
    assert not told(simulation, FilesDamaged)
    folders = {
        file.path.split("/")[1]
        for file in newest(simulation).files()
        if file.path.startswith("checkpoints/")
    }
    assert whole(simulation) == simulation.store.manifests.ids()
    assert folders


def test_what_is_lost_of_the_restored_folder_is_written_again():
    job, simulation = simulate(options=StateOptions("full"))
    simulation.when(CheckpointCompleted, simulation.stop, number=4)
    simulation.run()
    (stopped,) = (e for e in told(simulation, CheckpointCompleted) if e.kind == "stop")
    state = StateOptions("incremental", segments_max=100)
    simulation.options = replace(simulation.options, state=state)

    def lose() -> None:
        manifest = simulation.store.manifests.read(stopped.checkpoint_id)
        (entry, *_) = (s for s in manifest.subtasks if s.operator_id == "running" and s.segments)
        simulation.objects.delete(simulation.store.paths.absolute(entry.segments[0].path))

    count = len(told(simulation, CheckpointCompleted))
    simulation.when(CheckpointCompleted, lose, number=count + 4)
    simulation.run()
    job.check()
    (event,) = told(simulation, FilesDamaged)
    assert event.rewritten_operators == ("running",)
    assert stopped.checkpoint_id in event.checkpoint_ids
    assert newest(simulation).checkpoint_id in whole(simulation)
