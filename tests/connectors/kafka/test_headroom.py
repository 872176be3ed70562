"""How long positions are safe from retention: a pure search, and facts of a real broker."""

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from laminar_core.connectors.base import Forgetting, Headroom
from laminar_core.connectors.kafka import KafkaConnection, KafkaSource
from laminar_core.connectors.kafka.facts import Bounds
from laminar_core.connectors.kafka.headroom import find_headroom, rows_of_headroom, time_left_ms
from laminar_core.connectors.kafka.partitions import SPLITS_SCHEMA
from laminar_core.connectors.kafka.search import PartitionSearch
from laminar_core.host.clock import SystemClock
from tests.connectors.kafka.writing import NUMBERS, as_json, write

KEEPS_MS = 25_600
NOW_MS = 100_000
DAY_MS = 86_400_000


@pytest.mark.parametrize("message_ms", [74_400, 74_401, 80_000, 99_999, 100_000])
def test_the_time_left_is_never_too_long_and_close(message_ms: int) -> None:
    left_ms = time_left_ms(lambda time_ms: time_ms <= message_ms, KEEPS_MS, NOW_MS)
    assert 0 <= message_ms + KEEPS_MS - NOW_MS - left_ms <= KEEPS_MS / 256


def test_what_may_be_deleted_already_has_no_time_left() -> None:
    assert time_left_ms(lambda time_ms: time_ms <= 74_399, KEEPS_MS, NOW_MS) == 0


def test_all_that_was_read_leaves_the_whole_time() -> None:
    assert time_left_ms(lambda _: True, KEEPS_MS, NOW_MS) == KEEPS_MS


def test_the_partition_that_is_nearest_to_the_edge_counts() -> None:
    bounds = {("t", 0): Bounds(5, 50, 50), ("t", 1): Bounds(0, 50, 50)}
    assert rows_of_headroom({("t", 0): 12, ("t", 1): 20}, bounds) == 7
    assert rows_of_headroom({("t", 0): 3, ("t", 1): 20}, bounds) == -2, "two are gone"
    assert rows_of_headroom({}, bounds) is None


def test_a_position_without_anything_to_read_needs_nothing() -> None:
    found = find_headroom(KafkaConnection("127.0.0.1:1"), SPLITS_SCHEMA.empty_table(), NOW_MS)
    assert found == Headroom()


# --- with a real broker ---------------------------------------------------------------------------


def at(kafka: str, topic: str, offset: int):
    return PartitionSearch(KafkaConnection(kafka), [topic], {f"{topic}/0": offset}, None).step({})


def test_messages_are_safe_for_as_long_as_their_age_allows(kafka: str, new_topic) -> None:
    topic = new_topic(retention_ms=str(7 * DAY_MS))
    now_ms = SystemClock().now_ms()
    write(kafka, topic, as_json(range(3)), timestamp=now_ms - 3 * DAY_MS)
    write(kafka, topic, as_json(range(3)), timestamp=now_ms - DAY_MS)
    for offset, days in ((0, 4), (2, 4), (3, 6), (6, 7)):
        splits = at(kafka, topic, offset).splits
        found = find_headroom(KafkaConnection(kafka), splits, now_ms)
        assert found.rows == offset
        assert found.seconds == pytest.approx(days * 86_400, abs=7 * 86_400 / 256)


def test_messages_that_are_gone_leave_no_headroom(kafka: str, new_topic) -> None:
    topic = new_topic(retention_ms=str(7 * DAY_MS))
    write(kafka, topic, as_json(range(5)))
    splits = at(kafka, topic, 1).splits
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    for answer in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        answer.result()
    source = KafkaSource(kafka, topic, NUMBERS)
    assert isinstance(source, Forgetting)
    assert source.headroom(splits) == Headroom(-2, 0)


@pytest.mark.parametrize("settings", [{"retention_ms": "-1"}, {"cleanup_policy": "compact"}])
def test_a_topic_that_keeps_its_messages_sets_no_time(kafka: str, new_topic, settings) -> None:
    topic = new_topic(**settings)
    write(kafka, topic, as_json(range(5)), key=b"k")
    assert KafkaSource(kafka, topic, NUMBERS).headroom(at(kafka, topic, 2).splits) == Headroom(2)


def test_a_topic_that_is_gone_or_is_another_one_is_left_out(kafka: str, new_topic) -> None:
    topic = new_topic()
    found = at(kafka, topic, 0).splits
    other = found.set_column(
        found.schema.get_field_index("topic_id"), "topic_id", [["another one"]]
    )
    assert KafkaSource(kafka, topic, NUMBERS).headroom(other) == Headroom()
    gone = found.set_column(found.schema.get_field_index("topic"), "topic", [["not-there"]])
    assert KafkaSource(kafka, topic, NUMBERS).headroom(gone) == Headroom()
