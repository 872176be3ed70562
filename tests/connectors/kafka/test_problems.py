"""Errors of the client become errors of Laminar, by what the reader should do."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from laminar_core.connectors.kafka import KafkaConnection
from laminar_core.connectors.kafka.cluster import Cluster
from laminar_core.connectors.kafka.problems import explained, problem_of
from laminar_core.errors import ConfigurationError, ErrorCode, FencedError, StorageUnavailable

AT = KafkaConnection("broker:9092", secrets={"sasl.password": "LAMINAR_TEST_PASSWORD"})


@pytest.mark.parametrize(
    ("kafka_code", "kind", "code"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConfigurationError, ErrorCode.BROKER_ACCESS_DENIED),
        (KafkaError._AUTHENTICATION, ConfigurationError, ErrorCode.BROKER_ACCESS_DENIED),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ConfigurationError, ErrorCode.NO_SUCH_TOPIC),
        (KafkaError.TOPIC_EXCEPTION, ConfigurationError, ErrorCode.NO_SUCH_TOPIC),
        (KafkaError._FENCED, FencedError, ErrorCode.FENCED),
        (KafkaError._INVALID_ARG, ConfigurationError, ErrorCode.INVALID_OPTION),
        (KafkaError._TIMED_OUT, StorageUnavailable, ErrorCode.BROKER_UNAVAILABLE),
        (KafkaError._TRANSPORT, StorageUnavailable, ErrorCode.BROKER_UNAVAILABLE),
    ],
)
def test_the_class_says_what_to_do(kafka_code: int, kind: type, code: ErrorCode) -> None:
    error = problem_of(KafkaError(kafka_code), "reading orders", AT)
    assert type(error) is kind
    assert error.code is code
    assert "Kafka at broker:9092, reading orders" in str(error)


@pytest.mark.parametrize(
    ("kafka_code", "remedy"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "to describe and read the topic for a source"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "to read the consumer group laminar.a.b"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "write the transactional id laminar.a"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "correct the user or the password"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "correct the credentials or the rights"),
    ],
)
def test_a_refusal_names_the_right_that_is_missing(kafka_code: int, remedy: str) -> None:
    assert remedy in str(problem_of(KafkaError(kafka_code), "asking", AT, "laminar.a.b"))


def test_a_message_that_is_too_large_is_waited_for() -> None:
    problem = problem_of(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "publishing", AT)
    assert isinstance(problem, StorageUnavailable)
    assert str(problem).endswith("raise max.message.bytes of the topic")


def test_a_secret_in_a_message_of_the_client_is_replaced(monkeypatch) -> None:
    monkeypatch.setenv("LAMINAR_TEST_PASSWORD", "hunter2")
    with pytest.raises(StorageUnavailable) as caught, explained("opening", AT):
        raise KafkaException(KafkaError(KafkaError._FAIL, "no login with hunter2"))
    assert "no login with …" in str(caught.value)


def test_a_setting_that_does_not_exist_is_a_wrong_request() -> None:
    wrong = KafkaConnection("broker:9092", settings={"no.such.setting": "1"})
    with pytest.raises(ConfigurationError, match=r"no\.such\.setting"):
        Cluster(wrong)
