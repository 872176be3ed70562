"""The driver finds partitions of a real broker, and notices what is not there any more."""

from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from laminar_core.connectors.kafka import KafkaConnection, KafkaSource
from laminar_core.connectors.kafka.search import PartitionSearch, find_lost_ranges
from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    IncompatibleStateError,
    StorageUnavailable,
)
from tests.connectors.gap_checks import refuse_gaps
from tests.connectors.kafka.writing import (
    NUMBERS,
    as_json,
    read_all,
    read_rows,
    transaction,
    transactional,
    until,
    write,
)


def search(kafka: str, topic: str, start="earliest", end=None) -> PartitionSearch:
    return PartitionSearch(KafkaConnection(kafka), [topic], start, end)


def offsets(found) -> list[str]:
    return found.splits.column("offset").to_pylist()


def test_a_topic_that_does_not_exist_is_named(kafka: str) -> None:
    with pytest.raises(ConfigurationError, match="no topic not-there") as caught:
        search(kafka, "not-there").step({})
    assert caught.value.code is ErrorCode.NO_SUCH_TOPIC


def test_a_broker_that_is_silent_is_no_wrong_request(monkeypatch) -> None:
    monkeypatch.setattr("laminar_core.connectors.kafka.cluster.REQUEST_SECONDS_MAX", 1)
    with pytest.raises(StorageUnavailable, match=r"Kafka at 127\.0\.0\.1:1, describing") as caught:
        search("127.0.0.1:1", "t").step({})
    assert caught.value.code is ErrorCode.BROKER_UNAVAILABLE


def test_reading_begins_where_the_source_says(kafka: str, new_topic) -> None:
    topic = new_topic(retention_ms="-1")
    write(kafka, topic, as_json(range(3)), timestamp=1_000_000)
    write(kafka, topic, as_json(range(3)), timestamp=2_000_000)
    at = datetime.fromtimestamp(1_500, tz=UTC)
    late = datetime.fromtimestamp(3_000, tz=UTC)
    starts = {"earliest": "0", "latest": "6", at: "3", late: "6"}
    assert {start: offsets(search(kafka, topic, start).step({}))[0] for start in starts} == starts
    assert offsets(search(kafka, topic, {f"{topic}/0": 4}).step({})) == ["4"]


def test_partitions_that_are_added_begin_at_their_first_message(kafka: str, new_topic) -> None:
    topic = new_topic()
    write(kafka, topic, as_json([1]))
    looking = search(kafka, topic, "latest")
    first = looking.step({})
    assert offsets(first) == ["1"]
    assert looking.step(first.state).splits.num_rows == 0
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    write(kafka, topic, as_json([2]), partition=2)
    second = until(lambda: (more := looking.step(first.state)).splits.num_rows == 2 and more)
    assert offsets(second) == ["0", "0"]
    source = KafkaSource(kafka, topic, NUMBERS, until="latest")
    reader = source.open(second.splits)
    assert read_rows(reader, 1) == [{"n": 2}]
    reader.close()


def test_a_bounded_source_ends_at_what_was_committed_when_it_started(kafka, new_topic) -> None:
    topic = new_topic()
    producer = transactional(kafka, topic)
    transaction(producer, topic, as_json(range(3)), commit=True)
    transaction(producer, topic, as_json(range(3, 6)), commit=False)
    splits = search(kafka, topic, end="latest").step({}).splits
    transaction(producer, topic, as_json(range(6, 9)), commit=True)
    assert splits.column("end_offset").to_pylist() == [8], "markers have offsets, too"
    source = KafkaSource(kafka, topic, NUMBERS, until="latest")
    assert read_all(source, splits) == [{"n": n} for n in range(3)]


def test_messages_that_retention_deleted_are_counted(kafka: str, new_topic) -> None:
    topic = new_topic()
    write(kafka, topic, as_json(range(10)))
    connection = KafkaConnection(kafka)
    splits = search(kafka, topic, {f"{topic}/0": 2}).step({}).splits
    assert find_lost_ranges(connection, splits) == []
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    for answer in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        answer.result()
    (lost,) = find_lost_ranges(connection, splits)
    assert (lost.why, lost.messages_lost_max, lost.available) == ("retention", 3, (5, 10))
    with pytest.raises(IncompatibleStateError, match="goes on at offset 2, and offsets 5 to 10"):
        refuse_gaps(KafkaSource(kafka, topic, NUMBERS), splits)


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(kafka, new_topic) -> None:
    """An old offset is valid in the new topic, and means another message."""
    topic = new_topic()
    write(kafka, topic, as_json(range(10)))
    looking = search(kafka, topic, {f"{topic}/0": 4})
    first = looking.step({})
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    admin.delete_topics([topic])[topic].result()
    (lost,) = until(lambda: find_lost_ranges(KafkaConnection(kafka), first.splits))
    assert lost.why == "gone"

    def created() -> bool:
        answer = admin.create_topics([NewTopic(topic, 1, 1)])[topic]
        return answer.exception() is None

    until(created)
    write(kafka, topic, as_json(range(10)))
    (lost,) = find_lost_ranges(KafkaConnection(kafka), first.splits)
    assert lost.why == "recreated"
    with pytest.raises(IncompatibleStateError, match="deleted and created again"):
        looking.step(first.state)
    source = KafkaSource(kafka, topic, NUMBERS)
    accepted = source.leave_out(first.state, source.gaps(first.splits))
    assert looking.step(accepted).splits.num_rows == 0, "it is not read, and ends no job"
