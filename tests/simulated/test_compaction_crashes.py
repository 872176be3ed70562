"""Chains of changes, interrupted at every single operation on a shared segment.

Among them are all that merging makes: it reads segments and creates one. The worker dies before or
after the operation, or the operation fails, or its answer is lost.
"""

from dataclasses import replace
from itertools import count

import pytest

from laminar_core.pipeline import Pipeline
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import (
    DELAY,
    Job,
    Row,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.simulation import Simulation
from verification.crash_points import CrashPoint, simulated_crash, simulated_points

WINDOW, HOUR_US = "1 hour", 3_600_000_000
"""Open until the end, so that every checkpoint adds to the chain."""


def hourly(rows: list[Row]) -> list[Row]:
    """Return the rows, summed up in larger windows."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        start = row["start"] - row["start"] % HOUR_US
        empty = {**row, "start": start, "count": 0, "total": 0}
        total = found.setdefault((row["key"], start), empty)
        total["count"] += row["count"]
        total["total"] += row["total"]
    return list(found.values())


def build() -> tuple[Job, Simulation]:
    tables = payments(1, 40)
    p = Pipeline("chains")
    read = p.source("in", MemorySource(tables, batch_rows=2, gap_every=1))
    windows = windowed(read.watermark("ts", max_delay=DELAY), "totals", WINDOW)
    job = with_ledgers(p, {"out": (windows, hourly(totals(rows_of(tables))))})
    simulation = Simulation(
        job.plan,
        parallelism=1,
        checkpoint=CoordinatorConfig(interval_ms=10, tolerable_failures=None),
        objects=SimulatedDisk(),
    )
    simulation.options = replace(simulation.options, state=StateOptions(segments_max=2))
    return job, simulation


def on_shared_segments(call: StoreCall) -> bool:
    return "worker" in call.process and "/shared/" in call.key


@pytest.fixture(autouse=True)
def few_rows_are_bundled() -> None:
    """They are not: the points are listed before any fixture is there, from a run without."""


POINTS = [
    point
    for point in simulated_points(build, on_shared_segments, ("crash", "fail"))
    if "worker" in point.operation
]


def test_segments_are_merged_in_the_undisturbed_run() -> None:
    """Only a restore reads besides merging, and the first generation restores nothing."""
    read = {p.operation for p in POINTS if p.operation.startswith("g1-worker-0: get ")}
    created = {p.operation for p in POINTS if "put_if_absent" in p.operation}
    assert len(read) > 4
    assert len(created) > len(read) / 2
    assert {(p.moment, p.effect) for p in POINTS if p.operation in created} == {
        (moment, effect) for moment in ("before", "after") for effect in ("crash", "fail")
    }


def exact_and_whole(job: Job, simulation: Simulation) -> None:
    job.check()
    store = simulation.store
    problems = [store.verify(checkpoint_id).problem for checkpoint_id in store.manifests.ids()]
    assert set(problems) == {None}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_worker_may_die_or_be_refused_at_any_operation(point: CrashPoint) -> None:
    done = simulated_crash(build, on_shared_segments, point)
    exact_and_whole(done.job, done.simulation)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(1, sum(p.effect == "crash" for p in POINTS) + 1))
def test_the_driver_may_die_at_any_operation_of_a_worker(number: int) -> None:
    job, simulation = build()
    seen = count(1)

    def observe(call: StoreCall) -> None:
        of_interest = call.moment == "before" or call.verb == "put_if_absent"
        if on_shared_segments(call) and of_interest and next(seen) == number:
            simulation.kill_driver()

    simulation.observers.append(observe)
    simulation.run_to_end()
    assert len(simulation.drivers) > 1, "it was not reached"
    exact_and_whole(job, simulation)
