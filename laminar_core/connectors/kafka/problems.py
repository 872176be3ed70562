"""Errors of the Kafka client as errors of Laminar: one class for each reaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    FencedError,
    LaminarError,
    StorageUnavailable,
)

_DENIED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - its public name has an underscore
    }
)
_NO_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)
_FENCED = frozenset(
    {
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError._FENCED,  # noqa: SLF001
    }
)
_WRONG_SETTING = frozenset(
    {
        KafkaError._INVALID_ARG,  # noqa: SLF001
        KafkaError._CRIT_SYS_RESOURCE,  # noqa: SLF001
        KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001
    }
)


def is_denied(error: KafkaError) -> bool:
    """Whether the cluster refuses these credentials, or what they ask for."""
    return error.code() in _DENIED


def problem_of(error: KafkaError, doing: str, connection: KafkaConnection) -> LaminarError:
    """Return the error of Laminar; ``doing`` says what was attempted, as in "reading orders"."""
    why = f"{error.name()}: {connection.without_secrets(error.str())}"
    at = f"Kafka at {connection.bootstrap}, {doing}"
    code = error.code()
    if code in _DENIED:
        return ConfigurationError(
            ErrorCode.BROKER_ACCESS_DENIED, f"{at}: {why}: correct the credentials or the rights"
        )
    if code in _NO_TOPIC:
        return ConfigurationError(ErrorCode.NO_SUCH_TOPIC, f"{at}: {why}: create the topic")
    if code in _FENCED:
        return FencedError(ErrorCode.FENCED, f"{at}: {why}: another driver has taken over")
    if code in _WRONG_SETTING:
        return ConfigurationError(ErrorCode.INVALID_OPTION, f"{at}: {why}: correct the settings")
    return StorageUnavailable(ErrorCode.BROKER_UNAVAILABLE, f"{at}: {why}")


@contextmanager
def explained(doing: str, connection: KafkaConnection) -> Iterator[None]:
    """Raise what the client raises inside as an error of Laminar.

    Raises:
        ConfigurationError: rights, topic or settings.
        FencedError: another producer has the transactional id.
        StorageUnavailable: anything else; mostly, no broker answers.
    """
    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        if not isinstance(cause, KafkaError):
            raise
        raise problem_of(cause, doing, connection) from error
