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
        KafkaError.TOPIC_EXCEPTION,  # The name is not possible.
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


_REMEDIES = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow this user to read the consumer group {name}",
    KafkaError.SASL_AUTHENTICATION_FAILED: "correct the user or the password",
    KafkaError._AUTHENTICATION: "correct the user or the password",  # noqa: SLF001
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "allow this user to describe and read the topic for a source, to read and write it for a "
        "sink"
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "allow this user to describe and write the transactional id {name}"
    ),
}


def remedy_of(code: int, name: str = "") -> str:
    """Return the remedy for an error; ``name`` is a group or transactional id without access."""
    remedy = _REMEDIES.get(code, "correct the credentials or the rights")
    return remedy.format(name=name).rstrip()


def reason_of(error: KafkaError, connection: KafkaConnection) -> str:
    """Return the name and the words of an error in one line, without secrets."""
    words = " ".join(connection.without_secrets(error.str()).split())
    return f"{error.name()}: {words}"


def is_denied(error: KafkaError) -> bool:
    """Whether the cluster refuses these credentials, or what they ask for."""
    return error.code() in _DENIED


def has_remedy(error: KafkaError) -> bool:
    """Whether ``problem_of`` says what to do about it."""
    return error.code() in _REMEDIES


def problem_of(
    error: KafkaError, doing: str, connection: KafkaConnection, name: str = ""
) -> LaminarError:
    """Return the error of Laminar; ``doing`` says what was attempted, as in "reading orders".

    ``name`` is the consumer group or the transactional id of the request.
    """
    why = reason_of(error, connection)
    at = f"Kafka at {connection.bootstrap}, {doing}"
    code = error.code()
    if code in _DENIED:
        return ConfigurationError(
            ErrorCode.BROKER_ACCESS_DENIED, f"{at}: {why}: {remedy_of(code, name)}"
        )
    if code in _NO_TOPIC:
        return ConfigurationError(ErrorCode.NO_SUCH_TOPIC, f"{at}: {why}: create the topic")
    if code in _FENCED:
        return FencedError(ErrorCode.FENCED, f"{at}: {why}: another driver has taken over")
    if code in _WRONG_SETTING:
        return ConfigurationError(ErrorCode.INVALID_OPTION, f"{at}: {why}: correct the settings")
    if has_remedy(error):
        why = f"{why}: {remedy_of(code)}"
    return StorageUnavailable(ErrorCode.BROKER_UNAVAILABLE, f"{at}: {why}")


@contextmanager
def explained(doing: str, connection: KafkaConnection, name: str = "") -> Iterator[None]:
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
        raise problem_of(cause, doing, connection, name) from error
