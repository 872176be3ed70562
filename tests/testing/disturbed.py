"""Jobs that are disturbed again and again, and continued with other numbers of workers."""

from dataclasses import replace

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.plan.state_options import BackendName, SnapshotMode, StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import BuildJob, Job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

WORKERS = (1, 3, 3, 2, 2)


def disturbed(
    build: BuildJob,
    snapshots: SnapshotMode = "incremental",
    backend: BackendName = "memory",
    *,
    budget_ms: int | None = 0,
    seed: int = 0,
) -> Job:
    """1 to 3 to 2 workers, also the same number again; killed, stopped, and at last to its end."""
    job, objects = build(1), SimulatedDisk()
    checkpoint = CoordinatorConfig(interval_ms=4, alignment_timeout_ms=budget_ms)
    for part, parallelism in enumerate(WORKERS):
        simulation = Simulation(
            job.plan,
            checkpoint=checkpoint,
            parallelism=parallelism,
            objects=objects,
            first_driver=part + 1,
            seed=seed,
        )
        state = StateOptions(
            snapshots, segments_max=2, backend=backend, memory_bytes=64 << 20, simulated_files=True
        )
        simulation.options = replace(simulation.options, state=state)
        job.burden.row_ms, job.burden.spend = 1.0, simulation.world.spend
        killed = part != 1 and part < len(WORKERS) - 1 and backend == "memory"
        if part < len(WORKERS) - 1:
            end = simulation.kill_driver if killed else simulation.stop
            simulation.when(CheckpointCompleted, end, 2 + part % 2)
        try:
            result = simulation.run(take_over=True)
        except ProcessKilledError:
            continue
        assert result.rows_late == 0
        if result.outcome == "finished":
            assert part > 1, "too fast to be disturbed"
            break
    return job
