"""A topic that is missing, and a cluster that does not answer, are different errors."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from laminar_core.connectors.kafka import cluster, topics
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable


def test_a_topic_that_is_there_is_no_problem(kafka: str, new_topic: Callable[..., str]):
    topics.require_topic(KafkaConnection(kafka), new_topic())


def test_an_unknown_topic_is_named_and_not_created(kafka: str):
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="has no topic nowhere: create it") as unknown:
            topics.require_topic(KafkaConnection(kafka), "nowhere")
        assert unknown.value.code is ErrorCode.NO_SUCH_TOPIC


def test_a_name_that_is_not_possible_is_no_broker_that_is_silent(kafka: str):
    with pytest.raises(ConfigurationError, match="has no topic a b") as unknown:
        topics.require_topic(KafkaConnection(kafka), "a b")
    assert unknown.value.code is ErrorCode.NO_SUCH_TOPIC


class FirstInVain(cluster.Cluster):
    """Its first client waits for a broker that never answers."""

    clients = 0

    def _client(self) -> AdminClient:
        self.clients += 1
        if self.clients == 1:
            return AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        return super()._client()


def test_a_client_that_waits_in_vain_is_followed_by_another_one(
    kafka: str, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cluster, "REQUEST_SECONDS_MAX", 60)
    name = new_topic()
    with FirstInVain(KafkaConnection(kafka)) as asked:
        assert list(asked.topics([name])) == [name]
        assert asked.clients == 2


def test_a_client_that_waits_in_vain_is_given_up_soon_and_slow_brokers_get_most_of_the_time():
    attempts = cluster._attempt_seconds()
    assert sum(attempts) == cluster.REQUEST_SECONDS_MAX
    assert attempts == sorted(attempts)
    assert attempts[0] <= 1
    assert sum(attempts[-4:]) >= 0.75 * sum(attempts)


def test_a_broker_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(cluster, "REQUEST_SECONDS_MAX", 2)
    with pytest.raises(StorageUnavailable, match=r"Kafka at 127\.0\.0\.1:1, describing") as down:
        topics.require_topic(KafkaConnection("127.0.0.1:1"), "payments")
    assert "\n" not in str(down.value)
