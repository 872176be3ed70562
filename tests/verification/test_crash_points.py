"""Publish, commit and redrive, interrupted at every single operation of a store or a sink."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.errors import LaminarError
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import DELAY, Job, payments, rows_of, totals, windowed, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from verification.crash_points import (
    SINK,
    CrashPoint,
    by_drivers,
    crash_at,
    crash_points,
    simulated_crash,
    simulated_points,
)

OFTEN = CoordinatorConfig(interval_ms=50)


def small(rows: int = 6) -> tuple[Job, Simulation]:
    """A job with windows that takes a handful of checkpoints."""
    tables = payments(2, rows)
    p = Pipeline("small")
    read = p.source("in", MemorySource(tables)).watermark("ts", max_delay=DELAY)
    return simulated(with_ledgers(p, {"out": (windowed(read), totals(rows_of(tables)))}))


def steady() -> tuple[Job, Simulation]:
    """A job with output in every checkpoint."""
    tables = payments(2, 3)
    p = Pipeline("steady")
    read = p.source("in", MemorySource(tables, batch_rows=2, gap_every=1))
    return simulated(with_ledgers(p, {"out": (read.rebalance(), rows_of(tables))}))


def simulated(job: Job) -> tuple[Job, Simulation]:
    disk = SimulatedDisk()
    return job, Simulation(job.plan, parallelism=1, checkpoint=OFTEN, objects=disk)


def with_a_commit_to_redrive() -> tuple[Job, Simulation]:
    """The first driver died when a checkpoint with output was complete and not committed."""
    job, simulation = steady()

    def kill(verb: str, moment: str) -> None:
        if (verb, moment) == ("commit", "before"):
            simulation.kill_driver()
            raise ProcessKilledError("driver-1")

    job.ledgers["out"].observe = kill
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return job, simulation


def going_back() -> tuple[Job, Simulation]:
    """Let the next driver restore the first checkpoint after everything is done."""
    job, simulation = steady()
    simulation.run()
    simulation.options = replace(simulation.options, restore_id=1)
    return job, simulation


BUILDS = {"undisturbed": small, "redrive": with_a_commit_to_redrive, "withdraw": going_back}
EFFECTS = {"undisturbed": ("crash", "fail"), "redrive": ("crash",), "withdraw": ("crash",)}


def points_of(name: str) -> list[CrashPoint]:
    """Every crash; and every failure of what changes something, reads are repeated anyway."""
    found = simulated_points(BUILDS[name], by_drivers, EFFECTS[name])
    changing = ("put", "delete", SINK)
    return [p for p in found if p.effect == "crash" or any(c in p.operation for c in changing)]


PARTS = 8
"""``make test`` tries some of the parts into which the points of a job are divided."""
POINTS = {name: points_of(name) for name in BUILDS}


def exact_and_whole(job: Job, simulation: Simulation) -> None:
    """The output is that of a sequential program, and every checkpoint verifies."""
    job.check()
    store = simulation.store
    assert store.manifests.ids()
    problems = [store.verify(checkpoint_id).problem for checkpoint_id in store.manifests.ids()]
    assert set(problems) == {None}
    assert [s.problem for s in store.list_summaries() if s.problem] == []


@pytest.mark.large
@pytest.mark.sampled(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", BUILDS)
def test_a_crash_at_any_operation_leaves_a_store_from_which_recovery_is_exact(
    name: str, part: int
) -> None:
    build, points = BUILDS[name], POINTS[name]
    for point in points[part::PARTS]:
        done = simulated_crash(build, by_drivers, point)
        try:
            exact_and_whole(done.job, done.simulation)
        except AssertionError as error:
            raise AssertionError(f"{point}: {error}") from error


def not_asked_again(simulation: Simulation) -> None:
    """The next driver goes on with what the last one has decided, if it has."""
    simulation.options = replace(simulation.options, restore_id=None)


def one_older(simulation: Simulation) -> None:
    """The newest checkpoint is damaged, so recovery falls back to the one before it."""
    rot(simulation, simulation.store.manifests.ids()[-1:])


def a_fresh_start(simulation: Simulation) -> None:
    """All of them are damaged, and somebody allows to begin anew."""
    rot(simulation, simulation.store.manifests.ids())
    simulation.options = replace(simulation.options, allow_fresh=True)


def rot(simulation: Simulation, checkpoint_ids: list[int]) -> None:
    for checkpoint_id in checkpoint_ids:
        simulation.objects.put(simulation.store.paths.manifest(checkpoint_id), b"rot")
    restore_id = simulation.options.restore_id
    if restore_id in checkpoint_ids:
        simulation.options = replace(simulation.options, restore_id=None)
    if len(simulation.store.manifests.ids()) == len(checkpoint_ids):
        simulation.options = replace(simulation.options, allow_fresh=True)


@pytest.mark.sampled(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("fall_back", [not_asked_again, one_older, a_fresh_start])
@pytest.mark.parametrize("name", BUILDS)
def test_a_crash_at_any_operation_and_a_fallback_leave_the_output_exact(
    name: str, fall_back: Callable[[Simulation], None], part: int
) -> None:
    """``Job.check`` looks as a reader of the plain directory does, too: nothing is there twice."""
    about_output = (SINK, "manifest.json", "commits/", ".base.json")
    points = [p for p in POINTS[name] if p.effect == "crash"]
    wanted = [p for p in points if any(what in p.operation for what in about_output)]
    for point in wanted[part::PARTS]:
        done = simulated_crash(BUILDS[name], by_drivers, point, fall_back)
        assert list(done.job.problems()) == [], str(point)


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("undisturbed", ("manifest.json", "trigger.json", "commits/", ".base.json", "history/")),
        (
            "redrive",
            ("sink out: commit", "sink out: publish", "driver-2: put_if_absent simulated/commits/"),
        ),
        ("withdraw", ("sink out: withdraw_after", "0000000002.base.json")),
    ],
)
def test_what_is_enumerated_has_what_it_is_about(name: str, operations: tuple[str, ...]) -> None:
    for wanted in operations:
        found = {(p.moment, p.effect) for p in POINTS[name] if wanted in p.operation}
        ways = 2 * len(EFFECTS[name])
        assert len(found) == ways, f"{wanted} is not interrupted in every way"


class TestAnActOfOneProcess:
    """A toy: an index must never name an object that is not there."""

    @staticmethod
    def write_then_index(objects: ObjectStore) -> None:
        objects.put("toy/object", b"x")
        objects.put("toy/index", b"toy/object")

    @staticmethod
    def index_then_write(objects: ObjectStore) -> None:
        objects.put("toy/index", b"toy/object")
        objects.put("toy/object", b"x")

    @staticmethod
    def broken(act: Callable[[ObjectStore], None]) -> list[CrashPoint]:
        disk, found = SimulatedDisk(), []
        for point in crash_points(act, disk):
            left = disk.copy()
            crash_at(point, act, left)
            if left.get("toy/index") and left.get("toy/object") is None:
                found.append(point)
        return found

    def test_every_moment_is_one(self) -> None:
        points = crash_points(self.write_then_index, SimulatedDisk(), ("crash", "fail"))
        said = [(p.operation, p.moment, p.effect) for p in points if "index" in p.operation]
        assert said == [
            ("put toy/index", moment, effect)
            for moment in ("before", "after")
            for effect in ("crash", "fail")
        ]

    def test_a_wrong_order_is_found_and_the_right_one_is_well(self) -> None:
        assert self.broken(self.write_then_index) == []
        assert [p.number for p in self.broken(self.index_then_write)] == [2, 3]

    def test_the_disk_that_points_are_counted_on_stays_as_it_was(self) -> None:
        disk = SimulatedDisk()
        crash_points(self.write_then_index, disk)
        assert disk.list("") == []

    def test_an_act_that_ends_before_the_point_is_reported(self) -> None:
        late = CrashPoint(9, "put toy/index", "before", "crash")
        with pytest.raises(AssertionError, match="never reached"):
            crash_at(late, self.write_then_index, SimulatedDisk())

    def test_another_error_is_not_taken_for_the_crash(self) -> None:
        def fail(objects: ObjectStore) -> None:
            self.write_then_index(objects)
            raise LaminarError("code", "of its own")

        with pytest.raises(LaminarError, match="of its own"):
            crash_at(CrashPoint(9, "put toy/index", "before", "crash"), fail, SimulatedDisk())


def test_the_build_is_the_same_every_time() -> None:
    assert POINTS["undisturbed"] == points_of("undisturbed")
    _, simulation = small()
    simulation.run()
    assert any(isinstance(event, CheckpointCompleted) for event in simulation.events)
