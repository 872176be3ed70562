"""Who reaches a port and has no key can neither fill the memory nor take the descriptors."""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import psutil
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.link import doors, sockets
from laminar_core.link.addresses import TransportKind
from laminar_core.link.doors import Door, connections_max
from laminar_core.link.listening import listen_on
from laminar_core.link.sockets import PART_BYTES_MAX
from laminar_core.link.transport import CoordinatorTransport, ZmqWorkerTransport
from tests.link.test_transport import HOST, Cluster, frames, heard
from tests.link.waiting import WITHIN_S, until

ATTACKERS = 340
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00"
"""The begin of what version 3 of the protocol says first; its mechanism follows."""

networks = pytest.mark.parametrize("kind", ["curve", "tcp"])


@contextmanager
def cluster(kind: TransportKind, workers: int = 2) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack, kind, workers)


def port_of(transport: CoordinatorTransport | ZmqWorkerTransport) -> int:
    endpoint = (
        transport.address.endpoint
        if isinstance(transport, CoordinatorTransport)
        else transport.endpoint
    )
    return int(endpoint.rpartition(":")[2])


def test_packets_from_afar_can_be_dropped_with_ipv6_too() -> None:
    try:
        listening = listen_on("::1")
    except ConfigurationError:
        pytest.skip("this machine has no IPv6")
    with closing(listening):
        Door._require_ttl(listening, 255)
        option = doors._IPV6_MINHOPCOUNT
        assert listening.getsockopt(socket.IPPROTO_IPV6, option) == 255


def is_closed(attacker: socket.socket) -> bool:
    """The other end has closed it: nothing comes any more, or it is reset."""
    attacker.settimeout(WITHIN_S)
    try:
        while attacker.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def memory_mb() -> float:
    return psutil.Process().memory_info().rss / (1 << 20)


def said_before_the_handshake(mechanism: bytes, length: int) -> bytes:
    """A greeting, and the begin of a command of this length."""
    greeting = GREETING + mechanism.ljust(20, b"\0") + bytes(32)
    return greeting + b"\x06" + struct.pack(">Q", length)


@networks
@pytest.mark.parametrize("whose", ["coordinator", "worker"])
@pytest.mark.parametrize("length", [PART_BYTES_MAX * 2, 1_500_000_000, (1 << 63) - 1])
def test_a_length_that_nobody_needs_ends_the_connection(kind, whose: str, length: int) -> None:
    """Without a bound libzmq takes in 1.5 GB of a command before it looks for a key."""
    with cluster(kind) as c:
        transport = c.coordinator if whose == "coordinator" else c.workers[1]
        before_mb = memory_mb()
        with closing(socket.create_connection((HOST, port_of(transport)))) as attacker:
            attacker.sendall(said_before_the_handshake(kind.upper().encode(), length))
            attacker.settimeout(WITHIN_S)
            with pytest.raises(ConnectionError):
                attacker.sendall(bytes(200 << 20))
            assert is_closed(attacker)
        assert memory_mb() - before_mb < 2 * PART_BYTES_MAX / (1 << 20) + 16
        c.workers[0].send(1, b"from", b"a friend")
        assert frames(c.workers[1]) == [(b"from", b"a friend")]


@networks
@pytest.mark.parametrize("may_filter", [True, False], ids=["privileged", "unprivileged"])
def test_idle_connections_take_a_bounded_number_of_descriptors(
    monkeypatch, kind: TransportKind, *, may_filter: bool
) -> None:
    """Goal: the process goes on. Method: more idle connections than a small process may have.

    An option that no kernel knows is refused, as newer ones refuse the filter to most processes.
    """
    if not may_filter:
        monkeypatch.setattr(doors, "_SO_ATTACH_FILTER", 9_999)
    with cluster(kind) as c, ExitStack() as stack:
        for transport in (c.coordinator, c.workers[1]):
            kept_out = attack(stack, port_of(transport))
            assert until(lambda of=transport: of._door.shut)
            assert kept_out or transport.connections().open >= connections_max(2)
            with pytest.raises(TimeoutError):  # The kernel drops the request for one more.
                socket.create_connection((HOST, port_of(transport)), timeout=0.3)
        c.workers[0].send(1, b"from", b"a friend")
        assert frames(c.workers[1]) == [(b"from", b"a friend")]
        c.workers[0].send_control(b"I live")
        assert heard(c.coordinator) == [b"I live"]


def attack(stack: ExitStack, port: int) -> int:
    """Hold connections open and say nothing; return how many were not let in."""
    for n in range(ATTACKERS):
        try:
            attacker = socket.create_connection((HOST, port), timeout=0.3)
        except TimeoutError:
            return ATTACKERS - n
        stack.callback(attacker.close)
    return 0


@networks
@pytest.mark.parametrize("may_filter", [True, False], ids=["privileged", "unprivileged"])
def test_a_door_opens_again_when_the_idle_ones_are_gone(
    monkeypatch, kind: TransportKind, *, may_filter: bool
) -> None:
    if not may_filter:
        monkeypatch.setattr(doors, "_SO_ATTACH_FILTER", 9_999)
    monkeypatch.setattr(sockets, "HANDSHAKE_MAX_MS", 300)
    with cluster(kind) as c, ExitStack() as stack:
        attack(stack, port_of(c.coordinator))
        gone = connections_max(2 * 2)
        assert until(lambda: c.coordinator.connections().closed >= gone)
        late = c.worker(2)
        late.send_control(b"I was kept out")
        assert heard(c.coordinator) == [b"I was kept out"]


class Refusing:
    """A listening socket of a kernel that has no filters."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self.asked = 0

    def setsockopt(self, *_: object) -> None:
        self.asked += 1
        raise OSError(92, "Protocol not available")


def test_a_kernel_without_filters_does_not_end_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster("tcp", 0) as c:
        door, refusing = c.coordinator._door, Refusing()
        with monkeypatch.context() as patch:
            patch.setattr(door, "_listening", refusing)
            door._keep_out(True)  # noqa: FBT003 - as the guard calls it
        assert (refusing.asked, door.shut) == (2, False)
