"""The sensor reads what a dead driver has left, warns once, and changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.sensors.cursor import AlertCursor
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.sink_transactions.sensor import build_sink_transactions_sensor
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.sensors.streams import OBJECTS, STREAM, Job, Ticks, stored_job
from tests.store.stores import commit

MINUTE_MS = 60_000


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.claim_by_the_dead()
    return job


@pytest.fixture
def ticks(job: Job) -> Iterator[Ticks]:
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = build_sink_transactions_sensor({STREAM: AlertPolicy()}, job.clock)
        yield Ticks(instance, sensor, job.store.objects.uri)


def told(ticks: Ticks) -> tuple[str, ...]:
    return AlertCursor.read(ticks.cursor).told


def offer(job: Job, name: str, minutes: int) -> dict[str, str | int]:
    return {"name": name, "expires_at_ms": job.clock.now_ms() + minutes * MINUTE_MS}


def test_a_driver_that_died_before_its_commit_is_warned_of(job: Job, ticks: Ticks) -> None:
    assert ticks.tick() == "no output waits for its commit"
    job.complete(offered=(offer(job, "b", 20), offer(job, "a", 14)))
    line = "output of 1 checkpoints waits: output of checkpoint 1 in sink sink expires in 14.0"
    assert ticks.tick().startswith(line)
    assert told(ticks) == ()
    job.clock.wait_ms(10 * MINUTE_MS)
    for _ in range(2):
        assert "expires in 4.0 minutes" in ticks.tick()
        assert told(ticks) == ("sink-transactions:sink:1:expiring",)
    job.clock.wait_ms(5 * MINUTE_MS)
    assert "expired 1.0 minutes ago" in ticks.tick()
    assert told(ticks) == ("sink-transactions:sink:1:expired",)
    commit(job.store, 1, job.generation)
    assert ticks.tick() == "no output waits for its commit"
    assert told(ticks) == ()


def test_output_that_a_later_checkpoint_carries_is_committed(job: Job, ticks: Ticks) -> None:
    first = offer(job, "a", 3)
    job.complete(offered=(first,))
    commit(job.store, 1, job.generation)
    job.complete(offered=(first, offer(job, "b", 14)))
    assert "checkpoint 2 in sink sink expires in 14.0 minutes" in ticks.tick()


def test_the_first_expiry_of_a_sink_counts(job: Job, ticks: Ticks) -> None:
    first = offer(job, "a", 14)
    job.complete(offered=(first,))
    job.clock.wait_ms(MINUTE_MS)
    job.complete(offered=(first, offer(job, "b", 14)))
    line = ticks.tick()
    assert line.startswith("output of 2 checkpoints waits: output of checkpoint 1 ")
    assert "expires in 13.0 minutes" in line


def test_committables_of_an_older_version_do_not_say_when(job: Job, ticks: Ticks) -> None:
    job.complete(offered=({"name": "a"},))
    assert ticks.tick() == "output of 1 checkpoints waits: nothing says that it expires"


def test_a_store_that_is_down_skips_the_tick(
    job: Job, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.complete()
    down = FaultyStore(job.store.objects, Fault("get", Effect.FAIL, last=100))
    monkeypatch.setitem(OBJECTS, ticks.uri, down)
    ticks.cursor = before = '{"told": ["x"]}'
    assert ticks.tick().startswith("no facts: ")
    assert ticks.cursor == before
