"""Each row of a completed checkpoint is in the topic once, wherever a committer stops or sleeps.

Against a real broker. A committer that dies leaves its transaction open, as a process that was
killed does; one that sleeps goes on when its successor is done.
"""

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from laminar_core.connectors.kafka.committer import STEPS, KafkaCommitter, KafkaStep
from laminar_core.connectors.kafka.marker_log import RENEW_MS
from laminar_core.connectors.outlook import Committable, Committed, Doubtful, Lost
from laminar_core.errors import ConfigurationError, FencedError, LaminarError, StorageUnavailable
from laminar_core.host.clock import ManualClock
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.staged import staged_files
from tests.connectors.kafka.publishing import Job, read_partitions, read_topic
from tests.connectors.kafka.writing import until
from tests.store.stores import claim_as, elsewhere, open_job


class DiedError(BaseException):
    """Ends a committer where it is."""


@pytest.fixture
def job(kafka: str, new_topic: Callable[..., str]) -> Job:
    return Job(kafka, new_topic(2))


def started(job: Job, observe: Callable[[KafkaStep], None] = lambda _: None) -> KafkaCommitter:
    """A committer of generation 1 that has published checkpoint 1."""
    committer = job.committer()
    committer.take_over(Generation(1))
    committer.discard_uncommitted(Generation(1))
    job.stage(1)
    job.publish(1, committer)
    committer._observe = observe
    return committer


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", STEPS[1:])
def test_a_committer_that_dies_at_any_step_is_followed_by_one_that_knows(job: Job, step: KafkaStep):
    def die(done: KafkaStep) -> None:
        if done == step:
            raise DiedError

    first = started(job, die)
    job.stage(2)
    with pytest.raises(DiedError):
        job.publish(2, first)
    successor = job.recover(2, upto=2)
    job.stage(3, generation=2)
    job.publish(3, successor)
    assert sorted(job.ids()) == job.expected(3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", STEPS)
def test_a_committer_that_wakes_at_any_step_changes_nothing_any_more(job: Job, step: KafkaStep):
    successors = []

    def sleep(done: KafkaStep) -> None:
        if done == step and not successors:
            successors.append(None)
            successors[0] = job.recover(2, upto=2)

    first = started(job, sleep)
    job.stage(2)
    if step == "taken-over":
        first.take_over(Generation(1))
    try:
        job.publish(2, first)
    except FencedError:
        assert step != "committed"
    job.stage(3, generation=2)
    try:
        job.publish(3, successors[0])
    except FencedError:  # The sleeper took over: the owner does it again.
        successors[0].take_over(Generation(2))
        job.publish(3, successors[0])
    assert sorted(job.ids()) == job.expected(3)


def test_a_checkpoint_is_visible_as_a_whole_or_not_at_all(job: Job):
    seen: dict[str, int] = {}

    def look(done: KafkaStep) -> None:
        seen[done] = len(read_topic(job.kafka, job.topic)) if done != "committed" else -1

    first = started(job, look)
    job.stage(2)
    job.publish(2, first)
    assert {n for step, n in seen.items() if step != "committed"} == {40}
    assert len(job.ids()) == 80


def test_what_a_later_checkpoint_carries_is_published_once(job: Job):
    committer = started(job)
    carried = job.stage(2) + job.stage(3)
    committer.commit(CheckpointId(3), job.staged[1] + carried + carried)
    committer.commit(CheckpointId(4), carried)
    assert sorted(job.ids()) == job.expected(3)
    assert committer.last_committed() == 3


def test_rows_of_one_key_stay_in_order_in_one_partition(job: Job):
    committer = started(job)
    for n in (2, 3):
        job.stage(n)
        job.publish(n, committer)
    partitions = read_partitions(job.kafka, job.topic)
    assert len(partitions) == 2
    assert all(partitions.values()), "two partitions share the rows"
    for messages in partitions.values():
        ids = [json.loads(value)["id"] for _, value in messages]
        assert ids == sorted(ids)
        assert [int(key) for key, _ in messages] == ids


class TestOutlook:
    def test_it_follows_the_marker_and_the_files(self, job: Job):
        committer = started(job)
        parts = job.stage(2)
        assert committer.outlook(CheckpointId(2), parts) == Committable()
        job.staging.delete(staged_files(parts))
        lost = committer.outlook(CheckpointId(2), parts)
        assert isinstance(lost, Lost)
        assert lost.rows == 40
        assert committer.outlook(CheckpointId(2), job.staged[1]) == Committed()

    def test_looking_before_a_take_over_fences_no_other_producer(self, job: Job):
        owner = started(job)
        parts = job.stage(2)
        stranger = job.committer()
        # It looks again each time; the broker may show the old marker for a moment.
        until(lambda: stranger.last_committed() == 1)
        assert stranger.outlook(CheckpointId(2), parts) == Committable()
        job.publish(2, owner)
        until(lambda: stranger.last_committed() == 2)

    def test_a_marker_that_was_forgotten_leaves_a_doubt(self, job: Job):
        started(job)
        parts = job.stage(2)
        forget(job)
        successor = job.committer()
        successor.take_over(Generation(2))
        doubt = successor.outlook(CheckpointId(2), parts)
        assert isinstance(doubt, Doubtful)
        assert "40 messages" in doubt.why
        assert f"laminar.payments.out-{job.topic}" in doubt.why
        # A person says that it was committed: nothing is published, and the marker is set.
        successor.commit(CheckpointId(2), ())
        assert successor.last_committed() == 2
        assert len(job.ids()) == 40

    def test_a_new_sink_is_in_no_doubt(self, job: Job):
        committer = job.committer()
        committer.take_over(Generation(1))
        assert committer.outlook(CheckpointId(1), ()) == Committed()
        assert committer.last_committed() is None
        committer.discard_uncommitted(Generation(1))
        assert committer.last_committed() is None
        assert committer.outlook(CheckpointId(1), job.stage(1)) == Committable()


def test_output_of_another_run_of_the_name_is_refused(job: Job):
    started(job)
    job.store = open_job()  # Removed, and made anew.
    claim_as(job.store, elsewhere())
    job.staging = type(job.staging)(job.store.objects, job.store.paths, job.staging.operator_id)
    successor = job.committer()
    successor.take_over(Generation(1))
    with pytest.raises(ConfigurationError, match="checkpoint 1 of another run is published"):
        successor.last_committed()


def test_a_marker_is_renewed_once_a_day(job: Job):
    started(job)
    clock = ManualClock()
    committer = KafkaCommitter(job.sink, job.staging, clock)
    committer.take_over(Generation(2))
    committer.discard_uncommitted(Generation(2))
    committer.commit(CheckpointId(7), ())
    assert committer.last_committed() == 1, "nothing to publish: no transaction"
    clock.wait_ms(RENEW_MS)
    committer.commit(CheckpointId(8), ())
    assert committer.last_committed() == 8


def test_a_commit_without_a_connection_has_to_take_over_again(job: Job):
    committer = job.committer()
    job.stage(1)
    with pytest.raises(StorageUnavailable):
        job.publish(1, committer)


def test_other_metadata_in_the_group_are_of_another_run(job: Job):
    producer = Producer({"bootstrap.servers": job.kafka, "transactional.id": f"x-{job.topic}"})
    producer.init_transactions(20)
    committer = job.committer()
    producer.begin_transaction()
    member = committer.markers.consumer().consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(job.topic, 0, 57)], member, 20)
    producer.commit_transaction(20)
    with pytest.raises(ConfigurationError, match="another run"):
        until(committer.last_committed)  # The broker may show no marker for a moment.


class TestProblems:
    def test_a_broker_that_is_not_there_is_no_end(self, job: Job):
        job.sink = type(job.sink)("127.0.0.1:1", job.topic)
        committer = job.committer()
        committer._sink.cluster.settings["socket.connection.setup.timeout.ms"] = "1000"
        with pytest.raises(StorageUnavailable) as down:
            committer.take_over(Generation(1))
        assert "\n" not in str(down.value)

    def test_a_topic_that_is_gone_ends_the_job(self, kafka: str, new_topic: Callable[..., str]):
        job = Job(kafka, new_topic(2), {"transaction_timeout": "15 seconds"})
        committer = started(job)
        admin = AdminClient({"bootstrap.servers": job.kafka})
        admin.delete_topics([job.topic])[job.topic].result(20)
        job.stage(2)
        with pytest.raises(LaminarError):
            job.publish(2, committer)


def forget(job: Job) -> None:
    """Do what a broker does after the retention of offsets."""
    admin = AdminClient({"bootstrap.servers": job.kafka})
    group = f"laminar.payments.out-{job.topic}"
    admin.delete_consumer_groups([group])[group].result(20)


def test_the_marker_says_who_wrote_it(job: Job):
    committer = started(job)
    (found,) = committer.markers.consumer().committed([TopicPartition(job.topic, 0)], timeout=20)
    said = json.loads(found.metadata)
    assert (found.offset, said["generation"], said["messages"]) == (1, 1, 40)
    assert said["run"] == job.staging.run_id()
