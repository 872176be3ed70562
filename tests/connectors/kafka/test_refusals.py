"""A broker that throttles, or takes no rows: the job waits, says why, and its output is exact."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.protocol.types import CheckpointId, Generation
from tests.connectors.kafka.publishing import Job, read_topic, rows
from tests.connectors.kafka.test_transaction_writer import Subtask
from tests.connectors.kafka.writing import until
from verification.brokers.outgoing import DELIVERIES
from verification.brokers.place import Place
from verification.brokers.relay_run import RelayRun
from verification.servers.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.early, pytest.mark.large]

LIMITS = {"producer_byte_rate": 1_000, "consumer_byte_rate": 5_000}
QUICK = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""Settings with which a broker that is gone is missed soon."""
REMEDY = "raise max.message.bytes of the topic"
WAITING_MAX = 3
GIVES_UP = {"message.timeout.ms": 5_000}


@pytest.fixture(scope="module")
def place(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(kafka_jars, tmp_path_factory.mktemp("refusing-broker")) as made:
        yield made


class Throttled:
    """A client whose name the broker may throttle; it counts how often the broker says so."""

    def __init__(self, place: Place, client_id: str) -> None:
        self.count = 0
        self._topic = place.new_topic(1)
        settings: dict[str, Any] = {
            "bootstrap.servers": place.broker.bootstrap,
            "client.id": client_id,
            "throttle_cb": self._note,
        }
        self._producer = Producer(settings)

    def is_told(self) -> bool:
        self._producer.produce(self._topic, b"x")
        self._producer.flush(60)
        return self.count > 0

    def _note(self, event: object) -> None:
        del event
        self.count += 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_job_that_is_throttled_goes_on_slowly(
    place: Place, tmp_path: Path, delivery: str
) -> None:
    client_id = f"throttled-{delivery}"
    place.broker.limit_client(client_id, LIMITS)
    run = RelayRun(place, tmp_path, delivery, rows=800, client={"client.id": client_id})
    run.feed()
    with run.start() as driver:
        driver.wait_for("reading all rows", run.has_read_all)
        until(Throttled(place, client_id).is_told)
        driver.stop()
        assert not [each for each in driver.events if each["event"] == "generation-failed"]
    assert run.verdict().is_exact


def test_rows_that_the_topic_does_not_take_wait_until_it_does(place: Place, tmp_path: Path) -> None:
    run = RelayRun(place, tmp_path, "staged", max_uncommitted=WAITING_MAX)
    run.feed()
    with run.start() as driver:
        driver.wait_for("a commit", _has_committed)
        place.configure(run.sink, max_message_bytes="100")
        run.feed()
        delayed = driver.wait_for("a delay", lambda event: event["event"] == "commit-delayed")
        assert "\n" not in delayed["reason"]
        assert delayed["reason"].endswith(REMEDY)
        driver.wait_for(
            "as many waiting as may",
            lambda event: event.get("uncommitted_checkpoints", 0) >= WAITING_MAX,
        )
        unread = run.total
        run.feed()
        for _ in range(3):  # Reports of progress: the sources pause meanwhile.
            found = driver.wait_for("progress", lambda event: event["event"] == "progress")
            assert found["rows_in"] == unread
            assert found["uncommitted_checkpoints"] <= WAITING_MAX + 1
        place.configure(run.sink, max_message_bytes="1000000")
        run.finish(driver)
        told = [each for each in driver.events if each["event"] == "commit-delayed"]
        assert len({each["checkpoint_id"] for each in told}) == len(told), "once for each"
        assert not [each for each in driver.events if each["event"] == "generation-failed"]
    assert run.verdict().is_exact


def test_a_topic_without_enough_replicas_is_waited_for(kafka_jars: Path, tmp_path: Path) -> None:
    with Place(kafka_jars, tmp_path / "first", QUICK) as place:
        # All other topics are made before there is a second broker, and stay on the first one.
        Job(place.broker.bootstrap, place.new_topic(1)).recover(1, 0)
        run = RelayRun(
            place, tmp_path, "staged", sink="replicated", max_uncommitted=WAITING_MAX,
            transaction_timeout="5 seconds",
        )  # fmt: skip
        run.feed()
        second = KafkaBroker(kafka_jars, tmp_path / "second", settings=QUICK, beside=place.broker)
        with second:
            create_replicated(place, run.sink)
            wait_without_replicas(run, second)
        assert run.verdict().is_exact


def wait_without_replicas(run: RelayRun, second: KafkaBroker) -> None:
    with run.start() as driver:
        driver.wait_for("a commit", _has_committed)
        second.kill()
        run.feed()
        delayed = driver.wait_for("a delay", lambda event: event["event"] == "commit-delayed")
        assert "min.insync.replicas" in delayed["reason"], delayed
        driver.wait_for(
            "as many waiting as may",
            lambda event: event.get("uncommitted_checkpoints", 0) >= WAITING_MAX,
        )
        run.feed()
        second.start()
        run.finish(driver)
        assert not [each for each in driver.events if each["event"] == "generation-failed"]


def create_replicated(place: Place, name: str) -> None:
    """Create a topic whose rows two brokers must have."""
    until(lambda: len(place.admin.list_topics(timeout=10).brokers) == 2)
    replicas = [[1, 2], [1, 2]]
    new = NewTopic(name, 2, replica_assignment=replicas, config={"min.insync.replicas": "2"})

    def is_there() -> bool:
        try:
            place.admin.create_topics([new])[name].result(30)
        except KafkaException as error:
            code = error.args[0].code()
            # While brokers join, the client may close the connection on which it asked.
            if code not in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError._DESTROY_BROKER):
                raise
            return code == KafkaError.TOPIC_ALREADY_EXISTS
        return True

    until(is_there)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_broker_whose_disk_is_full_ends_and_the_job_goes_on_when_it_is_back(
    kafka_jars: Path, tmp_path: Path, delivery: str
) -> None:
    with Place(kafka_jars, tmp_path / "full") as place:
        run, other = RelayRun(place, tmp_path, delivery), place.new_topic(1)
        run.feed()
        with run.start() as driver:
            driver.wait_for("a commit", _has_committed)
            place.broker.fill_disk()
            producer = Producer({"bootstrap.servers": place.broker.bootstrap, **GIVES_UP})
            producer.produce(other, b"is not written")
            assert producer.flush(60) == 0
            place.broker.wait()
            place.broker.start()
            run.feed()
            run.finish(driver)
        assert run.verdict().is_exact
        assert not any(place.read(other).values())


def test_a_checkpoint_that_the_topic_does_not_take_is_published_whole_or_not(place: Place) -> None:
    job = Job(place.broker.bootstrap, place.new_topic(2))
    committer = job.recover(1, 0)
    place.configure(job.topic, max_message_bytes="100")
    job.stage(1)
    with pytest.raises(StorageUnavailable, match=REMEDY) as refused:
        job.publish(1, committer)
    assert refused.value.code is ErrorCode.BROKER_UNAVAILABLE
    assert "\n" not in str(refused.value)
    assert read_topic(job.kafka, job.topic) == []
    place.configure(job.topic, max_message_bytes="1000000")
    committer.take_over(Generation(1))
    job.publish(1, committer)
    assert sorted(job.ids()) == job.expected(1)


def test_a_worker_whose_rows_the_topic_does_not_take_says_so(place: Place) -> None:
    topic = place.new_topic(1)
    subtask = Subtask(place.broker.bootstrap, topic)
    place.configure(topic, max_message_bytes="100")
    subtask.writer.write(rows(0))
    with pytest.raises(StorageUnavailable, match=REMEDY) as refused:
        subtask.writer.snapshot(CheckpointId(1))()
    assert f"writing to {topic}: MSG_SIZE_TOO_LARGE" in str(refused.value)
    assert "\n" not in str(refused.value)


def _has_committed(event: dict[str, Any]) -> bool:
    return event["event"] == "progress" and event["commit_ms"] is not None
