"""Addresses of hosts, with and without brackets, and ports of a range."""

import socket

import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.link import addresses
from laminar_core.link.addresses import (
    Listening,
    Ports,
    addresses_of,
    bare,
    endpoint_of,
    is_loopback,
    is_unspecified,
    reachable,
)

DEBIAN = "w1.example"
"""A host whose own name is 127.0.1.1, as Debian writes it into /etc/hosts."""


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names without a server of names."""
    known = {
        DEBIAN: ["127.0.1.1"],
        "both.example": ["::1", "127.0.0.1"],
        "six.example": ["fd00::1"],
    }
    ask = socket.getaddrinfo

    def answer(host: str, port: object, **options: object) -> list:
        if host not in known and not host.replace(".", "").replace(":", "").isalnum():
            raise OSError(-2, "Name or service not known")
        if host in known:
            families = (socket.AF_INET6 if ":" in a else socket.AF_INET for a in known[host])
            return [(f, None, None, "", (a, 0)) for f, a in zip(families, known[host], strict=True)]
        return ask(host, port, **options)

    monkeypatch.setattr(addresses.socket, "getaddrinfo", answer)


@pytest.mark.parametrize("text", ["41000-41099", " 41000 - 41099 ", "41000"])
def test_a_range_of_ports_is_read(text: str) -> None:
    found = Ports.parse(text)
    assert (found.first, found.last) == (41_000, 41_099 if "-" in text else 41_000)
    assert Ports.parse(str(found)) == found


@pytest.mark.parametrize("text", ["", "-", "many", "0-5", "5-4", "1-65536", "1-2-3", "-5", "1,2"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        Ports.parse(text)


@pytest.mark.usefixtures("names")
class TestNames:
    def test_ipv4_comes_first(self) -> None:
        assert addresses_of("both.example") == ["127.0.0.1", "::1"]
        assert addresses_of("[fd00::7]") == addresses_of("fd00::7") == ["fd00::7"]

    def test_a_name_that_is_loopback_on_its_own_host_is_seen(self) -> None:
        assert is_loopback(addresses_of(DEBIAN)[0])

    def test_a_name_in_an_endpoint_is_looked_up_by_who_connects(self) -> None:
        assert reachable(f"tcp://{DEBIAN}:7") == "tcp://127.0.1.1:7"
        assert reachable("tcp://six.example:7") == "tcp://[fd00::1]:7"
        assert reachable("tcp://[fd00::2]:7") == "tcp://[fd00::2]:7"

    def test_what_cannot_be_looked_up_stays_as_it_is(self) -> None:
        for endpoint in ("tcp://not/known:7", "ipc:///tmp/x", ""):
            assert reachable(endpoint) == endpoint

    def test_an_unknown_name_is_one_line(self) -> None:
        with pytest.raises(ConfigurationError, match=r"cannot listen on not/known .*--bind"):
            addresses_of("not/known")


def test_endpoints_have_brackets_where_they_are_needed() -> None:
    assert endpoint_of("[::1]", 5) == endpoint_of("::1", 5) == "tcp://[::1]:5"
    assert endpoint_of("w1", 5) == "tcp://w1:5"
    assert bare("[fd00::1]") == "fd00::1"


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "[::]", "0:0::0"])
def test_all_addresses_are_no_address(address: str) -> None:
    assert is_unspecified(address)
    assert not is_unspecified("10.0.0.1")
    assert not is_unspecified("w1")


class TestListening:
    def test_sparks_own_settings_hold_where_nothing_else_is_asked_for(self) -> None:
        plain = Listening().on_driver("d.example", None)
        assert (plain.bind, plain.advertised) == ("", "")
        inside = Listening().on_driver("d.example", "10.1.0.7")
        assert (inside.bind, inside.advertised) == ("10.1.0.7", "d.example")
        asked = Listening(bind="10.2.0.0/16").on_driver("d.example", "10.1.0.7")
        assert (asked.bind, asked.advertised) == ("10.2.0.0/16", "")
        told = Listening(advertised="nat.example").on_driver("d.example", "10.1.0.7")
        assert (told.bind, told.advertised) == ("10.1.0.7", "nat.example")

    def test_a_worker_is_known_by_the_name_of_its_own_host(self) -> None:
        asked = Listening(advertised="driver.example", ports=Ports(5, 6))
        assert asked.on_worker({}) == Listening(ports=Ports(5, 6))
        assert asked.on_worker({"LAMINAR_WORKER_ADDRESS": "w1"}).advertised == "w1"
        with pytest.raises(ConfigurationError, match="LAMINAR_WORKER_ADDRESS: :: is no address"):
            asked.on_worker({"LAMINAR_WORKER_ADDRESS": "::"})

    def test_who_listens_at_all_addresses_is_told_by_its_name(self) -> None:
        assert Listening().told("127.0.0.7", "0.0.0.0") == "127.0.0.7"
        assert Listening().told("w1", "10.0.0.1") == "10.0.0.1"
        assert Listening(advertised="nat").told("w1", "10.0.0.1") == "nat"
