"""An in-memory network: nothing is lost, repeated or reordered between two that live."""

import math

import pytest

from laminar_core.link.messages import Peer
from laminar_core.testing.network import (
    SILENCE_SEEN_MS,
    Network,
    SimulatedCoordinatorLink,
    SimulatedWorkerTransport,
)
from laminar_core.testing.world import Process, World

COORDINATOR = "sim://driver-1-g1"


class Reader(Process):
    """Reads whatever has arrived at its endpoint."""

    def __init__(
        self,
        world: World,
        network: Network,
        endpoint: str,
        most: int = 100,
        reorder_max: int = 0,
    ) -> None:
        super().__init__(world, endpoint)
        self.read: list = []
        self._network, self._receive = network, (endpoint, most, reorder_max)
        world.add(self)
        network.bind(endpoint, self)

    def turn(self) -> float:
        self.read.extend(self._network.receive(*self._receive))
        return math.inf


@pytest.fixture
def world():
    return World(5)


@pytest.fixture
def network(world):
    return Network(world)


def run(world: World) -> None:
    world.run_until(lambda: False, 1_000)


@pytest.mark.parametrize(
    ("loss", "repeat", "at_least", "at_most"),
    [(0.0, 0.0, 400, 400), (0.5, 0.0, 150, 250), (0.0, 0.5, 550, 650), (1.0, 0.0, 0, 0)],
)
def test_a_bad_link_loses_and_repeats_control_messages_and_no_others(
    world, network, loss, repeat, at_least, at_most
):
    network.control_loss, network.control_repeat = loss, repeat
    control, data = Reader(world, network, "c", 1_000), Reader(world, network, "d", 1_000)
    for n in range(400):
        network.send_control("a", "c", n)
        network.send("a", "d", n)
    run(world)
    assert data.read == list(range(400))
    assert control.read == sorted(control.read)
    assert at_least <= len(control.read) <= at_most


def test_messages_of_a_sender_keep_their_order_and_senders_mix(world, network):
    reader = Reader(world, network, "r")
    for n in range(50):
        for sender in "ab":
            network.send(sender, "r", (sender, n))
    run(world)
    assert [n for sender, n in reader.read if sender == "a"] == list(range(50))
    assert [n for sender, n in reader.read if sender == "b"] == list(range(50))
    assert [sender for sender, _ in reader.read] != ["a", "b"] * 50


def test_nothing_arrives_at_once(world, network):
    reader = Reader(world, network, "r")
    network.send("a", "r", 1)
    assert list(network.receive("r", 10)) == []
    run(world)
    assert reader.read == [1]


def test_who_reads_a_little_at_a_time_is_woken_again(world, network):
    reader = Reader(world, network, "r", most=1)
    for n in range(10):
        network.send("a", "r", n)
    run(world)
    assert reader.read == list(range(10))


def test_what_is_sent_to_nobody_is_lost(world, network):
    network.send("a", "nowhere", 1)
    reader = Reader(world, network, "r")
    network.send("a", "r", 1)
    network.unbind("r")
    run(world)
    assert reader.read == []
    assert list(network.receive("r", 10)) == []


def test_of_a_sender_that_is_killed_a_beginning_arrives():
    arrived = set()
    for seed in range(30):
        world = World(seed)
        network = Network(world)
        reader = Reader(world, network, "r")
        for n in range(5):
            for sender in "ab":
                network.send(sender, "r", (sender, n))
        network.lose("a")
        run(world)
        of_a = [n for sender, n in reader.read if sender == "a"]
        assert of_a == list(range(len(of_a)))
        assert len(reader.read) == len(of_a) + 5
        arrived.add(len(of_a))
    assert len(arrived) > 3


@pytest.mark.parametrize("reorder_max", [1, 4])
def test_a_message_overtakes_no_more_than_it_may(world, network, reorder_max):
    reader = Reader(world, network, "r", most=3, reorder_max=reorder_max)
    for n in range(200):
        network.send("a", "r", n)
    run(world)
    assert sorted(reader.read) == list(range(200))
    oldest = [min({*range(201)} - {*reader.read[:n]}) for n in range(200)]
    assert max(n - first for n, first in zip(reader.read, oldest, strict=True)) == reorder_max


def test_workers_and_their_coordinator_reach_each_other(world, network):
    owner = Reader(world, network, "owner")
    workers = [SimulatedWorkerTransport(network, COORDINATOR, n, owner) for n in (0, 1)]
    link = SimulatedCoordinatorLink(network, COORDINATOR, owner)
    for worker in workers:
        worker.connect_peers([Peer(endpoint=w.endpoint, public_key="") for w in workers])
    workers[0].send(1, b"header", b"payload")
    workers[1].send_control(b"hello")
    link.send(0, b"welcome")
    run(world)
    assert list(workers[1].receive()) == [(b"header", b"payload")]
    assert list(link.receive()) == [b"hello"]
    assert list(workers[0].receive_control()) == [b"welcome"]
    assert list(workers[1].receive_control()) == []


def test_generations_do_not_hear_each_other(world, network):
    owner = Reader(world, network, "owner")
    old = SimulatedWorkerTransport(network, "sim://driver-1-g1", 0, owner)
    new = SimulatedWorkerTransport(network, "sim://driver-1-g2", 0, owner)
    link = SimulatedCoordinatorLink(network, "sim://driver-1-g2", owner)
    link.send(0, b"for the new one")
    old.send_control(b"to nobody")
    run(world)
    assert list(old.receive_control()) == []
    assert list(new.receive_control()) == [b"for the new one"]
    assert list(link.receive()) == []


def test_waking_wakes_the_owner_and_closing_ends_what_arrives(world, network):
    owner = Process(world, "owner")
    transport = SimulatedWorkerTransport(network, COORDINATOR, 0, owner)
    link = SimulatedCoordinatorLink(network, COORDINATOR, owner)
    transport.wake()
    assert owner.due_ms == world.now_ms
    link.wake()
    transport.close()
    link.close()
    network.send("a", transport.endpoint, b"late")
    transport.send_control(b"late")
    assert list(transport.receive()) == list(link.receive()) == []


def test_nobody_waits_in_a_simulation(world, network):
    transport = SimulatedWorkerTransport(network, COORDINATOR, 0, Process(world, "owner"))
    with pytest.raises(NotImplementedError):
        transport.wait(1)


def test_a_silent_connection_loses_what_is_sent_until_heartbeats_are_missing(world, network):
    reader, seen = Reader(world, network, "r"), []
    network.send("b", "r", "before")
    run(world)
    network.silence("a", "r", 20_000)
    for after_ms in range(1_000, 26_000, 5_000):
        world.later(after_ms, lambda after_ms=after_ms: network.send("a", "r", after_ms))
        world.later(after_ms, lambda: network.send("b", "r", "others"))
        world.later(after_ms, lambda: seen.append(network.connections("r", 2)))
    world.run_until(lambda: False, 30_000)
    assert [n for n in reader.read if n != "others"] == ["before", 11_000, 16_000, 21_000]
    assert reader.read.count("others") == 5
    assert [(c.open, c.established) for c in seen] == [(2, 2), (2, 2), (1, 2), (1, 2), (2, 3)]
    assert world.now_ms > 20_000


def test_a_short_silence_is_over_once_heartbeats_are_missing(world, network):
    Reader(world, network, "r")
    network.silence("a", "r", 100)
    world.run_until(lambda: False, SILENCE_SEEN_MS + 1)
    connections = network.connections("r", 1)
    assert (connections.open, connections.closed, connections.established) == (1, 1, 2)
