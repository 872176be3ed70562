"""Disasters of the whole store: it disappears for a while, for all processes or for one host.

A process finds one of these instead: no directory, as after a rename; an empty one, as below a
mount point; another store. The original comes back unchanged (ADR 0027).
"""

from collections.abc import Callable
from functools import cache

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disasters import Disasters
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.places import Place, directory, no_directory
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import JOB, Simulation

AWAY_MS = (30.0, 300.0, 3_000.0, 12_000.0, 40_000.0)
"""Shorter than the time between two heartbeats, and longer than all restarts take."""

CALLS = 150
"""Number of calls among which the one is drawn during which the store disappears."""


def store_away(planned: Disasters) -> None:
    """Rename or unmount the store's directory, and put it back later."""
    places = {"no directory": no_directory, "an empty directory": _empty}
    make = places[planned.store_dice.choice(list(places))]
    _plan_loss(planned, "store-away", make)


def store_replaced(planned: Disasters) -> None:
    """Mount another store in place of the job's, and put the original back later."""
    copies: dict[str, SimulatedDisk] = {}

    def keep_copy(call: StoreCall) -> None:
        """Keep what there was before a driver claimed anything."""
        driver, disk = call.process, planned.simulation.objects
        claims = call.verb == "put_if_absent" and call.key.startswith(f"{JOB}/generations/")
        if claims and call.moment == "before" and call.place is None and driver not in copies:
            assert isinstance(disk, SimulatedDisk), "a campaign runs on one"
            copies[driver] = disk.copy()

    def older_copy() -> Place:
        """Return a copy that has no claim of any driver that lives."""
        oldest = planned.running[0] if planned.running else None
        copy = copies.get(oldest) if oldest is not None else None
        return directory((copy or SimulatedDisk()).copy(), "an older copy")

    planned.simulation.observers.append(keep_copy)
    makes = (older_copy, older_copy, _of_another_job, _of_a_namesake)
    _plan_loss(planned, "store-replaced", planned.store_dice.choice(makes))


def store_unshared(planned: Disasters) -> None:
    """Show the host of one worker another directory for a while."""
    index = planned.store_dice.randrange(planned.simulation.options.parallelism)
    make = planned.store_dice.choice((no_directory, _empty, _of_another_job))
    _plan_loss(planned, "store-unshared", make, index)


def _plan_loss(
    planned: Disasters, kind: str, make: Callable[[], Place], worker: int | None = None
) -> None:
    """Let the store go away at some turn or in the midst of some call; draw what else happens."""
    dice, simulation = planned.store_dice, planned.simulation
    planned.may_lose_store = True
    lasts_ms = dice.choice(AWAY_MS)
    who_dies = dice.choice(("nobody", "nobody", "worker", "worker", "driver"))
    dies_after_ms = dice.choice((0.0, 5.0, 100.0))

    def lose() -> None:
        if simulation.store_is_lost or simulation.store.claims.newest() is None:
            return  # Before the first claim nobody can tell it from a job that never ran.
        place = make()
        what = place.what if worker is None else f"worker {worker} sees {place.what}"
        if not planned.hit(kind, f"{what} for {lasts_ms:g} ms, {who_dies} dies", lasts_ms):
            return
        planned.lose_store(place, worker, lasts_ms)
        if who_dies == "worker":
            simulation.world.later(dies_after_ms, lambda: simulation.kill_worker(0))
        elif who_dies == "driver":
            simulation.world.later(dies_after_ms, simulation.kill_driver)

    if dice.random() < 0.5:  # noqa: PLR2004 - as often
        simulation.world.at_turn(dice.randrange(1, planned.turns_of_a_run()), lose)
    else:
        planned.at_some_call(CALLS, lambda _: True, lambda _: lose(), dice)


def _empty() -> Place:
    return directory(SimulatedDisk())


def _of_another_job() -> Place:
    disk = SimulatedDisk()
    for key, data in _namesake().items():
        disk.put(key.replace(f"{JOB}/", "another/", 1), data)
    return directory(disk, "the store of another job")


def _of_a_namesake() -> Place:
    disk = SimulatedDisk()
    for key, data in _namesake().items():
        disk.put(key, data)
    return directory(disk, "the store of a namesake", has_the_job=True)


@cache
def _namesake() -> dict[str, bytes]:
    """Return what a job of the same name left elsewhere: two generations, and checkpoints."""
    job, disk = windows_job(2), SimulatedDisk()
    checkpoint = CoordinatorConfig(interval_ms=20)
    simulation = Simulation(job.plan, seed=1, checkpoint=checkpoint, objects=disk, first_driver=101)
    simulation.when(CheckpointCompleted, simulation.kill_driver, number=2)
    simulation.run_to_end()
    return {key: disk.get(key) or b"" for key in disk.list("")}


STORE_KINDS: dict[str, Callable[[Disasters], None]] = {
    "store-away": store_away,
    "store-replaced": store_replaced,
    "store-unshared": store_unshared,
}
"""Drawn apart from the other kinds, so that these are the same for a seed with and without.

Append new kinds at the end: ``tests/testing/test_campaign.py`` replays old seeds by position."""
