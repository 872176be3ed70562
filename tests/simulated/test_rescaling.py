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

from laminar_core.connectors.discovery import first_splits
from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.driver.restart import NoRestart
from laminar_core.errors import ErrorCode, IncompatibleStateError, LaminarError
from laminar_core.operators.progress import Progress
from laminar_core.operators.watermarks import WatermarkAssigner
from laminar_core.plan.plan import Keyed, Rebalance
from laminar_core.plan.state_options import SnapshotMode, StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId
from laminar_core.protocol.virtual_channels import VirtualChannels
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.state.rescaling import Rescaling
from laminar_core.state.splits import rows_total
from laminar_core.testing.jobs import normal
from laminar_core.testing.scenarios import SCENARIOS, windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from laminar_core.worker import deployment
from laminar_core.worker.deployment import RestoredState
from laminar_core.worker.inflight import SnapshotLimits
from laminar_core.worker.operator_chain import Chain
from laminar_core.worker.replay import ReplayOrder
from tests.simulated.test_savepoints import GOLDEN, SHOWN_BEFORE

WORKERS = (1, 2, 3, 1)
NAMES = [name for name, build in SCENARIOS.items() if build(1).rescales]
MODES = {"aligned": None, "switched": 2, "unaligned": 0}
NEXT_GENERATION = 2
SEEDS_MAX = 60
"""A rule that is not kept is noticed within so many."""


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
    job.burden.row_ms, job.burden.spend = 4.0, simulation.world.spend
    simulation.options = replace(simulation.options, state=StateOptions(snapshots))
    for parallelism in workers[:-1]:
        simulation.options = replace(simulation.options, parallelism=parallelism)
        completed = sum(isinstance(e, CheckpointCompleted) for e in simulation.events)
        simulation.when(CheckpointCompleted, simulation.kill_driver, completed + 1 + seed % 2)
        with pytest.raises(ProcessKilledError):
            simulation.run(take_over=True)
    simulation.options = replace(simulation.options, parallelism=workers[-1])
    result = simulation.run(take_over=True)
    splits = [first_splits(node.source) for node in job.plan.sources()]
    assert result.rows_in == sum(rows_total(table) or 0 for table in splits)
    assert result.rows_out == sum(len(ledger.rows()) for ledger in job.ledgers.values())
    started = [e for e in simulation.events if isinstance(e, GenerationStarted)]
    ids = [e.restored_checkpoint_id for e in started if e.restored_checkpoint_id is not None]
    assert [e.parallelism for e in started] == list(workers)
    before = [None, *(b if b != a else None for b, a in pairwise(workers))]
    assert [e.restored_workers for e in started] == before
    return Rescaled(
        result.rows_late,
        list(job.problems(result.rows_late)),
        [simulation.store.manifests.read(CheckpointId(n)) for n in ids],
    )


@cache
def ran(name: str, mode: str) -> Rescaled:
    return run(name, mode)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_from_one_to_two_to_three_to_one_the_result_is_exact(name: str, mode: str) -> None:
    rescaled = ran(name, mode)
    assert rescaled.problems == []
    assert [manifest.workers for manifest in rescaled.restored] == list(WORKERS[:-1])


@pytest.mark.large
def test_the_runs_above_are_worth_something() -> None:
    """Rows are in flight, up and down, on edges of both kinds, at the sender and the receiver."""
    found: Counter[object] = Counter()
    for name in ("windows", "mesh", "late", "copies"):
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workers", [(4, 1, 4, 3), (2, 4, 2, 2), (3, 2, 1, 4)])
@pytest.mark.parametrize("name", ["mesh", "sliding", "late", "copied"])
def test_and_for_other_numbers_of_workers(name: str, workers: tuple[int, ...]) -> None:
    assert run(name, "unaligned", workers=workers, seed=1).problems == []


def test_what_several_queues_held_may_be_in_one_and_is_not_too_much_then() -> None:
    """Else checkpoints would be given up until the job starts again, and then once more."""
    job = SCENARIOS["mesh"](4)
    simulation = Simulation(
        job.plan, parallelism=4, checkpoint=CoordinatorConfig(interval_ms=5, alignment_timeout_ms=0)
    )
    job.burden.row_ms, job.burden.spend = 4.0, simulation.world.spend
    simulation.when(CheckpointCompleted, simulation.kill_driver, 2)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    held = [e for m in manifests(simulation) for e in m.inflight_data]
    limits = SnapshotLimits(max_inflight_buffer_bytes=max(e.size_bytes for e in held))
    result = simulation.run(parallelism=1, take_over=True, limits=limits, restart=NoRestart())
    assert result.outcome == "finished"
    restored = [m for m in manifests(simulation) if m.generation == NEXT_GENERATION]
    sizes = [e.size_bytes for m in restored for e in m.inflight_data]
    assert max(sizes) > 2 * limits.max_inflight_buffer_bytes
    job.check()


def manifests(simulation: Simulation) -> list[CheckpointManifest]:
    return [simulation.store.manifests.read(n) for n in simulation.store.manifests.ids()]


@pytest.mark.parametrize("workers", [1, 3])
def test_so_can_a_savepoint_of_any_format(workers: int) -> None:
    job = windows_job(workers)
    simulation = Simulation(job.plan, parallelism=workers, job="restored")
    assert simulation.run(from_savepoint=str(GOLDEN)).outcome == "finished"
    shown = normal(job.ledgers["out"].rows())
    assert len(set(shown)) == len(shown) == len(job.expected["out"]) - SHOWN_BEFORE
    assert set(shown) <= set(normal(job.expected["out"]))


def test_a_loop_keeps_its_number_of_workers() -> None:
    job = SCENARIOS["loop"](2)
    simulation = Simulation(job.plan, checkpoint=CoordinatorConfig(interval_ms=5))
    simulation.when(CheckpointCompleted, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    with pytest.raises(
        IncompatibleStateError, match="loop rounds stay with their worker"
    ) as refused:
        simulation.run(parallelism=3, take_over=True)
    assert refused.value.code is ErrorCode.UNSUPPORTED_PARALLELISM
    simulation.run(take_over=True)
    job.check()


# What would be wrong without the rules, one by one: some of the runs has to notice.


def rows_are_not_filtered(monkeypatch) -> None:
    monkeypatch.setattr(Rescaling, "owned_by", lambda *_: lambda batch: batch)


def batches_are_not_dealt(monkeypatch) -> None:
    monkeypatch.setattr(Rescaling, "dealt_to", lambda *_: lambda batch: batch)


def what_waited_at_the_sender_is_forgotten(monkeypatch) -> None:
    def without_output(self, edge, ends, sender, receiver):
        return queued(self, edge, ends[:1], sender, receiver)

    queued = RestoredState._queued
    monkeypatch.setattr(RestoredState, "_queued", without_output)


def watermarks_of_one_old_channel_count_for_all(monkeypatch) -> None:
    monkeypatch.setattr(VirtualChannels, "take", lambda _, __, element: [element])


def new_rows_overtake_what_is_replayed(monkeypatch) -> None:
    monkeypatch.setattr(ReplayOrder, "holds", lambda *_: False)


def event_time_is_made_of_what_is_replayed(monkeypatch) -> None:
    monkeypatch.setattr(Chain, "hold_made_watermarks", lambda _: None)


def windows_that_have_fired_fire_again(monkeypatch) -> None:
    monkeypatch.setattr(Progress, "is_ahead_of", lambda *_: False)


def the_newest_event_time_goes_on(monkeypatch) -> None:
    def restore(self, snapshots):
        newest = [s.properties["newest_us"] for s in snapshots]
        self._newest_us = max((us for us in newest if us is not None), default=None)

    monkeypatch.setattr(WatermarkAssigner, "restore", restore)


def splits_are_read_in_another_order(monkeypatch) -> None:
    backwards = [("split_id", "descending")]
    monkeypatch.setattr(deployment, "in_reading_order", lambda splits: splits.sort_by(backwards))


DOWN, DOWN_TO_ONE, UP = (3, 1, 2), (2, 1), (1, 3, 2)

MUTANTS = [
    (rows_are_not_filtered, "windows", DOWN),
    (batches_are_not_dealt, "mesh", UP),
    (what_waited_at_the_sender_is_forgotten, "mesh", DOWN),
    (watermarks_of_one_old_channel_count_for_all, "windows", DOWN),
    (new_rows_overtake_what_is_replayed, "ordered", UP),
    (event_time_is_made_of_what_is_replayed, "dealt-time", DOWN_TO_ONE),
    (windows_that_have_fired_fire_again, "sliding", DOWN),
    (the_newest_event_time_goes_on, "windows", DOWN),
    (splits_are_read_in_another_order, "windows", DOWN),
]


LIKELY = {event_time_is_made_of_what_is_replayed: 80}
"""Seeds that found a mutant when others did not."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("plant", "name", "workers"), MUTANTS, ids=[plant.__name__ for plant, *_ in MUTANTS]
)
def test_without_any_of_the_rules_the_result_is_wrong(plant, name, workers, monkeypatch) -> None:
    plant(monkeypatch)
    for seed in (LIKELY.get(plant, 0), *range(SEEDS_MAX)):
        try:
            if run(name, "unaligned", workers=workers, seed=seed).problems:
                return
        except LaminarError:
            return
    raise AssertionError(f"{SEEDS_MAX} seeds did not notice")
