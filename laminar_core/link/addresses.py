"""Where driver and workers listen, and the address at which others reach them.

The two differ in a container behind a translation of addresses, or if a process listens on all
addresses of its host. IPv6 addresses may be written with or without brackets.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Literal, Self

from laminar_core.errors import ConfigurationError, ErrorCode

TransportKind = Literal["ipc", "curve", "tcp"]

WORKER_ADDRESS_VARIABLE = "LAMINAR_WORKER_ADDRESS"
"""In the environment of an executor: the address at which others reach the workers there."""

PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Ports:
    """A range of ports, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        """Write it as it is read."""
        return f"{self.first}-{self.last}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``41000-41099``, or a single port.

        Raises:
            ValueError: it is no such range.
        """
        first, dash, last = text.strip().partition("-")
        numbers = (first, last if dash else first)
        if not all(number.strip().isdecimal() for number in numbers):
            raise ValueError(f"must be a range of ports such as 41000-41099, not {text!r}")
        found = cls(*(int(number) for number in numbers))
        if not 1 <= found.first <= found.last <= PORT_MAX:
            raise ValueError(f"must rise from 1 to {PORT_MAX} at most, not {text!r}")
        return found


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a process listens, as far as it was asked for."""

    bind: str = ""
    """An address or name of the host, or a network such as 10.0.0.0/8, which means the host's own
    address in it. Empty: the address of the host's name."""
    advertised: str = ""
    """The address or name at which others reach the process. Empty: the one that it binds."""
    ports: Ports | None = None
    """None: the kernel chooses."""

    def on_driver(self, driver_host: str, bind_address: str | None) -> Self:
        """Add Spark's own settings of the driver, where nothing else was asked for."""
        bind = self.bind or bind_address or ""
        differs = not self.bind and bare(bind) not in ("", bare(driver_host))
        return replace(
            self, bind=bind, advertised=self.advertised or (driver_host if differs else "")
        )

    def on_worker(self, environment: Mapping[str, str]) -> Self:
        """Return it for a worker: the advertised address is one host's matter.

        Raises:
            ConfigurationError: its host advertises an address that means no host.
        """
        advertised = environment.get(WORKER_ADDRESS_VARIABLE, "").strip()
        if is_unspecified(advertised):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION, f"{WORKER_ADDRESS_VARIABLE}: {no_address(advertised)}"
            )
        return replace(self, advertised=advertised)

    def told(self, host: str, bound: str) -> str:
        """Return the address for others; ``bound`` is the one that the process listens at.

        Raises:
            ConfigurationError: it listens on all addresses, and ``host`` has none.
        """
        if self.advertised:
            return self.advertised
        return addresses_of(host)[0] if is_unspecified(bound) else bound


def bare(host: str) -> str:
    """Return an address without the brackets that IPv6 has in front of a port.

    >>> bare("[::1]"), bare("::1"), bare("w1")
    ('::1', '::1', 'w1')
    """
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def endpoint_of(host: str, port: int) -> str:
    """Return the endpoint of a TCP address.

    >>> endpoint_of("10.0.0.1", 4000), endpoint_of("fd00::1", 4000)
    ('tcp://10.0.0.1:4000', 'tcp://[fd00::1]:4000')
    """
    host = bare(host)
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def is_ipv6(endpoint: str) -> bool:
    """Return whether an endpoint has an IPv6 address."""
    return "[" in endpoint


def is_unspecified(address: str) -> bool:
    """Return whether this address stands for all addresses of a host: 0.0.0.0 or ::."""
    try:
        return ip_address(bare(address)).is_unspecified
    except ValueError:
        return False


def no_address(address: str) -> str:
    """Return why such an address cannot be advertised."""
    return f"{address} is no address that others can connect to; name one of this host"


def is_loopback(host: str) -> bool:
    """Return whether this address or name means the host itself, wherever it is used.

    >>> is_loopback("127.0.1.1"), is_loopback("[::1]"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    try:
        return ip_address(bare(host)).is_loopback
    except ValueError:
        return host == "localhost"


def addresses_of(host: str) -> list[str]:
    """Return the addresses of a name, IPv4 first, or an address as it is.

    Raises:
        ConfigurationError: the name is not known here.
    """
    try:
        found = socket.getaddrinfo(bare(host), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise cannot_listen(host, error) from error
    ordered = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return list(dict.fromkeys(str(entry[4][0]) for entry in ordered))


def reachable(endpoint: str) -> str:
    """Return the endpoint with an address in the place of a name.

    A name that is not known is left to the library, which looks it up again and again.
    """
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host:
        return endpoint
    try:
        return endpoint_of(addresses_of(host)[0], int(port))
    except ConfigurationError:
        return endpoint


def cannot_listen(host: str, error: OSError) -> ConfigurationError:
    """Return the error that no process can listen at ``host``."""
    return ConfigurationError(
        ErrorCode.INVALID_OPTION,
        f"cannot listen on {host} ({error}): set --bind-address, spark.driver.host, or the "
        "executors' host names, to addresses of their machines",
    )
