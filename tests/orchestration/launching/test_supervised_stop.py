"""A supervised run that is terminated asks its own driver, through the store, before any signal."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from laminar_core.driver.commands.client import ControlClient
from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.host.clock import ManualClock, SystemClock
from laminar_core.orchestration.launching.supervised_stop import REASON, StopThroughStore
from laminar_core.records.actor import Actor
from laminar_core.records.commands import ControlResult, StopJob
from laminar_core.resources import SparkDriverClient
from laminar_core.resources.drivers.events import DriverEvent
from laminar_core.store.command_log import ControlLog
from laminar_core.store.owner import this_process
from tests.orchestration.started import StartedStream
from tests.store.stores import claim

ANN = Actor("ann", run_id="0123456789")
LOG = logging.getLogger("test")
ME = this_process().pid


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[StartedStream]:
    stream = StartedStream(None, tmp_path)
    yield stream
    stream.end()


class StopRequest(StopThroughStore):
    """Records the request that was made in the end."""

    def __init__(self, stream: StartedStream, savepoints: str | None = None) -> None:
        self.clock = ManualClock()
        super().__init__(stream.store, ANN, self.clock, LOG, savepoints)
        self.log = ControlLog(stream.store.objects, stream.store.paths)

    @property
    def asked_for(self) -> list[StopJob]:
        return [entry.command.action for entry in self.log.entries()]

    def answer(self, outcome: str) -> None:
        result = ControlResult(outcome=outcome, generation=1, answered_at_ms=1)
        assert self.log.answer(1, result)


def test_the_last_checkpoint_is_enough_by_default(stream) -> None:
    claim(stream.store)
    request = StopRequest(stream)
    assert request.ask(ME)
    assert request.asked_for == [StopJob(target=None)]
    (entry,) = request.log.entries()
    command = entry.command
    assert (command.actor, command.reason, command.run_id) == ("ann", REASON, "0123456789")


def test_a_savepoint_has_a_place_of_its_own(stream, tmp_path: Path) -> None:
    claim(stream.store)
    request = StopRequest(stream, str(tmp_path / "saved"))
    request.ask(ME)
    expected = tmp_path / "saved" / "payments-20231114T221320Z-01234567"
    assert request.asked_for == [StopJob(target=str(expected))]


def test_somebody_elses_driver_is_left_alone(stream) -> None:
    """Goal: the run's driver lost the job; a stop would hit who took it over."""
    claim(stream.store)
    request = StopRequest(stream)
    assert not request.ask(ME + 1)
    assert request.asked_for == []


def test_who_takes_the_job_over_meanwhile_is_not_meant(stream, monkeypatch) -> None:
    own = claim(stream.store)
    ask = ControlClient.ask

    def after_a_take_over(*args, **command):
        claim(stream.store)
        return ask(*args, **command)

    monkeypatch.setattr(ControlClient, "ask", after_a_take_over)
    request = StopRequest(stream)
    request.ask(ME)
    (entry,) = request.log.entries()
    assert entry.command.generation == own < stream.store.claims.newest()


@pytest.mark.parametrize("outcome", ["never", "ended"])
def test_a_driver_that_does_not_have_the_job_is_not_asked(stream, outcome) -> None:
    if outcome == "ended":
        stream.store.generations.end(claim(stream.store), "failed", "")
    assert not StopRequest(stream).ask(ME)


@pytest.mark.parametrize(
    ("outcome", "refused"), [("completed", False), ("refused", True), ("failed", True)]
)
def test_a_driver_that_goes_on_needs_a_signal(stream, outcome, refused) -> None:
    claim(stream.store)
    request = StopRequest(stream)
    request.ask(ME)
    assert not request.is_refused()
    request.answer(outcome)
    assert not request.is_refused()  # The store is asked now and then.
    request.clock.wait_ms(1_000)
    assert request.is_refused() is refused


def test_a_store_that_is_down_is_no_reason_not_to_stop(stream, monkeypatch, caplog) -> None:
    def down() -> None:
        raise StorageUnavailable(ErrorCode.STORE_IO, "no answer")

    request = StopRequest(stream)
    monkeypatch.setattr(stream.store.claims, "newest", down)
    assert not request.ask(ME)
    assert "the driver cannot be stopped through its store: no answer" in caplog.text


def run_until_it_flows(
    stream: StartedStream, request: StopThroughStore | None
) -> list[DriverEvent]:
    events: list[DriverEvent] = []

    def hear(event: DriverEvent) -> None:
        events.append(event)
        if event["event"] == "data-flowing":
            raise KeyboardInterrupt

    client = SparkDriverClient(jvm_grace_s=0, request_grace_s=20, stop_grace_s=20)
    with pytest.raises(KeyboardInterrupt):
        client.run(
            stream.spec.command(stream.uri),
            log=LOG,
            on_event=hear,
            restarts_max=0,
            stop_request=request,
        )
    return events


def test_an_interrupted_run_ends_its_driver_through_the_store(stream) -> None:
    request = StopThroughStore(stream.store, ANN, SystemClock(), LOG, None)
    events = run_until_it_flows(stream, request)
    assert [event["event"] for event in events[-2:]] == ["checkpoint-completed", "finished"]
    (entry,) = ControlLog(stream.store.objects, stream.store.paths).entries()
    assert entry.result.outcome == "completed"
    assert stream.store.generations.read_end(1).outcome == "stopped"
    assert stream.living == []


def test_a_driver_that_says_no_gets_the_signal_at_once(stream) -> None:
    stream.how = "goes-on"
    request = StopThroughStore(stream.store, ANN, SystemClock(), LOG, None)
    events = run_until_it_flows(stream, request)
    (entry,) = ControlLog(stream.store.objects, stream.store.paths).entries()
    assert entry.result.outcome == "refused"
    assert events[-1]["outcome"] == "stopped"  # By SIGTERM, long before the grace was over.
