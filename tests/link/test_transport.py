"""Real sockets on this machine: what is sent arrives, and nobody else gets in."""

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
import zmq

from laminar_core.errors import ConfigurationError, FencedError, ProtocolError
from laminar_core.link.addresses import Listening, TransportKind
from laminar_core.link.listening import listen_on
from laminar_core.link.messages import Peer
from laminar_core.link.sockets import PART_BYTES_MAX
from laminar_core.link.transport import (
    RECEIVE_FRAMES_MAX,
    CoordinatorAddress,
    CoordinatorTransport,
    WakeUp,
    ZmqWorkerTransport,
    _content,
)
from laminar_core.link.unix_sockets import SOCKET_DIRECTORY_LENGTH_MAX
from laminar_core.protocol.links import Connections
from tests.link.waiting import CLOCK

HOST = "127.0.0.1"
ARRIVES_WITHIN_MS = 5_000
STAYS_AWAY_MS = 200
"""How long a test waits for what must not come: a handshake on this machine takes under 20 ms."""

KINDS: tuple[TransportKind, ...] = ("ipc", "curve", "tcp")
every_kind = pytest.mark.parametrize("kind", KINDS)


class Cluster:
    """A coordinator and workers that know each other."""

    def __init__(
        self,
        stack: ExitStack,
        kind: TransportKind,
        workers: int,
        host: str = HOST,
        listening: Listening = Listening(),  # noqa: B008 - immutable
        *,
        near: bool = False,
    ) -> None:
        self._stack = stack
        self._host = host
        self.coordinator = CoordinatorTransport(kind, host, workers, listening, listening)
        stack.callback(self.coordinator.close)
        self.workers = [self.worker(n) for n in range(workers)]
        peers = [
            Peer(endpoint=w.endpoint, public_key=w.public_key, near=w.near if near else None)
            for w in self.workers
        ]
        for worker in self.workers:
            worker.connect_peers(peers)

    def worker(self, index: int, address: CoordinatorAddress | None = None) -> ZmqWorkerTransport:
        worker = ZmqWorkerTransport(address or self.coordinator.address, index, self._host)
        self._stack.callback(worker.close)
        return worker


@contextmanager
def cluster(
    kind: TransportKind, workers: int = 2, *where: str | Listening, near: bool = False
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack, kind, workers, *where, near=near)


def gather(
    receive: Callable[[], Iterator], wait: Callable[[float], None], count: int, within_ms: float
) -> list:
    """Receive until ``count`` messages are there, or nothing came for ``within_ms``.

    A wait may end although nothing is there: libzmq looks at a message before it is whole.
    """
    found: list = []
    end_ms = CLOCK.monotonic_ms() + within_ms
    while len(found) < count and (left_ms := end_ms - CLOCK.monotonic_ms()) > 0:
        wait(left_ms)
        if arrived := list(receive()):
            found += arrived
            end_ms = CLOCK.monotonic_ms() + within_ms
    return found


def heard(coordinator: CoordinatorTransport, count: int = 1, within_ms=ARRIVES_WITHIN_MS) -> list:
    return gather(coordinator.receive, coordinator.wait, count, within_ms)


def told(worker: ZmqWorkerTransport, count: int = 1, within_ms=ARRIVES_WITHIN_MS) -> list:
    return gather(worker.receive_control, worker.wait, count, within_ms)


def frames(worker: ZmqWorkerTransport, count: int = 1, within_ms=ARRIVES_WITHIN_MS) -> list:
    found = gather(worker.receive, worker.wait, count, within_ms)
    return [(bytes(header), bytes(payload)) for header, payload in found]


@every_kind
def test_coordinator_and_workers_hear_each_other(kind: TransportKind) -> None:
    with cluster(kind) as c:
        for index, worker in enumerate(c.workers):
            worker.send_control(b"here is %d" % index)
        assert sorted(heard(c.coordinator, 2)) == [b"here is 0", b"here is 1"]
        c.coordinator.send(1, b"only to you")
        assert told(c.workers[1]) == [b"only to you"]
        assert told(c.workers[0], within_ms=STAYS_AWAY_MS) == []


@pytest.mark.parametrize("kind", ["curve", "tcp"])
def test_a_worker_that_connects_again_is_heard_although_its_old_connection_is_open(kind) -> None:
    """A link that is silent in one direction: one end knows it seconds before the other does."""
    with cluster(kind, workers=0) as c:
        c.worker(0).send_control(b"before")
        assert heard(c.coordinator) == [b"before"]
        again = c.worker(0)
        again.send_control(b"after")
        assert heard(c.coordinator) == [b"after"]
        c.coordinator.send(0, b"to the new connection")
        assert told(again) == [b"to the new connection"]


@pytest.mark.parametrize(
    ("kind", "near"), [("ipc", False), ("curve", False), ("tcp", False), ("curve", True)]
)
def test_frames_arrive_whole_and_in_order(kind: TransportKind, near: bool) -> None:  # noqa: FBT001 - a case
    large = os.urandom(3_000_000)
    with cluster(kind, near=near) as c:
        sent = [(b"h%d" % n, large if n == 7 else b"%d" % n) for n in range(600)]
        for header, payload in sent:
            c.workers[0].send(1, header, payload)
        assert frames(c.workers[1], len(sent)) == sent


@pytest.mark.parametrize("kind", ["curve", "tcp"])
def test_workers_of_one_host_need_no_network(kind: TransportKind) -> None:
    with cluster(kind, 0) as c:
        c.workers = [c.worker(0), c.worker(1)]
        nowhere = [
            Peer(endpoint="tcp://127.0.0.1:1", public_key="", near=w.near) for w in c.workers
        ]
        for worker in c.workers:
            worker.connect_peers(nowhere)
        c.workers[0].send(1, b"from 0", b"p")
        c.workers[1].send(0, b"from 1", b"p")
        assert frames(c.workers[1]) == [(b"from 0", b"p")]
        assert frames(c.workers[0]) == [(b"from 1", b"p")]
        assert [w.connections() for w in c.workers] == [Connections(1, 1)] * 2


@pytest.mark.parametrize("kind", ["curve", "tcp"])
def test_each_worker_chooses_for_each_peer(kind: TransportKind) -> None:
    """Worker 2 is on another host: what it says of its own sockets leads nowhere here."""
    with cluster(kind, 0) as c:
        c.workers = [c.worker(n) for n in range(3)]
        near = [w.near for w in c.workers]
        assert near[2] is not None
        near[2] = near[2].model_copy(update={"directory": near[2].directory + "-there"})
        peers = [
            Peer(endpoint=w.endpoint, public_key=w.public_key, near=at)
            for w, at in zip(c.workers, near, strict=True)
        ]
        c.workers[0].connect_peers(peers)
        c.workers[2].connect_peers([peer.model_copy(update={"near": None}) for peer in peers])
        c.workers[0].send(1, b"from 0", b"to 1")
        c.workers[0].send(2, b"from 0", b"to 2")
        c.workers[2].send(1, b"from 2", b"to 1")
        assert sorted(frames(c.workers[1], 2)) == [(b"from 0", b"to 1"), (b"from 2", b"to 1")]
        assert frames(c.workers[2]) == [(b"from 0", b"to 2")]
        assert c.workers[1].connections() == Connections(2, 2)


def test_sockets_of_a_worker_go_with_it() -> None:
    with cluster("curve", 1) as c:
        near = c.workers[0].near
        assert near is not None
        assert near.is_here()
        assert stat.S_IMODE(Path(near.directory).stat().st_mode) == 0o700
    assert not Path(near.directory).exists()


def test_a_worker_without_a_place_for_sockets_uses_the_network(monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/null")
    with cluster("curve", near=True) as c:
        assert [w.near for w in c.workers] == [None, None]
        reach_each_other(c)


@every_kind
def test_frames_to_several_peers_do_not_mix(kind: TransportKind) -> None:
    with cluster(kind, workers=3) as c:
        c.workers[0].send(1, b"to 1", b"")
        c.workers[0].send(2, b"to 2", b"")
        c.workers[2].send(1, b"from 2", b"")
        assert sorted(frames(c.workers[1], 2)) == [(b"from 2", b""), (b"to 1", b"")]
        assert frames(c.workers[2]) == [(b"to 2", b"")]


def test_a_sender_is_never_blocked_by_a_receiver_that_does_not_read() -> None:
    """Credit bounds what is under way; a socket that refused would stop the worker's loop."""
    with cluster("ipc") as c:
        for n in range(20_000):
            c.workers[0].send(1, b"%d" % n, b"x" * 100)
        assert len(frames(c.workers[1], 20_000)) == 20_000


def test_a_worker_takes_a_bounded_number_of_frames_in_one_go() -> None:
    with cluster("ipc") as c:
        for n in range(RECEIVE_FRAMES_MAX + 10):
            c.workers[0].send(1, b"%d" % n, b"")
        c.workers[0].send_control(b"all sent")
        heard(c.coordinator)
        sizes = []

        def in_one_go() -> Iterator:
            found = list(c.workers[1].receive())
            sizes.append(len(found))
            return iter(found)

        expected = RECEIVE_FRAMES_MAX + 10
        assert len(gather(in_one_go, c.workers[1].wait, expected, ARRIVES_WITHIN_MS)) == expected
        assert max(sizes) <= RECEIVE_FRAMES_MAX


def test_a_message_to_a_worker_that_is_gone_is_dropped() -> None:
    with cluster("ipc") as c:
        c.coordinator.send(9, b"is anybody there?")
        c.workers[0].send_control(b"yes, me")
        assert heard(c.coordinator) == [b"yes, me"]


@every_kind
def test_the_last_words_of_a_worker_get_out(kind: TransportKind) -> None:
    with cluster(kind, workers=0) as c:
        worker = c.worker(0)
        worker.send_control(b"I fail because")
        worker.close()
        assert heard(c.coordinator) == [b"I fail because"]


# --- who gets in --------------------------------------------------------------------------------


def stranger_at(endpoint: str, kind: int, **options: bytes) -> "zmq.Socket[bytes]":
    client = zmq.Context.instance().socket(kind)
    client.linger = 0
    for name, value in options.items():
        setattr(client, name, value)
    client.connect(endpoint)
    return client


def knock(stranger: "zmq.Socket[bytes]", *parts: bytes) -> None:
    """Send this, unless the other side has hung up already: a send would wait for ever then."""
    with suppress(zmq.Again):
        stranger.send_multipart(parts, zmq.NOBLOCK)


def own_keys(server: str) -> dict[str, bytes]:
    """Return the keys of a client that knows the server's key, but not the workers' own."""
    public, secret = zmq.curve_keypair()
    return {
        "curve_serverkey": server.encode(),
        "curve_publickey": public,
        "curve_secretkey": secret,
    }


@pytest.mark.parametrize("encrypted", [False, True], ids=["plaintext", "unknown key"])
def test_curve_keeps_strangers_from_the_coordinator(encrypted) -> None:
    with cluster("curve", workers=1) as c:
        address = c.coordinator.address
        options = own_keys(address.server_key) if encrypted else {}
        with stranger_at(address.endpoint, zmq.DEALER, **options) as stranger:
            knock(stranger, b"let me in")
            assert heard(c.coordinator, within_ms=STAYS_AWAY_MS) == []
            c.workers[0].send_control(b"a friend")
            assert heard(c.coordinator) == [b"a friend"]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plaintext", "unknown key"])
def test_curve_keeps_strangers_from_a_worker(encrypted) -> None:
    with cluster("curve") as c:
        options = own_keys(c.workers[1].public_key) if encrypted else {}
        with stranger_at(c.workers[1].endpoint, zmq.PUSH, **options) as stranger:
            knock(stranger, b"header", b"payload")
            assert frames(c.workers[1], within_ms=STAYS_AWAY_MS) == []
            c.workers[0].send(1, b"from", b"a friend")
            assert frames(c.workers[1]) == [(b"from", b"a friend")]


def test_bytes_that_are_no_zmq_do_no_harm() -> None:
    with cluster("curve", workers=1) as c:
        port = int(c.coordinator.address.endpoint.rpartition(":")[2])
        with socket.create_connection((HOST, port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            c.workers[0].send_control(b"a friend")
            assert heard(c.coordinator) == [b"a friend"]


def test_a_worker_of_another_generation_cannot_connect() -> None:
    """It knows where to go, also by its successor's address, but has the keys of its own time."""
    with cluster("curve", workers=1) as old, cluster("curve", workers=1) as new:
        former = old.coordinator.address
        zombie = CoordinatorAddress(
            "curve",
            new.coordinator.address.endpoint,
            server_key=new.coordinator.address.server_key,
            worker_public_key=former.worker_public_key,
            worker_secret_key=former.worker_secret_key,
        )
        late = new.worker(1, zombie)
        late.send_control(b"I am late")
        assert heard(new.coordinator, within_ms=STAYS_AWAY_MS) == []
        with pytest.raises(FencedError, match="the coordinator refuses the keys of this worker"):
            repeat(lambda: late.send_control(b"Hello?"), late.wait)


def repeat(send: Callable[[], None], wait: Callable[[float], None]) -> None:
    """Send until it fails: sockets learn in the background that they are refused."""
    for _ in range(ARRIVES_WITHIN_MS // 10):
        send()
        wait(10)


def test_a_peer_with_other_keys_is_given_up_without_waiting_for_it() -> None:
    """A send that blocked would stop the worker's loop for ever."""
    with cluster("curve", workers=1) as c, cluster("curve", workers=2) as other:
        stranger = other.workers[1]
        c.workers[0].connect_peers(
            [
                Peer(endpoint="", public_key=""),
                Peer(endpoint=stranger.endpoint, public_key=stranger.public_key),
            ]
        )
        with pytest.raises(FencedError, match="worker 1 refuses"):
            repeat(lambda: c.workers[0].send(1, b"h", b"p"), c.workers[0].wait)


def test_each_generation_has_a_directory_and_keys_of_its_own() -> None:
    with cluster("ipc", 0) as a, cluster("ipc", 0) as b:
        assert a.coordinator.address.directory != b.coordinator.address.directory
    with cluster("curve", 0) as a, cluster("curve", 0) as b:
        assert a.coordinator.address.server_key != b.coordinator.address.server_key
        assert a.coordinator.address.worker_secret_key != b.coordinator.address.worker_secret_key


def test_the_secret_key_is_not_shown() -> None:
    with cluster("curve", 0) as c:
        assert c.coordinator.address.worker_secret_key not in repr(c.coordinator.address)


def test_sockets_on_one_host_are_in_a_private_directory_that_goes_with_them() -> None:
    with cluster("ipc") as c:
        directory = Path(c.coordinator.address.directory)
        status = directory.stat()
        assert stat.S_IMODE(status.st_mode) == 0o700
        assert status.st_uid == os.getuid()
        names = {path.name for path in directory.iterdir()}
        assert names == {"coordinator", "worker-0", "worker-1", "lock"}
    assert not directory.exists()


def test_a_long_temporary_directory_does_not_make_the_paths_too_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The path of a unix socket may have 107 bytes; some machines use long directories."""
    deep = tmp_path / ("d" * SOCKET_DIRECTORY_LENGTH_MAX)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with cluster("ipc") as c:
        assert not c.coordinator.address.directory.startswith(str(deep))
        c.workers[0].send(1, b"h", b"p")
        assert frames(c.workers[1]) == [(b"h", b"p")]


@pytest.mark.parametrize("kind", ["curve", "tcp"])
def test_network_sockets_listen_on_one_address_only(kind: TransportKind) -> None:
    with cluster(kind, 1) as c:
        assert c.coordinator.address.endpoint.startswith(f"tcp://{HOST}:")
        assert c.workers[0].endpoint.startswith(f"tcp://{HOST}:")
        assert c.workers[0].endpoint != c.coordinator.address.endpoint


@pytest.mark.parametrize("kind", ["curve", "tcp"])
def test_a_host_that_is_not_this_one_is_refused_in_one_line(kind: TransportKind) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192\.0\.2\.1 .*driver.host"):
        CoordinatorTransport(kind, "192.0.2.1", 1)


def has_ipv6() -> bool:
    try:
        listen_on("::1").close()
    except ConfigurationError:
        return False
    return True


def reach_each_other(c: Cluster) -> None:
    c.workers[0].send(1, b"h", b"p")
    assert frames(c.workers[1]) == [(b"h", b"p")]
    c.workers[1].send_control(b"to the coordinator")
    assert heard(c.coordinator) == [b"to the coordinator"]
    c.coordinator.send(1, b"back")
    assert gather(c.workers[1].receive_control, c.workers[1].wait, 1, ARRIVES_WITHIN_MS) == [
        b"back"
    ]


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(("kind", "host"), [("curve", "::1"), ("tcp", "[::1]")])
def test_ipv6_works_with_and_without_brackets(kind: TransportKind, host: str) -> None:
    with cluster(kind, 2, host) as c:
        assert c.coordinator.address.endpoint.startswith("tcp://[::1]:")
        assert c.workers[0].endpoint.startswith("tcp://[::1]:")
        reach_each_other(c)


@pytest.mark.parametrize("kind", ["curve", "tcp"])
def test_another_address_than_the_bound_one_is_told_to_others(
    kind: TransportKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: bound is what the process sees, advertised what leads to it."""
    monkeypatch.setenv("LAMINAR_WORKER_ADDRESS", "127.0.0.4")
    outside = Listening(bind="0.0.0.0", advertised="127.0.0.3")
    with cluster(kind, 2, "no-such-name.invalid", outside) as c:
        assert c.coordinator.address.endpoint.startswith("tcp://127.0.0.3:")
        assert c.workers[0].endpoint.startswith("tcp://127.0.0.4:")
        reach_each_other(c)


# --- what must not happen, and the wake-up ------------------------------------------------------


def test_a_frame_without_a_payload_is_a_protocol_error() -> None:
    with cluster("tcp", 1) as c, stranger_at(c.workers[0].endpoint, zmq.PUSH) as stranger:
        knock(stranger, b"only a header")
        with pytest.raises(ProtocolError, match="a message of one part, without its content"):
            frames(c.workers[0])


def test_a_control_message_that_is_empty_is_a_protocol_error() -> None:
    """Without an identity of its own a stranger is given one, so it is the message that lacks."""
    with pytest.raises(ProtocolError, match="a message of one part, without its content"):
        _content([b"worker-0"])


@every_kind
@pytest.mark.parametrize("beyond", [-1, 0, 1, PART_BYTES_MAX])
def test_a_message_longer_than_a_part_may_be_arrives_whole(kind, beyond: int) -> None:
    """Otherwise a long row would have its sender connect again for ever."""
    payload = os.urandom(1 << 16) * ((PART_BYTES_MAX + beyond) // (1 << 16) + 1)
    payload = payload[: PART_BYTES_MAX + beyond]
    with cluster(kind) as c:
        c.workers[0].send(1, b"h", pa.py_buffer(payload))
        assert frames(c.workers[1]) == [(b"h", payload)]
        c.workers[1].send_control(payload)
        assert heard(c.coordinator) == [payload], "so the coordinator has a route to it"
        c.coordinator.send(1, payload)
        assert told(c.workers[1]) == [payload]


def test_another_thread_ends_a_wait() -> None:
    with cluster("ipc", 1) as c:
        for transport in (c.coordinator, c.workers[0]):
            thread = threading.Thread(target=transport.wait, args=(60_000,))
            thread.start()
            transport.wake()
            thread.join(ARRIVES_WITHIN_MS / 1000)
            assert not thread.is_alive()


def test_many_wake_ups_end_one_wait() -> None:
    wake = WakeUp()
    for _ in range(3):
        wake.set()
    wake.wait((), 60_000)
    with pytest.raises(BlockingIOError):
        os.read(wake._woken, 1)
    wake.close()


def test_a_wait_that_is_over_already_returns_at_once() -> None:
    wake = WakeUp()
    wake.wait((), -5)
    wake.close()


def test_waking_what_is_closed_writes_into_nobody_elses_file(tmp_path: Path) -> None:
    """The number of a closed descriptor is given to the next file that is opened."""
    transport = CoordinatorTransport("ipc", HOST, 1)
    number = transport._wake._wake
    transport.close()
    copies = []
    with (tmp_path / "innocent").open("wb") as innocent:
        while (copy := os.dup(innocent.fileno())) < number:
            copies.append(copy)
        assert copy == number
        transport.wake()
        for one in (*copies, copy):
            os.close(one)
    assert (tmp_path / "innocent").read_bytes() == b""


@every_kind
def test_closing_leaves_no_descriptor_open(kind: TransportKind) -> None:
    open_descriptors = psutil.Process().num_fds
    with cluster(kind):
        pass
    before = open_descriptors()
    for _ in range(3):
        with cluster(kind):
            pass
    assert open_descriptors() == before
