"""Settings of librdkafka, by which users name them, as settings of kafka-python.

Only what decides how a cluster is reached matters here. A setting of that kind that the other
client does not have is refused, because a connection without it would not be the same.
"""

import ssl
from collections.abc import Mapping
from typing import Any

from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.errors import ConfigurationError, ErrorCode

_REACH = ("security.", "ssl.", "sasl.", "enable.ssl", "enable.sasl", "https.")
"""Beginnings of the settings that decide how a cluster is reached."""
_TEXTS = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
_TLS = frozenset(
    {
        "enable.ssl.certificate.verification",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
    }
)
_OTHERS = frozenset({"security.protocol", "sasl.mechanism", "sasl.mechanisms"})
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")


def admin_settings(connection: KafkaConnection) -> dict[str, Any]:
    """Return the settings of a client, secrets included: they are not to be shown.

    Raises:
        ConfigurationError: a setting cannot be carried over, a certificate cannot be read, or a
            variable is not set (INVALID_OPTION).
    """
    given: dict[str, Any] = connection.client_settings()
    require_known(given)
    protocol = str(given.get("security.protocol", "plaintext")).upper()
    addresses = [address.strip() for address in connection.bootstrap.split(",")]
    found: dict[str, Any] = {"bootstrap_servers": addresses, "security_protocol": protocol}
    if protocol.startswith("SASL"):
        mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "GSSAPI"))
        found["sasl_mechanism"] = str(mechanism).upper()
    found |= {name: given[each] for each, name in _TEXTS.items() if each in given}
    if protocol.endswith("SSL"):
        found["ssl_context"] = _tls(given)
    return found


def require_known(settings: Mapping[str, Any]) -> None:
    """Refuse a setting that the other client cannot have.

    Raises:
        ConfigurationError: with the name of the setting, never its value.
    """
    known = _TEXTS.keys() | _TLS | _OTHERS
    for name in settings:
        if name.startswith(_REACH) and name not in known:
            raise _invalid(f"delivery='transaction' cannot use the Kafka setting {name}")
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms"))
    if mechanism is not None and str(mechanism).upper() not in _MECHANISMS:
        raise _invalid(
            f"delivery='transaction' cannot use the SASL mechanism {mechanism}: use PLAIN, "
            'SCRAM or GSSAPI, or delivery="staged"'
        )


def _tls(given: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=given.get("ssl.ca.pem"))
        if (place := given.get("ssl.ca.location")) not in (None, "probe"):
            context.load_verify_locations(place)
        if (certificate := given.get("ssl.certificate.location")) is not None:
            key = given.get("ssl.key.location")
            context.load_cert_chain(certificate, key, given.get("ssl.key.password", ""))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
        raise _invalid(f"a certificate in the settings of Kafka cannot be read: {error}") from error
    names = str(given.get("ssl.endpoint.identification.algorithm", "https")).lower()
    context.check_hostname = names == "https"
    if str(given.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
