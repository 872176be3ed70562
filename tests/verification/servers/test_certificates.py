"""Clients that know the authority of a run trust its broker, and others do not."""

import socket
import ssl

import pytest

from tests.servers.secured_kafka import SecuredKafka
from verification.servers.certificates import make_certificates


def shake_hands(broker: SecuredKafka, context: ssl.SSLContext) -> None:
    host, _, port = broker.secured.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 20) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass


def test_the_authority_vouches_for_the_address(secured_kafka: SecuredKafka) -> None:
    known = ssl.create_default_context(cafile=secured_kafka.certificates.authority)
    known.verify_flags |= ssl.VERIFY_X509_STRICT  # As Python 3.13 does by itself.
    shake_hands(secured_kafka, known)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(secured_kafka, ssl.create_default_context())


def test_what_was_made_is_made_once(secured_kafka: SecuredKafka) -> None:
    made = secured_kafka.certificates
    before = made.authority.read_bytes()
    assert make_certificates("no-java", made.folder, "127.0.0.1") == made
    assert made.authority.read_bytes() == before


def test_a_java_that_fails_is_an_error_that_says_why(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="keytool failed"):
        make_certificates("false", tmp_path / "certificates", "127.0.0.1")
