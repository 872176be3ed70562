"""The fate of a driver that may live depends on its signs of life and on the request."""

import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.host.clock import ManualClock
from laminar_core.orchestration.launching.running_driver import (
    Ask,
    Free,
    LastDriver,
    Refuse,
    TakeOver,
    decide_settlement,
    last_driver,
    settle,
)
from laminar_core.records.actor import Actor
from laminar_core.records.commands import ControlResult
from laminar_core.records.manifest import Heartbeat
from laminar_core.resources.job_control import JobControl
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from tests.store.stores import claim, claimant, elsewhere, never, open_job

ANN = Actor("ann", run_id="0123456789")
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
        ("stop", Ask("stop", 3, f"{WHO}, is alive")),
        ("cancel", Ask("cancel", 3, f"{WHO}, is alive")),
        ("take_over", TakeOver(3, f"{WHO}, is alive")),
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
    store.claims.claim(claimant(elsewhere()), wait_ms=never)
    assert last_driver(store, ManualClock()).signs == "silent"

    class Beating(ManualClock):
        def wait_ms(self, duration_ms: float) -> None:
            super().wait_ms(duration_ms)
            now_ms = int(self.monotonic_ms()) - 1_700_000_000_000
            store.generations.beat(1, Heartbeat(sequence=now_ms, at_ms=0))

    assert last_driver(store, Beating()).signs == "beating"


class TestSettle:
    """Goal: what was decided about one driver is not done to the one that came after it."""

    @pytest.mark.parametrize("how", ["stop", "cancel"])
    def test_a_driver_that_came_meanwhile_is_not_asked(self, how) -> None:
        store = open_job()
        asked_for = claim(store)
        settlement = Ask(how, asked_for, WHO)
        claim(store)
        control = JobControl(store, ANN, _Answering(store))
        with pytest.raises(ConfigurationError, match="it is for generation 1"):
            settle(store, settlement, control, "test")
        (entry,) = ControlLog(store.objects, store.paths).entries()
        assert entry.command.generation == asked_for

    def test_a_driver_that_came_meanwhile_is_not_killed(self, monkeypatch) -> None:
        store = open_job()
        settlement = TakeOver(claim(store), WHO)
        claim(store)
        killed: list[object] = []
        monkeypatch.setattr(
            "laminar_core.orchestration.launching.running_driver.kill_session_of", killed.append
        )
        with pytest.raises(ConfigurationError, match="its newest generation is 2, not 1"):
            settle(store, settlement, JobControl(store, ANN, ManualClock()), "test")
        assert killed == []


class _Answering(ManualClock):
    """The driver of the newest generation, which refuses commands for another one."""

    def __init__(self, store: CheckpointStore) -> None:
        super().__init__()
        self._log = ControlLog(store.objects, store.paths)

    def wait_ms(self, duration_ms: float) -> None:
        super().wait_ms(duration_ms)
        result = ControlResult(
            outcome="refused", reason="it is for generation 1", generation=2, answered_at_ms=1
        )
        self._log.answer(1, result)
