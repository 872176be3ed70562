"""Every socket has the same bounds, and long messages are cut and put together."""

import resource

import pyarrow as pa
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError
from laminar_core.link import sockets
from laminar_core.link.sockets import (
    DESCRIPTORS_WANTED,
    HANDSHAKE_MAX_MS,
    HEARTBEAT_INTERVAL_MS,
    HEARTBEAT_TIMEOUT_MS,
    PART_BYTES_MAX,
    open_context,
    open_socket,
    parts_of,
    require_descriptors,
    whole_of,
)

MANY, FEWER = DESCRIPTORS_WANTED


class Limit:
    """The kernel's limit of open files; it refuses to set more than ``most``."""

    def __init__(
        self, patch: pytest.MonkeyPatch, soft: int, hard: int, most: int | None = None
    ) -> None:
        self.now = (soft, hard)
        self.most = most
        self.asked: list[tuple[int, int]] = []
        patch.setattr(resource, "getrlimit", lambda _: self.now)
        patch.setattr(resource, "setrlimit", lambda _, new: self.set(new))

    def set(self, new: tuple[int, int]) -> None:
        self.asked.append(new)
        if self.most is not None and new[0] > self.most:
            raise ValueError("current limit exceeds maximum limit")
        self.now = new


@pytest.mark.parametrize("kind", [zmq.ROUTER, zmq.DEALER, zmq.PUSH, zmq.PULL, zmq.PAIR])
@pytest.mark.parametrize("network", [False, True])
def test_every_socket_has_bounds(kind: int, network: bool) -> None:  # noqa: FBT001 - a case
    with open_context(3) as context, open_socket(context, kind, network=network) as opened:
        assert PART_BYTES_MAX < opened.getsockopt(zmq.MAXMSGSIZE) < 2 * PART_BYTES_MAX
        assert opened.getsockopt(zmq.HANDSHAKE_IVL) == HANDSHAKE_MAX_MS
        assert (opened.getsockopt(zmq.HEARTBEAT_IVL) > 0) is network
        assert (opened.getsockopt(zmq.TCP_KEEPALIVE) == 1) is network
        assert (opened.getsockopt(zmq.CONNECT_TIMEOUT) > 0) is network


def test_a_silent_link_is_closed_within_eight_seconds() -> None:
    assert HEARTBEAT_INTERVAL_MS + HEARTBEAT_TIMEOUT_MS <= 8_000


def test_a_context_has_room_for_every_peer() -> None:
    with open_context(5_000) as context:
        assert context.get(zmq.MAX_SOCKETS) > 5_000


@given(st.binary(max_size=200), st.integers(1, 50))
def test_parts_make_the_whole(message: bytes, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sockets, "PART_BYTES_MAX", most)
        for buffer in (message, memoryview(message), pa.py_buffer(message)):
            parts = parts_of(buffer)
            assert all(0 < len(part) <= most for part in parts) or message == b""
            assert bytes(whole_of(parts)) == message


def test_a_short_message_is_not_copied() -> None:
    message = b"short"
    (part,) = parts_of(message)
    assert part is message
    assert whole_of([message]) is message


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ((256, 4_096), [(4_096, 4_096)]),
        ((1_024, 1_048_576), [(MANY, 1_048_576)]),
        ((1_024, resource.RLIM_INFINITY), [(MANY, resource.RLIM_INFINITY)]),
        ((100_000, 1_048_576), []),
        ((4_096, 4_096), []),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), []),
    ],
)
def test_a_process_opens_as_many_files_as_it_may(monkeypatch, limits, asked) -> None:
    """A burst of connections before a door shuts must not take the last descriptor."""
    limit = Limit(monkeypatch, *limits)
    require_descriptors(100)
    assert limit.asked == asked


def test_a_kernel_that_refuses_many_files_is_asked_for_fewer(monkeypatch) -> None:
    """On macOS the hard limit is infinite, and the kernel has one of its own that is not."""
    limit = Limit(monkeypatch, 256, resource.RLIM_INFINITY, most=FEWER)
    require_descriptors(100)
    assert limit.asked == [(MANY, resource.RLIM_INFINITY), (FEWER, resource.RLIM_INFINITY)]


def test_a_kernel_that_refuses_any_more_leaves_the_limit_as_it_is(monkeypatch) -> None:
    Limit(monkeypatch, 256, resource.RLIM_INFINITY, most=256)
    with pytest.raises(ConfigurationError, match="may have 256"):
        require_descriptors(1_000)


def test_too_few_descriptors_are_refused_before_the_first_connection(monkeypatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    with pytest.raises(ConfigurationError, match=r"may have 256: raise the limit \(ulimit -n\)"):
        require_descriptors(1_000)
