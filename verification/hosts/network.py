"""Hosts on one switch, and what may become of the links between them.

Only iproute2 is needed. A link between two hosts is cut by a neighbour entry with a hardware
address of no host: frames go to the switch and are lost, without an error at either end, as behind
a firewall that drops.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from verification.hosts.host import Host, Place
from verification.hosts.leftovers import end_leftovers
from verification.hosts.namespaces import NETWORK, Namespaces

SUBNET = "10.77.0"
_FIRST = 11
_OF_NO_HOST = "02:00:00:00:00:01"
_BRIDGE = "ip link add br0 type bridge; ip link set br0 up"


class Network:
    """Hosts by name, with addresses of a private range that nothing outside can reach.

    A context manager: all hosts end with it, and with this process.

    Args:
        folder: for what the hosts need; all of them see it.
        shared: more folders that all hosts see, also below ``/tmp``.
        private: folders that each host has with contents of its own.
    """

    def __init__(
        self, folder: Path, shared: Sequence[Path] = (), private: Sequence[Path] = ()
    ) -> None:
        self.folder = folder
        self.hosts: dict[str, Host] = {}
        self._shared = (folder, *shared)
        self._private = tuple(private)
        self._switch: Namespaces | None = None
        self._names = folder / "etc-hosts"

    def __enter__(self) -> Self:
        end_leftovers()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._names.write_text("127.0.0.1 localhost\n")
        self._switch = Namespaces("switch", (NETWORK,), _BRIDGE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for host in self.hosts.values():
            host.end()
        if self._switch is not None:
            self._switch.end()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def add(self, *names: str) -> None:
        """Boot hosts with these names and plug them in."""
        for name in names:
            address = f"{SUBNET}.{_FIRST + len(self.hosts)}"
            place = Place(self.folder / name, self._names, self._shared, self._private)
            self.hosts[name] = Host(name, address, place)
            with self._names.open("a") as known:  # In place: it is mounted on every host.
                known.write(f"{address} {name}\n")
        for name in names:
            self.boot(name)

    def boot(self, name: str) -> None:
        """Give a host power, and plug it in with the address that it had."""
        host = self.hosts[name]
        host.boot()
        port = _port(name)
        # A host that has just lost its power may still have its end of the cable.
        self._run_switch(f"-force link delete {port}", may_fail=True)
        own = f"name eth0 address {_hardware_address(host)} netns {host.space.pid}"
        self._run_switch(f"link add {port} type veth peer {own}")
        self._run_switch(f"link set {port} master br0 up")
        host.space.run("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
        host.space.run("ip", "link", "set", "eth0", "up")

    def cut(self, one: str, other: str) -> None:
        """Drop everything between two hosts, both ways and silently."""
        for here, there in self._both(one, other):
            words = f"{there.address} lladdr {_OF_NO_HOST} dev eth0 nud permanent"
            here.space.run("ip", "neigh", "replace", *words.split())

    def heal(self, one: str, other: str) -> None:
        """Undo ``cut``."""
        for here, there in self._both(one, other):
            here.space.run("ip", "neigh", "del", there.address, "dev", "eth0")

    def unplug(self, name: str) -> None:
        """Take the cable out of a host."""
        self._run_switch(f"link set {_port(name)} down")

    def plug(self, name: str) -> None:
        """Put the cable back."""
        self._run_switch(f"link set {_port(name)} up")

    def narrow(self, name: str, megabit_per_second: float) -> None:
        """Let a host send so much at most; what comes faster is dropped, as in a full switch.

        Few kernels of containers can lose packets at random; nearly all can drop them so.
        """
        rate = f"rate {megabit_per_second:g}mbit burst 8kb latency 5ms"
        self[name].run("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *rate.split())

    def widen(self, name: str) -> int:
        """Undo ``narrow``; return how many packets were dropped."""
        said = self[name].run("tc", "-s", "qdisc", "show", "dev", "eth0")
        self[name].run("tc", "qdisc", "delete", "dev", "eth0", "root")
        found = re.search(r"dropped (\d+)", said)
        assert found is not None, said
        return int(found[1])

    def reset(self, one: str, other: str) -> int:
        """Reset all connections between two hosts; return how many ends were closed."""
        said = [
            here.space.run("ss", "--kill", "--tcp", "--no-header", "dst", there.address)
            for here, there in self._both(one, other)
        ]
        return sum(len(lines.splitlines()) for lines in said)

    def power_off(self, name: str) -> None:
        """End everything on a host at once: the others get no FIN and no RST."""
        self.unplug(name)
        self.hosts[name].end()

    def _both(self, one: str, other: str) -> list[tuple[Host, Host]]:
        """Return both directions, as far as the sender has power."""
        here, there = self.hosts[one], self.hosts[other]
        return [(a, b) for a, b in ((here, there), (there, here)) if a.is_up]

    def _run_switch(self, line: str, *, may_fail: bool = False) -> None:
        assert self._switch is not None
        if may_fail:
            self._switch.run("bash", "-c", f"ip {line} 2>/dev/null || true")
        else:
            self._switch.run("ip", *line.split())


def _hardware_address(host: Host) -> str:
    """Return the one that a host keeps when it boots anew, as a real one does.

    With another one, hosts that remember the old one would not reach it for half a minute.
    """
    return f"02:00:00:00:01:{int(host.address.rpartition('.')[2]):02x}"


def _port(name: str) -> str:
    """Return the name of the switch's end of the cable."""
    return f"port-{name}"
