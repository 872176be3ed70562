"""Listen at addresses of this host."""

import errno
import socket
from ipaddress import ip_address, ip_network

import psutil

from laminar_core.errors import ConfigurationError, ErrorCode, JobFailedError
from laminar_core.link.addresses import Ports, addresses_of, cannot_listen
from laminar_core.link.sockets import listen_at


def listen_on(host: str, ports: Ports | None = None) -> socket.socket:
    """Listen at one address of this host; ``host`` may also be a network.

    Raises:
        ConfigurationError: ``host`` is no address of this machine.
        JobFailedError: all ports of the range are in use (NO_FREE_PORT); a generation that ends may
            still hold them.
    """
    addresses = [own_address_in(host)] if "/" in host else addresses_of(host)
    problem: OSError | None = None
    in_use: str | None = None
    for address in addresses:
        for port in (0,) if ports is None else range(ports.first, ports.last + 1):
            try:
                return listen_at(address, port)
            except OSError as error:
                problem = problem or error
                if error.errno != errno.EADDRINUSE:
                    break  # The address is wrong, or this process may not use the port.
        else:
            in_use = address
    if in_use is not None:
        raise JobFailedError(
            ErrorCode.NO_FREE_PORT,
            f"all ports of {ports} at {in_use} of host {socket.gethostname()} are in use: widen "
            "--ports. Each worker needs one on its host, and so does the driver; workers of an "
            "earlier generation may hold theirs for some seconds",
        )
    assert problem is not None, "a name has an address"
    raise cannot_listen(host, problem) from problem


def own_address_in(network: str) -> str:
    """Return the address of this host in a network such as 10.0.0.0/8.

    Raises:
        ConfigurationError: it has none.
    """
    wanted = ip_network(network, strict=False)
    own = [
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    ]
    found = sorted(ip_address(each) for each in own if ip_address(each) in wanted)
    if not found:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"host {socket.gethostname()} has no address in {network}, only {', '.join(own)}: "
            "correct --bind-address",
        )
    return str(found[0])
