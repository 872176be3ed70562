"""Whether a cluster has a topic; asked before a job starts."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.problems import explained, is_denied, problem_of
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable

REQUEST_SECONDS_MAX = 20


def require_topic(connection: KafkaConnection, topic: str) -> None:
    """Return if the topic is there.

    Raises:
        ConfigurationError: it is not, or the cluster refuses the credentials.
        StorageUnavailable: no broker answered.
    """
    denied: list[KafkaError] = []

    def remember(error: KafkaError) -> None:
        if is_denied(error):
            denied.append(error)

    doing = f"looking for topic {topic}"
    settings: dict[str, Any] = {"log_level": 0, **connection.client_settings()}
    settings["error_cb"] = remember
    try:
        with explained(doing, connection):
            # All of them: to ask for one by name could create it.
            found = AdminClient(settings).list_topics(timeout=REQUEST_SECONDS_MAX).topics
    except StorageUnavailable as error:
        if denied:  # A broker that refuses looks like one that is silent.
            raise problem_of(denied[0], doing, connection) from error
        raise
    if topic not in found:
        raise ConfigurationError(
            ErrorCode.NO_SUCH_TOPIC,
            f"Kafka at {connection.bootstrap} has no topic {topic}: create it, or give the right "
            "to describe it",
        )
    if (problem := found[topic].error) is not None:
        with explained(doing, connection):
            raise KafkaException(problem)
