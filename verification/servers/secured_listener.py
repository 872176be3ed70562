"""Settings of a broker that takes encrypted connections, asks who is there, and has rights.

Clients of the listener ``SECURED`` log in with SCRAM-SHA-512, and may do what rules allow them and
nothing else. Who comes through another listener is anonymous and may do everything: the broker
itself, and tests that make users and rules.
"""

from verification.servers.certificates import STORE_PASSWORD, Certificates

MECHANISM = "SCRAM-SHA-512"
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def secured_settings(certificates: Certificates) -> dict[str, str]:
    """Return lines of ``server.properties`` for the listener ``SECURED``."""
    listener = "listener.name.secured"
    return {
        "authorizer.class.name": _AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        f"{listener}.sasl.enabled.mechanisms": MECHANISM,
        f"{listener}.{MECHANISM.lower()}.sasl.jaas.config": _LOGIN,
        f"{listener}.ssl.keystore.location": str(certificates.server_keys),
        f"{listener}.ssl.keystore.type": "PKCS12",
        f"{listener}.ssl.keystore.password": STORE_PASSWORD,
        f"{listener}.ssl.key.password": STORE_PASSWORD,
    }
