"""The sensor around the observer: what it says when there is nothing, or no store."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.sensors.observer.sensor import build_checkpoint_reporter
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore, Verb
from tests.sensors.observed import Daemon
from tests.sensors.streams import OBJECTS, STREAM, Job, stored_job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return stored_job(tmp_path)


@pytest.fixture
def daemon(job: Job) -> Iterator[Daemon]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Daemon(
            instance, build_checkpoint_reporter({STREAM: AlertPolicy()}), job.store.objects.uri
        )


def test_it_has_the_name_that_histories_hang_on() -> None:
    sensor = build_checkpoint_reporter({STREAM: AlertPolicy()})
    assert sensor.name == "laminar_checkpoint_reporter"
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING


def test_a_job_that_never_ran_is_no_failure(daemon: Daemon) -> None:
    assert daemon.tick().startswith(f"{STREAM} never ran in ")


def test_a_store_that_is_no_store_is_a_skipped_tick_with_the_reason(daemon: Daemon) -> None:
    daemon.uri = "gopher://hole"
    assert "'gopher://hole' is no store that can be opened" in daemon.tick()


@pytest.mark.parametrize("verb", ["children", "get"])
@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8])
def test_a_store_that_is_down_is_a_skipped_tick_that_loses_nothing(
    job: Job, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, verb: Verb, nth: int
) -> None:
    """Goal: whichever request is not answered, the next tick finds everything."""
    job.claim()
    job.complete()
    daemon.tick()
    before = daemon.cursor
    job.complete()
    fault = Fault(verb, Effect.FAIL, first=nth, last=nth)
    monkeypatch.setitem(OBJECTS, daemon.uri, FaultyStore(job.store.objects, fault))
    said = daemon.tick()
    if said.startswith("the store did not answer: "):
        assert daemon.cursor == before
    else:
        assert nth > 3, said  # So many requests it does not make.
    daemon.ticks()
    assert daemon.completed() == daemon.partitions() == [1, 2]
