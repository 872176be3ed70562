"""How to reach a Kafka cluster: addresses, settings of the client, and names of secrets.

Secrets are read from environment variables when a client is made, in the driver and in each worker.
They are in no description, checkpoint, audit entry or message.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

from laminar_core.arguments import require_instance
from laminar_core.errors import ConfigurationError, ErrorCode

ClientSettings = dict[str, Any]
"""Settings of confluent-kafka: texts, numbers, and functions that it calls back."""

_SECRET_WORDS = ("password", "secret", "key.pem", "credential", "sasl.oauthbearer.config")
"""Parts of names of settings whose values are never shown."""

_OF_LAMINAR = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "check.crcs",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "isolation.level",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "transactional.id",
    }
)
"""Settings on which exactly once rests, and the address, which has a field of its own."""


_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """A Kafka cluster, as a client reaches it.

    >>> KafkaConnection(
    ...     "broker-1:9093,broker-2:9093",
    ...     settings={
    ...         "security.protocol": "SASL_SSL",
    ...         "sasl.mechanism": "SCRAM-SHA-512",
    ...         "sasl.username": "laminar",
    ...         "ssl.ca.location": "/etc/ssl/brokers.pem",
    ...     },
    ...     secrets={"sasl.password": "KAFKA_PASSWORD"},
    ... ).bootstrap
    'broker-1:9093,broker-2:9093'

    Args:
        bootstrap: host and port of one or more brokers, separated by commas.
        settings: settings of librdkafka by their names, without secrets.
        secrets: settings of librdkafka whose values are in environment variables: the name of the
            setting to the name of the variable. Driver and workers need the variables alike.

    Raises:
        ConfigurationError: an address has no port; a setting is one that Laminar decides; a secret
            is in ``settings``, or in both (INVALID_OPTION).
    """

    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        require_instance(self.bootstrap, str, "bootstrap must be text such as broker:9092")
        _require_texts(self.settings, 'settings must be texts by name, as in {"client.id": "a"}')
        _require_texts(self.secrets, "secrets must be names of variables by names of settings")
        for address in self.bootstrap.split(","):
            host, _, port = address.strip().rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
                raise _invalid(f"{address!r} is no broker: write host:port, as in broker:9092")
        for name in (*self.settings, *self.secrets):
            if name in _OF_LAMINAR:
                raise _invalid(f"Laminar itself decides the Kafka setting {name}: leave it out")
        for name in self.settings:
            if _is_secret(name):
                raise _invalid(
                    f"the Kafka setting {name} is a secret: put it into an environment variable, "
                    f'and write secrets={{"{name}": "NAME_OF_THE_VARIABLE"}}'
                )
            if name in self.secrets:
                raise _invalid(f"the Kafka setting {name} is in settings and in secrets")
        # Copies, so that they do not change behind our back.
        object.__setattr__(self, "settings", dict(self.settings))
        object.__setattr__(self, "secrets", dict(self.secrets))

    @classmethod
    def of(cls, given: "str | KafkaConnection") -> Self:
        """Return the connection that was given as such, or as addresses alone."""
        if isinstance(given, str):
            return cls(given)
        if not isinstance(given, KafkaConnection):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _invalid(  # It is not shown: it may have a secret in it.
                "connection must be text such as broker:9092, or a KafkaConnection, not "
                f"{type(given).__name__}"
            )
        return cls(given.bootstrap, given.settings, given.secrets)

    def __hash__(self) -> int:
        """Allow the sources and sinks that have a connection to be keys, as all values do."""
        return hash((self.bootstrap, *sorted(self.settings.items()), *sorted(self.secrets.items())))

    def client_settings(self) -> ClientSettings:
        """Return the settings of a client, secrets included: they are not to be shown.

        Raises:
            ConfigurationError: a variable is not set on this machine (INVALID_OPTION).
        """
        found: ClientSettings = {"bootstrap.servers": self.bootstrap, **self.settings}
        for name, variable in self.secrets.items():
            if not os.environ.get(variable):
                raise _invalid(
                    f"the environment variable {variable} is not set on {os.uname().nodename}; the "
                    f"Kafka setting {name} comes from it, in the driver and in the workers"
                )
            found[name] = os.environ[variable]
        return found

    def without_secrets(self, text: str) -> str:
        """Return a message of the client with the values of secrets replaced."""
        values = (os.environ.get(variable, "") for variable in self.secrets.values())
        for value in sorted(filter(None, values), key=len, reverse=True):  # One may hold another.
            text = text.replace(value, "…")
        return text


def is_name(given: object) -> bool:
    """Return whether this can be the name of a topic."""
    return isinstance(given, str) and given != ""


def _require_texts(given: object, problem: str) -> None:
    """Accept a mapping from texts; the message shows none of it, because it may have a secret."""
    if not isinstance(given, Mapping) or not all(isinstance(n, str) for n in cast("Any", given)):
        raise _invalid(problem)


def _is_secret(name: str) -> bool:
    return any(word in name for word in _SECRET_WORDS)


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
