"""A sink that fences the owner of a job twice belongs to a driver of another store."""

import pytest

from laminar_core.errors import ErrorCode, FencedError
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation

STEPS = ["take_over", "discard_uncommitted", "withdraw_after"]


def fenced(step: str, times: int) -> Simulation:
    """A job whose sink fences it at this step of so many starts."""
    job = windows_job(2)
    simulation, fences = Simulation(job.plan), iter(range(times))

    def observe(*call: str) -> None:
        if call == (step, "before") and next(fences, None) is not None:
            raise FencedError(ErrorCode.FENCED, "generation 4 writes here")

    job.ledgers["out"].observe = observe
    return simulation


@pytest.mark.parametrize("step", STEPS)
def test_the_owner_starts_again_once_because_a_sleeper_fences_it_once(step: str) -> None:
    simulation = fenced(step, times=1)
    simulation.run()
    assert simulation.store.claims.newest() == 2


@pytest.mark.parametrize("step", STEPS)
def test_a_copy_of_a_store_claims_no_generations_until_it_passes_the_owner(step: str) -> None:
    simulation = fenced(step, times=9)
    said = "sink out was taken over by another driver: generation 4 writes here; so it was at"
    with pytest.raises(FencedError, match=said):
        simulation.run()
    assert simulation.store.claims.newest() == 2
