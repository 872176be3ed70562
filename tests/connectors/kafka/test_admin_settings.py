"""Settings for librdkafka reach the other client whole, or are refused by name."""

import ssl

import pytest

from laminar_core.connectors.kafka.admin_settings import admin_settings
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.errors import ConfigurationError


def test_a_plain_connection_needs_no_more_than_addresses():
    found = admin_settings(KafkaConnection("a:1, b:2", {"socket.timeout.ms": "1000"}))
    assert found == {"bootstrap_servers": ["a:1", "b:2"], "security_protocol": "PLAINTEXT"}


def test_sasl_and_tls_are_carried_over(monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    settings = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "laminar",
    }
    found = admin_settings(KafkaConnection("a:1", settings, {"sasl.password": "KAFKA_PASSWORD"}))
    context = found.pop("ssl_context")
    assert found == {
        "bootstrap_servers": ["a:1"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "laminar",
        "sasl_plain_password": "hunter2",
    }
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize(
    ("setting", "checks_names", "verifies"),
    [
        ({"ssl.endpoint.identification.algorithm": "none"}, False, True),
        ({"enable.ssl.certificate.verification": "false"}, False, False),
    ],
)
def test_checks_of_certificates_are_left_out_only_on_request(setting, checks_names, verifies):
    context = admin_settings(KafkaConnection("a:1", {"security.protocol": "ssl", **setting}))[
        "ssl_context"
    ]
    assert context.check_hostname is checks_names
    assert (context.verify_mode is ssl.CERT_REQUIRED) is verifies


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ssl.keystore.location": "x"}, "cannot use the Kafka setting ssl.keystore.location"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "cannot use the SASL mechanism OAUTHBEARER"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nowhere"}, "cannot be read"),
    ],
)
def test_what_cannot_be_carried_over_is_refused_by_name(settings, problem):
    with pytest.raises(ConfigurationError, match=problem):
        admin_settings(KafkaConnection("a:1", settings))
