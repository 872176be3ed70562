"""One worker, then three, then two, with output that waits and partitions that are added."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from verification.brokers.outgoing import DELIVERIES
from verification.brokers.place import Place
from verification.brokers.relay_driver import JsonEvent, RelayDriver
from verification.brokers.relay_run import RelayRun
from verification.servers.kafka_requests import KafkaRequest

pytestmark = [pytest.mark.early, pytest.mark.large]

WAITING = 3
"""Checkpoints whose output waits when a driver is killed."""


@pytest.fixture(scope="module")
def place(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(kafka_jars, tmp_path_factory.mktemp("rescaled-broker")) as made:
        yield made


def read_on_while_nothing_is_committed(place: Place, run: RelayRun, driver: RelayDriver) -> None:
    """Let checkpoints complete, each with rows, while the broker ends no transaction."""
    refused = place.proxy.refused
    place.proxy.refuse((KafkaRequest.END_TRANSACTION,))

    def waits(event: JsonEvent) -> bool:
        if event["event"] == "checkpoint-completed":
            run.feed()
        return event.get("uncommitted_checkpoints", 0) >= WAITING

    driver.wait_for("output that waits", waits)
    assert place.proxy.refused > refused


@pytest.mark.sampled(2)
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_other_workers_go_on_with_output_that_waits_and_with_new_partitions(
    place: Place, tmp_path: Path, delivery: str
) -> None:
    run = RelayRun(place, tmp_path, delivery)
    run.feed()
    with run.start(workers=1) as one:
        one.wait_for("a commit", lambda event: event.get("commit_ms") is not None)
        read_on_while_nothing_is_committed(place, run, one)
        one.kill()
        run.add_partition()
        run.feed()
        place.proxy.heal()
        with run.start(workers=3) as three:
            three.wait_for("the new partition", run.has_read_all)
            read_on_while_nothing_is_committed(place, run, three)
            three.kill()
            run.add_partition()
            run.feed()
            place.proxy.heal()
            with run.start(workers=2) as two:
                run.finish(two)
    assert run.verdict().is_exact, run.verdict()
    for driver, before, workers in ((three, 1, 3), (two, 3, 2)):
        started = next(e for e in driver.events if e["event"] == "generation-started")
        assert (started["restored_workers"], started["parallelism"]) == (before, workers)
