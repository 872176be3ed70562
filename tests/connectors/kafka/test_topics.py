"""A topic that is missing, and a cluster that does not answer, are different errors."""

from collections.abc import Callable

import pytest

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


def test_a_broker_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(cluster, "REQUEST_SECONDS_MAX", 2)
    with pytest.raises(StorageUnavailable, match=r"Kafka at 127\.0\.0\.1:1, describing") as down:
        topics.require_topic(KafkaConnection("127.0.0.1:1"), "payments")
    assert "\n" not in str(down.value)
