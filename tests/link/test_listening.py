"""Listening at addresses of this host, in a range of ports or a network."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, JobFailedError
from laminar_core.link.addresses import Ports
from laminar_core.link.listening import listen_on, own_address_in


class TestPorts:
    @pytest.fixture
    def ports(self) -> Iterator[Ports]:
        """Two ports side by side that were free a moment ago."""
        for _ in range(100):
            with closing(listen_on("127.0.0.1")) as first:
                port = first.getsockname()[1]
            if port < 65_000 and self.is_free(port) and self.is_free(port + 1):
                yield Ports(port, port + 1)
                return

    @staticmethod
    def is_free(port: int) -> bool:
        try:
            listen_on("127.0.0.1", Ports(port, port)).close()
        except JobFailedError:
            return False
        return True

    def test_each_process_takes_the_next_one_until_none_is_left(self, ports: Ports) -> None:
        with ExitStack() as stack:
            taken = [stack.enter_context(closing(listen_on("127.0.0.1", ports))) for _ in range(2)]
            assert [t.getsockname()[1] for t in taken] == [ports.first, ports.last]
            with pytest.raises(
                JobFailedError, match=f"all ports of {ports} at 127.0.0.1"
            ) as caught:
                listen_on("127.0.0.1", ports)
            assert caught.value.code is ErrorCode.NO_FREE_PORT
        listen_on("127.0.0.1", ports).close()


def test_a_network_means_the_own_address_in_it() -> None:
    assert own_address_in("127.0.0.0/8") == "127.0.0.1"
    with closing(listen_on("127.0.0.0/8")) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
    with pytest.raises(ConfigurationError, match=r"has no address in 203\..*, only .*127"):
        own_address_in("203.0.113.0/24")
