"""Each fault does what its name says to plain sockets, once, and is counted."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.connectors.kafka.writing import until
from verification.servers.fault_proxy import HOST, Fault, FaultKind, FaultProxy

SECONDS_MAX = 60


class Echo:
    """A server that answers each line, and remembers everything that arrived."""

    def __init__(self) -> None:
        self._listening = socket.create_server((HOST, 0))
        self.port = int(self._listening.getsockname()[1])
        self.arrived = b""
        self.ended = threading.Semaphore(0)
        """Released when a connection ends."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                end, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(end,), daemon=True).start()

    def _answer(self, end: socket.socket) -> None:
        with suppress(OSError), end:
            while piece := end.recv(1 << 16):
                self.arrived += piece
                end.sendall(piece)
        self.ended.release()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.port, watch=lambda: list) as made:
        yield made


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), SECONDS_MAX)


def ask(end: socket.socket, line: bytes = b"hello\n") -> bytes:
    end.sendall(line)
    answer = b""
    while len(answer) < len(line) and (piece := end.recv(1 << 16)):
        answer += piece
    return answer


def test_without_a_fault_it_carries_everything_both_ways(proxy: FaultProxy) -> None:
    large = bytes(range(256)) * 8_000
    with connect(proxy) as end, connect(proxy) as other:
        sending = threading.Thread(target=end.sendall, args=(large,))
        sending.start()
        assert ask(other) == b"hello\n"
        received = b""
        while len(received) < len(large):
            received += end.recv(1 << 20)
        sending.join()
        assert received == large
        end.shutdown(socket.SHUT_WR)
        assert end.recv(1) == b"", "the end of a stream is carried, too"
    assert not proxy.fired


def test_what_is_refused_never_arrives_until_the_proxy_is_healed(echo: Echo) -> None:
    with FaultProxy(echo.port, watch=lambda: lambda piece: [piece[0]]) as proxy:
        proxy.refuse((ord("x"),))
        for _ in range(2):
            with connect(proxy) as end, suppress(OSError):
                assert ask(end, b"x\n") == b""
        with connect(proxy) as end:
            assert ask(end) == b"hello\n", "other requests are carried"
        assert (proxy.refused, echo.arrived) == (2, b"hello\n")
        proxy.heal()
        with connect(proxy) as end:
            assert ask(end, b"x\n") == b"x\n"


def test_a_reset_comes_after_so_many_bytes_in_the_middle(proxy: FaultProxy, echo: Echo) -> None:
    proxy.arm(Fault(FaultKind.RESET, after_bytes=9))
    with connect(proxy) as end:
        assert ask(end) == b"hello\n"
        with pytest.raises(ConnectionResetError):
            ask(end, b"hundred\n")
    assert echo.ended.acquire(timeout=SECONDS_MAX)
    assert b"hello\nhun".startswith(echo.arrived), "the rest of the request did not arrive"
    with connect(proxy) as again:
        assert ask(again) == b"hello\n"
    assert proxy.fired == {FaultKind.RESET: 1}


def test_a_lost_reply_belongs_to_a_request_that_arrived(proxy: FaultProxy, echo: Echo) -> None:
    proxy.arm(Fault(FaultKind.LOST_REPLY, requests=(ord("c"),)))
    with connect(proxy) as end:
        assert ask(end, b"bid\n") == b"bid\n", "another request is not struck"
        with pytest.raises(ConnectionResetError):
            ask(end, b"commit\n")
    assert echo.arrived == b"bid\ncommit\n"
    with connect(proxy) as end:
        assert ask(end, b"commit\n") == b"commit\n", "it strikes once"
    assert proxy.fired == {FaultKind.LOST_REPLY: 1}


def test_a_black_hole_swallows_until_it_is_healed(proxy: FaultProxy, echo: Echo) -> None:
    with connect(proxy) as old:
        assert ask(old) == b"hello\n"
        proxy.arm(Fault(FaultKind.BLACK_HOLE))
        old.sendall(b"lost\n")
        until(lambda: proxy.fired)
        with connect(proxy) as new:
            new.sendall(b"lost\n")
            until(lambda: proxy._passed_bytes == len(b"lost\nlost\n"))
            proxy.heal()
            with pytest.raises(ConnectionResetError):
                old.recv(1)
    assert echo.arrived == b"hello\n"
    with connect(proxy) as again:
        assert ask(again) == b"hello\n"


def test_a_black_hole_may_end_by_itself(proxy: FaultProxy) -> None:
    proxy.arm(Fault(FaultKind.BLACK_HOLE, seconds=0.05))
    with connect(proxy) as end:
        end.sendall(b"lost\n")
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    with connect(proxy) as end:
        assert ask(end) == b"hello\n"


def test_half_open_means_that_only_the_server_knows(proxy: FaultProxy, echo: Echo) -> None:
    with connect(proxy) as end:
        assert ask(end) == b"hello\n"
        proxy.arm(Fault(FaultKind.HALF_OPEN))
        end.sendall(b"lost\n")
        assert echo.ended.acquire(timeout=SECONDS_MAX)
        end.sendall(b"also lost\n")
        end.settimeout(0.05)
        with pytest.raises(TimeoutError):
            end.recv(1)
        assert echo.arrived == b"hello\n"
        end.settimeout(SECONDS_MAX)
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    assert proxy.fired == {FaultKind.HALF_OPEN: 1}


def test_latency_delays_what_the_server_says(proxy: FaultProxy) -> None:
    proxy.arm(Fault(FaultKind.LATENCY, seconds=3_600))
    with connect(proxy) as end:
        end.sendall(b"hello\n")
        end.settimeout(0.05)
        with pytest.raises(TimeoutError):
            end.recv(1)
    proxy.heal()
    proxy.arm(Fault(FaultKind.LATENCY, seconds=0.001))
    with connect(proxy) as end:
        assert ask(end) == b"hello\n"
    assert proxy.fired == {FaultKind.LATENCY: 2}


def test_a_server_that_is_not_there_resets(proxy: FaultProxy, echo: Echo) -> None:
    echo.close()
    with pytest.raises(ConnectionError), connect(proxy) as end:
        end.recv(1)


def test_a_fault_that_did_not_strike_can_be_taken_back(proxy: FaultProxy) -> None:
    proxy.arm(Fault(FaultKind.RESET))
    proxy.heal()
    with connect(proxy) as end:
        assert ask(end) == b"hello\n"
    assert not proxy.fired
