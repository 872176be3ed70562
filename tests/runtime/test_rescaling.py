"""1 to 2 to 3 to 1 workers in the middle of a run: the exact result, from checkpoints of any kind.

Drivers are killed, so that each part goes on from a checkpoint of the mode that is tested, and not
from the aligned one that a job is stopped with. Mixed with everything else that can happen:
``laminar simulate``, kind ``rescale``.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product

import pytest

from laminar_core.checkpoint.coordinator_config import CoordinatorConfig
from laminar_core.checkpoint.types import CheckpointId
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.runtime.events import CheckpointCompleted, GenerationStarted
from laminar_core.runtime.plan import Keyed, Rebalance
from laminar_core.runtime.state_options import SnapshotMode, StateOptions
from laminar_core.state.manifest import CheckpointManifest
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

WORKERS = (1, 2, 3, 1)
NAMES = [name for name, build in SCENARIOS.items() if build(1).rescales]
MODES = {"aligned": None, "switched": 2, "unaligned": 0}
TURNS = 150
"""A worker takes so many before the driver is killed; at least one checkpoint completes then."""


@dataclass(frozen=True)
class Rescaled:
    """A job that has come to its end, and what its parts went on from."""

    rows_late: int
    problems: list[str]
    restored: list[CheckpointManifest]


def run(
    name: str, mode: str, snapshots: SnapshotMode = "incremental", workers=WORKERS, seed: int = 0
) -> Rescaled:
    """Each part but the last ends as soon as another checkpoint has completed, or later."""
    job = SCENARIOS[name](workers[0])
    simulation = Simulation(
        job.plan,
        seed=seed,
        checkpoint=CoordinatorConfig(
            interval_ms=5, alignment_timeout_ms=MODES[mode], tolerable_failures=None
        ),
    )
    job.burden.row_ms, job.burden.spend = 1.0, simulation.world.spend
    simulation.options = replace(simulation.options, state=StateOptions(snapshots))
    for parallelism in workers[:-1]:
        simulation.options = replace(simulation.options, parallelism=parallelism)
        completed = sum(isinstance(e, CheckpointCompleted) for e in simulation.events)
        simulation.when(CheckpointCompleted, simulation.kill_driver, completed + 1 + seed % 2)
        with pytest.raises(ProcessKilledError):
            simulation.run(take_over=True)
    simulation.options = replace(simulation.options, parallelism=workers[-1])
    result = simulation.run(take_over=True)
    started = [e for e in simulation.events if isinstance(e, GenerationStarted)]
    ids = [e.restored_checkpoint_id for e in started if e.restored_checkpoint_id is not None]
    assert [e.parallelism for e in started] == list(workers)
    return Rescaled(
        result.rows_late,
        list(job.problems(result.rows_late)),
        [simulation.store.read_manifest(CheckpointId(n)) for n in ids],
    )


@cache
def ran(name: str, mode: str) -> Rescaled:
    return run(name, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_from_one_to_two_to_three_to_one_the_result_is_exact(name: str, mode: str) -> None:
    rescaled = ran(name, mode)
    assert rescaled.problems == []
    assert [manifest.workers for manifest in rescaled.restored] == list(WORKERS[:-1])


def test_the_runs_above_are_worth_something() -> None:
    """Rows are in flight, up and down, on edges of both kinds, at the sender and the receiver."""
    found: Counter[object] = Counter()
    for name in NAMES:
        plan = SCENARIOS[name](1).plan
        by = {
            (e.upstream, e.downstream, plan.input_index(e)): type(e.partitioning)
            for e in plan.edges
        }
        for mode in MODES:
            restored = ran(name, mode).restored
            found[mode] += sum(manifest.mode == mode for manifest in restored)
            for before, after in pairwise([*restored, None]):
                workers = WORKERS[-1] if after is None else after.workers
                for entry in before.inflight_data:
                    edge = entry.edge
                    partitioning = by[edge.upstream, edge.downstream, edge.input_index]
                    found[workers > before.workers, partitioning] += entry.row_count
                    found[entry.direction] += entry.row_count
    kinds = [*MODES, *product((True, False), (Keyed, Rebalance)), "input", "output"]
    assert all(found[kind] for kind in kinds), found
    assert any(ran("late", mode).rows_late for mode in MODES)


@pytest.mark.parametrize("snapshots", ["full", "changelog"])
@pytest.mark.parametrize("name", ["windows", "sliding", "copies"])
def test_so_is_it_however_state_is_written(name: str, snapshots: SnapshotMode) -> None:
    assert run(name, "unaligned", snapshots).problems == []


@pytest.mark.parametrize("workers", [(4, 1, 4, 3), (2, 4, 2, 2), (3, 2, 1, 4)])
@pytest.mark.parametrize("name", ["mesh", "sliding", "late", "copied"])
def test_and_for_other_numbers_of_workers(name: str, workers: tuple[int, ...]) -> None:
    assert run(name, "unaligned", workers=workers, seed=1).problems == []


def test_a_loop_keeps_its_number_of_workers() -> None:
    job = SCENARIOS["loop"](2)
    simulation = Simulation(job.plan, checkpoint=CoordinatorConfig(interval_ms=5))
    simulation.when(CheckpointCompleted, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    with pytest.raises(
        IncompatibleStateError, match="loop rounds stays with its worker"
    ) as refused:
        simulation.run(parallelism=3, take_over=True)
    assert refused.value.code is ErrorCode.UNSUPPORTED_PARALLELISM
    simulation.run(take_over=True)
    job.check()
