"""Users, rights and topics of the secured broker, for tests: each test makes its own."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.host.clock import SystemClock
from verification.servers.certificates import Certificates
from verification.servers.secured_listener import MECHANISM

Right = tuple[str, str, str]
"""Kind of the resource, its name, and the operation; a name that ends in ``*`` is a prefix."""

PASSWORD = "a-password-that-nobody-may-read"
VARIABLE = "LAMINAR_TEST_KAFKA_PASSWORD"
"""The environment variable that tests put the password into."""
_NOT_FOUND = 91
"""RESOURCE_NOT_FOUND."""
_ITERATIONS = 4096
_SECONDS_MAX = 30
_NUMBERS = itertools.count()


class SecuredKafka:
    """The broker, as an administrator has it."""

    def __init__(self, plain: str, secured: str, folder: Path) -> None:
        self.plain = plain
        """A listener without TLS, where everything is allowed."""
        self.secured = secured
        self.certificates = Certificates(folder / "certificates")
        self._admin = AdminClient({"bootstrap.servers": self.plain, "log_level": 0})

    def topic(self, partitions: int = 1) -> str:
        """Create a topic that no other test uses."""
        name = f"s{os.getpid()}-{next(_NUMBERS)}"
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(_SECONDS_MAX)
        return name

    def user(self, *rights: Right) -> str:
        """Create a user who may do this, and return the name once the broker knows both."""
        name = f"u{os.getpid()}-{next(_NUMBERS)}"
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        made = UserScramCredentialUpsertion(name, info, PASSWORD.encode())
        self._admin.alter_user_scram_credentials([made])[name].result(_SECONDS_MAX)
        _wait(lambda: self._has_password(name))
        self.allow(name, *rights)
        return name

    def allow(self, user: str, *rights: Right) -> None:
        """Give a user more rights, and wait until the broker knows them."""
        count = len(self._rules(user)) + len(rights)
        if rights:
            for asked in self._admin.create_acls([_rule(user, r) for r in rights]).values():
                asked.result(_SECONDS_MAX)
        _wait(lambda: len(self._rules(user)) == count)

    def connection(self, user: str, **changed: str) -> KafkaConnection:
        """Return a connection of this user, with settings changed (``_`` for ``.``)."""
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "ssl.ca.location": str(self.certificates.authority),
        }
        settings |= {name.replace("_", "."): value for name, value in changed.items()}
        return KafkaConnection(self.secured, settings, {"sasl.password": VARIABLE})

    def _has_password(self, user: str) -> bool:
        asked = self._admin.describe_user_scram_credentials([user])[user]
        try:
            return bool(asked.result(_SECONDS_MAX).scram_credential_infos)
        except KafkaException as error:
            if error.args[0].code() != _NOT_FOUND:
                raise
            return False

    def _rules(self, user: str) -> list[Any]:
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None,
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        return self._admin.describe_acls(everything).result(_SECONDS_MAX)


def _rule(user: str, right: Right) -> AclBinding:
    kind, name, operation = right
    pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
    return AclBinding(
        ResourceType[kind], name.removesuffix("*"), pattern, f"User:{user}", "*",
        AclOperation[operation], AclPermissionType.ALLOW,
    )  # fmt: skip


def _wait(condition: Callable[[], bool]) -> None:
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + 1000 * _SECONDS_MAX
    while not condition():
        assert clock.monotonic_ms() < deadline_ms, "the broker does not know the user"
        clock.wait_ms(5)
