"""Workers find what is damaged in a checkpoint, and no output is settled for it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest

from laminar_core.driver.events import CheckpointCompleted, GenerationFailed, GenerationStarted
from laminar_core.driver.restart import NoRestart
from laminar_core.errors import CorruptCheckpointError, ErrorCode, JobFailedError
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.record import FileRef
from laminar_core.store.file_scrub import DamageLog
from laminar_core.testing.aggregate_jobs import running_totals_job
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import Job
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.store.stores import damage

Kind = Literal["state", "segment", "in-flight", "positions"]


def interrupted(kind: Kind, seed: int) -> tuple[Job, Simulation]:
    """A job whose driver was killed; its newest checkpoint has a file of this kind."""
    job, checkpoint = running_totals_job(2, 100.0), CoordinatorConfig(interval_ms=40)
    if kind == "in-flight":
        job = SCENARIOS["mesh"](2)
        checkpoint = CoordinatorConfig(interval_ms=10, alignment_timeout_ms=0)
    simulation = Simulation(job.plan, seed=seed, checkpoint=checkpoint, objects=SimulatedDisk())
    if kind == "in-flight":
        job.burden.row_ms, job.burden.spend = 20.0, simulation.world.spend
    if kind == "state":
        simulation.options = replace(simulation.options, state=StateOptions(snapshots="full"))
    simulation.when(CheckpointCompleted, simulation.kill_driver, 4 if kind == "in-flight" else 6)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return job, simulation


def newest(simulation: Simulation) -> CheckpointManifest:
    return simulation.store.manifests.read(simulation.store.manifests.ids()[-1])


def own_file(simulation: Simulation, kind: Kind) -> FileRef:
    """Return a file of this kind that the newest checkpoint names, and the driver does not read.

    The driver reads the smallest one of each table, for its columns.
    """
    files = files_of(simulation, newest(simulation), kind)
    if kind == "state":
        return max(files, key=lambda file: (file.size_bytes, file.path))
    return max(files, key=lambda file: file.path)


def files_of(simulation: Simulation, manifest: CheckpointManifest, kind: Kind) -> Sequence[FileRef]:
    if kind == "in-flight":
        return manifest.inflight_data
    sources = {node.operator_id for node in simulation.plan.sources()}
    return [
        segment
        for entry in manifest.subtasks
        if (entry.operator_id in sources) == (kind == "positions")
        for segment in entry.segments
    ]


def naming(simulation: Simulation, file: FileRef) -> list[int]:
    """Return the checkpoints that name the file, newest first."""
    read, ids = simulation.store.manifests.read, simulation.store.manifests.ids()
    return [n for n in reversed(ids) if file.path in {named.path for named in read(n).files()}]


class Watched:
    """Records each change of the output, with the restored checkpoint."""

    def __init__(self, job: Job, simulation: Simulation) -> None:
        self.settled: list[tuple[str, int | None]] = []
        self._simulation = simulation
        for ledger in job.ledgers.values():
            ledger.observe = self.observe

    def observe(self, verb: str, moment: str) -> None:
        if moment == "before" and verb in ("commit", "discard_uncommitted", "withdraw_after"):
            starts = [e for e in self._simulation.events if isinstance(e, GenerationStarted)]
            self.settled.append((verb, starts[-1].restored_checkpoint_id))


def told(simulation: Simulation, kind: type) -> list:
    return [event for event in simulation.events if isinstance(event, kind)]


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("state", "rotten"),
        ("segment", "rotten"),
        ("in-flight", "rotten"),
        ("positions", "rotten"),
        ("state", "torn"),
        ("state", "missing"),
    ],
)
def test_a_damaged_file_of_any_kind_leads_to_the_checkpoint_before(kind, how) -> None:
    job, simulation = interrupted(kind, seed=3)
    file = own_file(simulation, kind)
    damaged = naming(simulation, file)
    damage(simulation.store, simulation.store.paths.absolute(file.path), how)
    watched = Watched(job, simulation)
    simulation.run(restart=NoRestart())  # It costs no restart of the strategy.
    job.check()
    found = [e for e in told(simulation, GenerationFailed) if e.code == "corrupt"]
    by_worker = how == "rotten" and kind != "positions"
    assert [(e.damaged_file.path, e.damaged_file.problem) for e in found] == (
        [(file.path, "digest")] if by_worker else []
    )
    marks = DamageLog(simulation.objects, simulation.store.paths).ids()
    assert marks == ({damaged[0]} if by_worker else set())
    start = told(simulation, GenerationStarted)[-1]
    assert start.restored_checkpoint_id == min(damaged) - 1
    assert [rejected.checkpoint_id for rejected in start.rejected] == damaged
    assert {restored for _, restored in watched.settled} == {min(damaged) - 1}


def test_one_generation_finds_the_damage_and_then_the_start_is_refused() -> None:
    """Its base is the newest checkpoint, so that counts again once its file is put back."""
    job, simulation = interrupted("state", seed=1)
    restorable_id = newest(simulation).checkpoint_id
    whole = {}
    for number in simulation.store.manifests.ids():
        files = files_of(simulation, simulation.store.manifests.read(number), "state")
        largest = max(files, key=lambda file: (file.size_bytes, file.path))
        key = simulation.store.paths.absolute(largest.path)  # The driver reads the smallest one.
        whole[key] = simulation.objects.get(key)
        damage(simulation.store, key, "rotten")
    watched = Watched(job, simulation)
    with pytest.raises(CorruptCheckpointError) as refused:
        simulation.run()
    assert refused.value.code is ErrorCode.NO_RESTORABLE_CHECKPOINT
    (start,) = told(simulation, GenerationStarted)[1:]
    assert start.restored_checkpoint_id == newest(simulation).checkpoint_id
    assert not watched.settled
    for key, data in whole.items():
        simulation.objects.delete(key)
        simulation.objects.put(key, data)
    simulation.run()
    job.check()
    start = told(simulation, GenerationStarted)[-1]
    assert start.restored_checkpoint_id == restorable_id


def test_a_driver_that_dies_before_it_marks_the_checkpoint_is_followed_by_one_that_finds_it():
    job, simulation = interrupted("state", seed=3)
    file = own_file(simulation, "state")
    damaged_id = newest(simulation).checkpoint_id
    damage(simulation.store, simulation.store.paths.absolute(file.path), "rotten")
    left = [True]

    def die(call) -> None:
        if "/damage/" in call.key and not call.key.endswith("/damage/") and left:
            left.clear()
            simulation.kill_driver()

    simulation.observers.append(die)
    simulation.run_to_end()
    job.check()
    assert not left
    assert told(simulation, GenerationStarted)[-1].restored_checkpoint_id == damaged_id - 1


def test_a_worker_that_cannot_read_what_is_whole_costs_restarts_that_are_counted() -> None:
    """Its host is ill, not the checkpoint: that is read in full, and restored again."""
    job, simulation = interrupted("state", seed=3)
    file = own_file(simulation, "state")
    key = simulation.store.paths.absolute(file.path)
    data = simulation.objects.get(key)
    assert data is not None

    def ill(call) -> None:
        if call.verb == "get" and call.key == key:
            is_worker, rotten = "worker" in call.process, b"x" + data[1:]
            simulation.objects.delete(key)
            simulation.objects.put(key, rotten if is_worker else data)

    simulation.observers.append(ill)
    with pytest.raises(JobFailedError) as failed:
        simulation.run(restart=NoRestart())
    assert failed.value.code is ErrorCode.RESTARTS_EXHAUSTED
    codes = [e.code for e in told(simulation, GenerationFailed)]
    assert codes == ["corrupt", "corrupt"]
    simulation.observers.clear()
    simulation.run()
    job.check()


def test_the_driver_reads_no_state_before_workers_do() -> None:
    job, simulation = interrupted("in-flight", seed=3)
    manifest = newest(simulation)
    sources = {node.operator_id for node in simulation.plan.sources()}
    positions = {s.path for e in manifest.subtasks if e.operator_id in sources for s in e.segments}
    big = {simulation.store.paths.absolute(f.path) for f in manifest.files()} - {
        simulation.store.paths.absolute(path) for path in positions
    }
    completed = len(told(simulation, CheckpointCompleted))
    read: dict[str, set[str]] = {"driver": set(), "worker": set()}

    def observe(call) -> None:
        starting = len(told(simulation, CheckpointCompleted)) == completed
        if starting and call.verb in ("get", "sha256") and call.key in big:
            read["worker" if "worker" in call.process else "driver"].add(call.key)

    simulation.observers.append(observe)
    simulation.run()
    job.check()
    assert read["worker"] == big
    tables = {(e.operator_id, s.table) for e in manifest.subtasks for s in e.segments}
    edges = {entry.edge for entry in manifest.inflight_data}
    assert len(read["driver"]) <= len(tables) + len(edges) < len(big)  # Columns: one file of each.
