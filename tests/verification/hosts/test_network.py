"""Hosts talk to each other, are cut off, freeze and lose their power: as real ones do."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.presence import require_hosts
from tests.spark.processes import children, ends, kill
from verification.hosts.namespaces import Namespaces
from verification.hosts.network import Network
from verification.hosts.waiting import wait_until

ROOT = Path(__file__).parents[3]
ECHO = """
import socket
listening = socket.create_server(("{address}", 5000))
while True:
    accepted, _ = listening.accept()
    while received := accepted.recv(100):
        accepted.sendall(received)
"""
ASK = """
import socket, time
asking = socket.create_connection(("{peer}", 5000))
while True:
    asking.sendall(b"?")
    asking.recv(1)
    print("answered", flush=True)
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    require_hosts(takes_minutes=False)
    folder = tmp_path_factory.mktemp("hosts")
    with Network(folder, [ROOT], [folder / "apart"]) as made:
        made.add("one", "two", "three")
        yield made


class Asker:
    """A host that asks another one again and again."""

    def __init__(self, network: Network, asker: str, answerer: str, log: Path) -> None:
        self.log = log
        self.log.touch()
        echo = ECHO.format(address=network[answerer].address)
        self.answerer = network[answerer].start(sys.executable, "-c", echo, log=log)
        wait_until("listening", lambda: ":5000" in network[answerer].run("ss", "-tln"))
        ask = ASK.format(peer=answerer)
        self.process = network[asker].start(sys.executable, "-c", ask, log=log)
        self.expect_answers()

    def count(self) -> int:
        return self.log.read_text().count("answered")

    def expect_answers(self) -> None:
        before = self.count()
        wait_until("an answer", lambda: self.count() > before + 1, self.log.read_text)

    def expect_silence(self) -> None:
        """An answer that was on its way may still come."""
        before = self.count()
        with pytest.raises(AssertionError, match="not within"):
            wait_until("an answer", lambda: self.count() > before + 1, seconds_max=0.3)
        assert self.process.poll() is None

    def close(self) -> None:
        for process in (self.process, self.answerer):
            for child in children(process.pid):  # Behind ``nsenter``.
                kill(child)
            process.wait()


@pytest.fixture
def asker(network: Network, tmp_path: Path) -> Iterator[Asker]:
    made = Asker(network, "one", "two", tmp_path / "log")
    yield made
    made.close()


def test_a_host_has_its_own_name_address_processes_and_folders(network: Network) -> None:
    one = network["one"]
    said = one.run("bash", "-c", "hostname -s 2>/dev/null || cat /proc/sys/kernel/hostname")
    assert said.strip() == "one"
    assert one.address in one.run("ip", "-brief", "address")
    assert one.run("bash", "-c", "echo /proc/[0-9]*").split()[0] == "/proc/1"
    assert len(one.run("bash", "-c", "echo /proc/[0-9]*").split()) == 2
    one.run("touch", "/tmp/mine", str(network.folder / "apart" / "mine"))
    two = network["two"].run("ls", "/tmp", str(network.folder / "apart"))
    assert "mine" not in two
    one.run("touch", str(network.folder / "of-all"))
    assert (network.folder / "of-all").exists()
    assert "of-all" in network["two"].run("ls", str(network.folder))


def test_a_link_that_is_cut_is_silent_and_goes_on_when_it_is_healed(
    network: Network, asker: Asker
) -> None:
    network.cut("one", "two")
    asker.expect_silence()
    network.heal("one", "two")
    asker.expect_answers()


def test_a_cut_leaves_the_other_hosts_alone(network: Network, asker: Asker) -> None:
    network.cut("one", "three")
    asker.expect_answers()
    network.heal("one", "three")


def test_a_cable_can_be_taken_out_and_put_back(network: Network, asker: Asker) -> None:
    network.unplug("two")
    asker.expect_silence()
    network.plug("two")
    asker.expect_answers()


def test_a_frozen_host_answers_when_it_goes_on(network: Network, asker: Asker) -> None:
    network["two"].freeze()
    asker.expect_silence()
    network["two"].thaw()
    asker.expect_answers()


def test_a_reset_ends_connections_at_both_ends(network: Network, asker: Asker) -> None:
    assert network.reset("one", "two") >= 1
    assert asker.process.wait(10) != 0
    assert network.reset("one", "two") == 0


def test_a_narrow_host_loses_what_it_sends_too_fast(network: Network, asker: Asker) -> None:
    burst = "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\n"
    burst += "for _ in range(200): s.sendto(bytes(1000), ('two', 9))"
    network.narrow("one", 1)
    try:
        network["one"].run(sys.executable, "-c", burst)
    finally:
        assert network.widen("one") > 0
    asker.expect_answers()


def test_a_host_without_power_says_nothing_and_boots_anew(network: Network, tmp_path: Path) -> None:
    asker = Asker(network, "one", "two", tmp_path / "log")
    network.power_off("two")
    assert asker.answerer.poll() is not None
    asker.expect_silence()
    network["one"].kill("socket")
    network.boot("two")
    assert network["two"].run("ls", "/tmp").split() == network["three"].run("ls", "/tmp").split()
    Asker(network, "one", "two", tmp_path / "log").close()


def test_a_program_is_killed_by_its_command(network: Network, asker: Asker) -> None:
    assert network["two"].kill("socket", "nothing that it says") == []
    assert len(network["two"].kill("create_server")) == 1
    assert asker.answerer.wait(10) != 0


def test_a_host_that_froze_can_be_ended(network: Network, tmp_path: Path) -> None:
    asker = Asker(network, "one", "three", tmp_path / "log")
    network["three"].freeze()
    network.power_off("three")
    assert asker.answerer.poll() is not None
    network["one"].kill("socket")
    network.boot("three")


def test_hosts_end_with_a_test_run_that_was_killed(tmp_path: Path) -> None:
    require_hosts(takes_minutes=False)
    program = f"""
import time
from pathlib import Path
from verification.hosts.network import Network
with Network(Path({str(tmp_path)!r})) as network:
    network.add("one")
    print(network["one"].space.pid, flush=True)
    time.sleep(600)
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert owner.stdout is not None
    with owner.stdout as said:
        first = int(said.readline())
    owner.kill()
    owner.wait()
    assert ends(first)


def test_a_host_that_cannot_be_made_says_why() -> None:
    require_hosts(takes_minutes=False)
    with pytest.raises(RuntimeError, match=r"no namespaces for one: .*no-such-program"):
        Namespaces("one", ("uts",), "no-such-program")
