"""What becomes of a driver that lives, by what shows that it does and what somebody wants."""

import pytest

from laminar_core.runtime.clock import ManualClock
from laminar_core.state.manifest import Heartbeat
from orchestration.running_driver import (
    Ask,
    Free,
    LastDriver,
    Refuse,
    TakeOver,
    decide_settlement,
    last_driver,
)
from tests.storage.stores import claim, claimant, elsewhere, never, open_job

WHO = "generation 3, process 7 on far"


@pytest.mark.parametrize("wanted", ["refuse", "stop", "cancel", "take_over"])
@pytest.mark.parametrize("signs", [None, "ended", "gone", "silent"])
def test_nobody_is_asked_where_nobody_is(signs, wanted) -> None:
    """Goal: a claim needs no take-over then, so a driver that comes back at that moment wins."""
    assert isinstance(decide_settlement(LastDriver(3, signs, WHO), wanted), Free)


@pytest.mark.parametrize("signs", ["running", "beating"])
@pytest.mark.parametrize(
    ("wanted", "settlement"),
    [
        ("stop", Ask("stop", f"{WHO}, is alive")),
        ("cancel", Ask("cancel", f"{WHO}, is alive")),
        ("take_over", TakeOver(f"{WHO}, is alive")),
    ],
)
def test_a_driver_that_lives_is_dealt_with_as_wanted(signs, wanted, settlement) -> None:
    assert decide_settlement(LastDriver(3, signs, WHO), wanted) == settlement


def test_who_is_left_alone_is_named() -> None:
    refusal = decide_settlement(LastDriver(3, "running", WHO), "refuse")
    assert isinstance(refusal, Refuse)
    assert refusal.why.startswith(f"{WHO}, is alive: stop it first")


def test_a_job_that_never_ran_has_nobody() -> None:
    assert last_driver(open_job(), ManualClock()) == LastDriver(0, None, "nobody")


def test_this_very_process_runs_it() -> None:
    store = open_job()
    claim(store)
    last = last_driver(store, ManualClock())
    assert (last.generation, last.signs) == (1, "running")
    assert "started by test (to test)" in last.who


def test_a_driver_of_another_machine_is_watched() -> None:
    store = open_job()
    store.claim_generation(claimant(elsewhere()), wait_ms=never)
    assert last_driver(store, ManualClock()).signs == "silent"

    class Beating(ManualClock):
        def wait_ms(self, duration_ms: float) -> None:
            super().wait_ms(duration_ms)
            now_ms = int(self.monotonic_ms()) - 1_700_000_000_000
            store.beat(1, Heartbeat(sequence=now_ms, at_ms=0))

    assert last_driver(store, Beating()).signs == "beating"
